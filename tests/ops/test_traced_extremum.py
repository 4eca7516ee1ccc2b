"""The ops of maxima and minima for ``torch.compile``: schema, values, derivatives of any order."""

from __future__ import annotations

import importlib

import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.ops import traced_extremum, winners
from dgl_flash.ops.traced_extremum import TRACED
from dgl_flash.structure import structure
from dgl_flash.structure.places import bytes_of_place
from dgl_flash.structure.traced import edge_tensors
from tests.graphs import random_graph, small_zoo
from tests.ops.common import draw, on
from tests.ops.test_traced import gradients, opcheck, same, some_graphs
from tests.ops.test_winners import star

pytestmark = pytest.mark.filterwarnings("ignore")
every_reducer = pytest.mark.parametrize("reduce_op", ["max", "min"])
on_either = pytest.mark.parametrize("on_edges", [False, True], ids=["sources", "edges"])
# Message, and how many numbers of 2 x 3 an edge brings.
MESSAGES = [("copy", 0), *((message, parts) for message in ("add", "mul") for parts in (1, 2, 6))]
every_message = pytest.mark.parametrize(("message", "parts"), MESSAGES)


def operands(struct, parts, on_edges=False, dtype=torch.float64):
    kind = {"dtype": dtype, "device": struct.device}
    num_rows = struct.num_edges if on_edges else struct.num_src
    feat = draw(num_rows, 2, 3, seed=1, **kind).requires_grad_()
    if parts == 0:
        return feat, None
    shape = (struct.num_edges, parts) if parts > 1 else (struct.num_edges,)
    return feat, draw(*shape, seed=2, **kind).requires_grad_()


def winners_of(struct, width):
    kind = {"dtype": torch.float64, "device": struct.device}
    feat = draw(struct.num_src, width, seed=1, **kind)
    num_bytes = bytes_of_place(struct.in_adj.max_degree)
    return reference.extremum(struct, "copy_lhs", "max", feat, None, num_bytes)[1]


def eager(struct, message, reduce_op, feat, numbers, on_edges):
    """The same through ``ops.gspmm``."""
    if message == "copy":
        sides = (None, feat) if on_edges else (feat, None)
        return ops.gspmm(struct, "copy_rhs" if on_edges else "copy_lhs", reduce_op, *sides)
    shape = {1: (1, 1), 2: (2, 1), 6: (2, 3)}[numbers.numel() // max(struct.num_edges, 1) or 1]
    return ops.gspmm(struct, message, reduce_op, feat, numbers.reshape(-1, *shape))


@some_graphs
@every_reducer
@every_message
def test_equals_the_eager_op(name, message, parts, reduce_op, device):
    struct = on(device, small_zoo()[name](torch.int64))
    feat, numbers = operands(struct, parts)
    num_bytes = bytes_of_place(struct.bound_in_degree())
    arguments = (message, reduce_op, feat, numbers, False, num_bytes)
    opcheck(traced_extremum._extremum, (*edge_tensors(struct), *arguments))
    call = (struct, message, reduce_op, feat, numbers, False)
    found, expected = traced_extremum.extremum(*call), eager(*call)
    same(found, expected)
    leaves = (feat,) if numbers is None else (feat, numbers)
    same(gradients(found, *leaves), gradients(expected, *leaves))


@some_graphs
@every_reducer
def test_rows_of_edges(name, reduce_op, device):
    struct = on(device, small_zoo()[name](torch.int64))
    feat, _ = operands(struct, 0, on_edges=True)
    arguments = ("copy", reduce_op, feat, None, True, 1)
    opcheck(traced_extremum._extremum, (*edge_tensors(struct), *arguments))
    call = (struct, "copy", reduce_op, feat, None, True)
    found, expected = traced_extremum.extremum(*call), eager(*call)
    same(found, expected)
    same(gradients(found, feat), gradients(expected, feat))


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "numbers"])
@pytest.mark.parametrize("message", ["add", "mul"])
def test_one_operand_of_two_wants_a_gradient(message, which, device):
    struct = on(device, small_zoo()["permuted_edges"](torch.int64))
    sides = [side.detach() for side in operands(struct, 2)]
    sides[which].requires_grad_()
    found, expected = (
        run(struct, message, "max", *sides, False) for run in (traced_extremum.extremum, eager)
    )
    same(gradients(found, sides[which]), gradients(expected, sides[which]))


@pytest.mark.parametrize("degree", [200, 300, 70_000])
def test_places_of_one_two_and_three_bytes(degree, device):
    struct = on(device, star(degree))
    feat, _ = operands(struct, 0)
    found, expected = (
        run(struct, "copy", "max", feat, None, False) for run in (traced_extremum.extremum, eager)
    )
    same(found, expected)
    same(gradients(found, feat), gradients(expected, feat))


@some_graphs
@on_either
@pytest.mark.parametrize("num_parts", [1, 2, 6])
def test_moves(name, on_edges, num_parts, device):
    """Both keep to their schemas, equal the eager ones, and each is the derivative of the other."""
    struct = on(device, small_zoo()[name](torch.int64))
    if not on_edges:
        num_parts = 6  # sources have whole rows
    kept, edges = winners_of(struct, 6), edge_tensors(struct)
    kind = {"dtype": torch.float64, "device": device}
    num_rows = struct.num_edges if on_edges else struct.num_src
    values = draw(num_rows, num_parts, seed=3, **kind).requires_grad_()
    grad = draw(struct.num_dst, 6, seed=4, **kind).requires_grad_()
    opcheck(traced_extremum._pick, (*edges, kept, values, on_edges))
    opcheck(traced_extremum._put, (*edges, kept, grad, on_edges, num_parts))
    for found, expected, leaf in (
        (
            TRACED.pick(edges, kept, values, on_edges),
            winners.pick(struct, kept, values, on_edges),
            values,
        ),
        (
            TRACED.put(edges, kept, grad, on_edges, num_parts),
            winners.put(struct, kept, grad, on_edges, num_parts),
            grad,
        ),
    ):
        same(found, expected)
        same(gradients(found, leaf), gradients(expected, leaf))


@on_either
def test_moves_have_second_derivatives(on_edges, device):
    struct = on(device, random_graph(9, 40, seed=3))
    kept, edges = winners_of(struct, 4), edge_tensors(struct)
    kind = {"dtype": torch.float64, "device": device}
    num_rows = struct.num_edges if on_edges else struct.num_src
    values = draw(num_rows, 4, seed=1, **kind).requires_grad_()
    grad = draw(struct.num_dst, 4, seed=2, **kind).requires_grad_()
    for run, leaf in (
        (lambda x: TRACED.pick(edges, kept, x, on_edges).square(), values),
        (lambda x: TRACED.put(edges, kept, x, on_edges, 4).square(), grad),
    ):
        assert torch.autograd.gradcheck(run, leaf)
        assert torch.autograd.gradgradcheck(run, leaf)


@pytest.mark.parametrize("message", ["add", "mul"])
def test_messages_have_second_derivatives(message, device):
    struct = on(device, random_graph(9, 40, seed=3))
    leaves = operands(struct, 2)

    def run(feat, numbers):
        return traced_extremum.extremum(struct, message, "max", feat, numbers, False).square()

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


def test_the_op_asks_for_it_while_tracing(device, monkeypatch):
    """As plain torch on the CPU, by one op on CUDA."""
    module = importlib.import_module("dgl_flash.ops.extremum")
    struct = on(device, small_zoo()["permuted_edges"](torch.int64))
    feat, numbers = operands(struct, 2)
    call = (struct, "mul", "min", feat, numbers, False)
    expected = eager(*call)
    asked = []
    real = traced_extremum.extremum

    def asks(*arguments):
        asked.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(module, "is_tracing", lambda: True)
    monkeypatch.setattr(traced_extremum, "extremum", asks)
    found = eager(*call)
    assert len(asked) == (device.type == "cuda")
    same(found, expected)
    same(gradients(found, feat, numbers), gradients(expected, feat, numbers))


# A model in small: a maximum of rows, a minimum of products, a maximum of edges.
def model(graph, feat, numbers, rows):
    most = ops.copy_u_max(graph, feat)
    least = ops.u_mul_e_min(graph, feat, numbers)
    return most * least + ops.copy_e_max(graph, rows)


def leaves_of(struct, num_edges):
    kind = {"dtype": torch.float64, "device": struct.device}
    return [
        draw(*shape, seed=seed, **kind).requires_grad_()
        for seed, shape in enumerate(
            ((struct.num_src, 2, 3), (num_edges, 2, 1), (num_edges, 2, 3)), start=1
        )
    ]


def test_a_compiled_model_is_one_graph(device):
    """Of graphs of several sizes too, for which the compiler makes numbers symbolic."""
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    for num_edges in (40, 90, 300, 700):
        struct = structure(random_graph(9, num_edges, seed=num_edges), device)
        leaves = leaves_of(struct, num_edges)
        expected = model(struct, *leaves)
        found = compiled(struct, *leaves)
        same(found, expected)
        same(gradients(found, *leaves), gradients(expected, *leaves))


@pytest.mark.parametrize("degree_is_known", [False, True])
def test_a_compiled_op_is_one_graph(degree_is_known, device):
    """The op itself, on the CPU too, where a model takes plain torch instead."""
    torch._dynamo.reset()

    def run(struct, feat, numbers):
        return traced_extremum.extremum(struct, "mul", "max", feat, numbers, False)

    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    for num_edges in (40, 90, 300, 3000, 70_000):
        struct = structure(random_graph(9, num_edges, seed=num_edges), device)
        if degree_is_known:
            assert struct.in_adj.max_degree < num_edges
        else:
            struct.in_adj._facts = None
        leaves = operands(struct, 2)
        found = compiled(struct, *leaves)  # first: the kernel asks for the longest row
        expected = run(struct, *leaves)
        same(found, expected)
        same(gradients(found, *leaves), gradients(expected, *leaves))


@every_reducer
def test_without_gradients(reduce_op, device):
    torch._dynamo.reset()
    struct = structure(small_zoo()["permuted_edges"](torch.int64), device)
    feat, _ = operands(struct, 0)
    function = getattr(ops, f"copy_u_{reduce_op}")
    with torch.no_grad():
        found = torch.compile(function, backend="aot_eager", fullgraph=True)(struct, feat)
        same(found, function(struct, feat))
