"""Values on edges from two of source, destination and edge, as in ``dgl.ops``."""

from __future__ import annotations

import inspect
import itertools

import dgl_flash  # noqa: F401

# isort: split
import dgl
import dgl.ops as theirs
import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import zoo
from tests.nn.common import for_dgl, raised
from tests.numerics import outputs_and_grads
from tests.ops.common import (
    EDGE_ULPS,
    check_twins,
    draw,
    every_half,
    every_kind_of_row,
    skewed_graph,
    small_graph_of,
)
from tests.ops.test_gspmm import SHAPES, away_from_zero, some_graphs

OPS = ("add", "sub", "mul", "div", "dot", "copy_lhs", "copy_rhs")
every_op = pytest.mark.parametrize("op", OPS)
every_pair = pytest.mark.parametrize(
    "targets", list(itertools.product("uve", repeat=2)), ids="".join
)
every_two = pytest.mark.parametrize("targets", list(itertools.permutations("uve", 2)), ids="".join)


def operands(graph, op, shapes, targets, dtype, device):
    sizes = {"u": graph.num_src_nodes(), "v": graph.num_dst_nodes(), "e": graph.num_edges()}
    kind = {"dtype": dtype, "device": device}
    given = {}
    if op != "copy_rhs":
        given["x"] = draw(sizes[targets[0]], *shapes[0], seed=1, **kind)
    if op != "copy_lhs":
        given["y"] = away_from_zero(draw(sizes[targets[1]], *shapes[1], seed=2, **kind))
    return given


def fits(op, shapes):
    """A dot product needs last dimensions alike."""
    return op != "dot" or shapes[0][-1:] == shapes[1][-1:]


@every_op
@every_pair
@some_graphs
def test_as_dgl(name, targets, op, device):
    graph = zoo()[name](torch.int64)
    for shapes in (shapes for shapes in SHAPES if fits(op, shapes)):
        given = operands(graph, op, shapes, targets, torch.float64, torch.device("cpu"))
        results = []
        for gsddmm, seen, where in (
            (theirs.gsddmm, for_dgl(graph), "cpu"),
            (ops.gsddmm, graph, device),
        ):

            def function(x=None, y=None, gsddmm=gsddmm, seen=seen):
                return gsddmm(seen, op, x, y, *targets)

            moved = {key: value.to(where) for key, value in given.items()}
            results.append(outputs_and_grads(function, moved))
        expected, found = results
        for key, value in expected.items():
            torch.testing.assert_close(found[key].cpu(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "dot", "copy_lhs"])
@every_two
@pytest.mark.parametrize(
    "shapes", [((2, 32), (2, 32)), ((7,), (7,)), ((2, 8), (1, 8)), ((3, 4), (3, 1))], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_as_exact_as_torch(shapes, targets, op, dtype, device):
    if not fits(op, shapes):
        shapes = (shapes[0], shapes[0])
    graph = skewed_graph()
    given = operands(graph, op, shapes, targets, dtype, device)
    check_twins(
        lambda g, x=None, y=None: ops.gsddmm(g, op, x, y, *targets),
        lambda s, x=None, y=None: reference.gsddmm(s, op, x, y, *targets),
        graph,
        device,
        ulps=dict.fromkeys(("out", "grad_x", "grad_y"), EDGE_ULPS[dtype]),
        **given,
    )


@pytest.mark.parametrize("name", ["empty", "no_nodes", "hub", "power_law"])
@pytest.mark.parametrize("targets", ["uv", "ev", "ue"])
@pytest.mark.parametrize("op", ["dot", "add", "mul"])
def test_extreme_graphs(name, targets, op, device):
    graph = zoo()[name](torch.int32)
    given = operands(graph, op, ((8,), (8,)), targets, torch.float32, device)
    check_twins(
        lambda g, x, y: ops.gsddmm(g, op, x, y, *targets),
        lambda s, x, y: reference.gsddmm(s, op, x, y, *targets),
        graph,
        device,
        ulps=dict.fromkeys(("out", "grad_x", "grad_y"), EDGE_ULPS[torch.float32]),
        **given,
    )


@every_half
@every_kind_of_row
@pytest.mark.parametrize("targets", ["uv", "ev", "ue"])
@pytest.mark.parametrize("op", ["dot", "add", "mul"])
def test_every_kind_of_row_in_16_bits(name, targets, op, dtype, device):
    graph = zoo()[name](torch.int64)
    given = operands(graph, op, ((7,), (7,)), targets, dtype, device)
    check_twins(
        lambda g, x, y: ops.gsddmm(g, op, x, y, *targets),
        lambda s, x, y: reference.gsddmm(s, op, x, y, *targets),
        graph,
        device,
        ulps=dict.fromkeys(("out", "grad_x", "grad_y"), EDGE_ULPS[dtype]),
        **given,
    )


@pytest.mark.parametrize("op", ["add", "mul", "div", "dot", "copy_lhs"])
@every_two
@pytest.mark.parametrize("shapes", [((2, 2), (2, 1)), ((3,), (3,)), ((2, 1), (1, 2))], ids=str)
def test_gradients_of_gradients(shapes, targets, op, device):
    if not fits(op, shapes):
        shapes = (shapes[0], (1, *shapes[0][1:]))
    graph = small_graph_of(5, 11)
    given = operands(graph, op, shapes, targets, torch.float64, device)
    leaves = [value.requires_grad_() for value in given.values()]

    def run(*values):
        named = dict(zip(given, values, strict=True))
        return ops.gsddmm(graph, op, named.get("x"), named.get("y"), *targets)

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize(
    "name",
    [
        "copy_u",
        "copy_v",
        "copy_e",
        *(f"{a}_{op}_{b}" for a, b in itertools.permutations("uve", 2) for op in OPS[:5]),
    ],
)
def test_generated_functions(name, device):
    graph = zoo()["regular"](torch.int64)
    mine, other = getattr(ops, name), getattr(theirs, name)
    assert mine.__name__ == mine.__qualname__ == name
    assert list(inspect.signature(mine).parameters) == list(inspect.signature(other).parameters)
    assert "Parameters" in mine.__doc__
    sizes = {"u": 10, "v": 10, "e": 30}
    ends = [part for part in name.split("_") if part in sizes]
    given = [
        away_from_zero(draw(sizes[end], 3, seed=i, dtype=torch.float64, device="cpu"))
        for i, end in enumerate(ends)
    ]
    out = mine(graph, *(value.to(device) for value in given))
    torch.testing.assert_close(out.cpu(), other(graph, *given))


@pytest.mark.parametrize(
    ("op", "shapes"),
    [("dot", ((5,), (1,))), ("dot", ((1,), (5,))), ("add", ((2, 3), (2,)))],
    ids=str,
)
def test_errors_are_those_of_dgl(op, shapes):
    graph = zoo()["regular"](torch.int64)
    sides = [torch.ones(10, *shape) for shape in shapes]
    mine = raised(lambda: ops.gsddmm(graph, op, *sides))
    other = raised(lambda: theirs.gsddmm(graph, op, *sides))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("foo", "x", "x"), dgl.DGLError, "binary operator: foo"),
        (("add", "x", "x", "w", "v"), ValueError, "`lhs_target` to be one of"),
        (("add", "x", None), TypeError, "`rhs_data` to be a torch.Tensor"),
        (("add", "short", "x"), dgl.DGLError, r"\(N_src, \*\) = \(10, \*\)"),
        (("add", "x", "x", "u", "e"), dgl.DGLError, r"\(E, \*\) = \(30, \*\)"),
        (("add", "x", "wide"), dgl.DGLError, "doesn't match"),
    ],
    ids=str,
)
def test_readable_errors(arguments, error, text, device):
    graph = zoo()["regular"](torch.int64)
    values = {
        "x": torch.ones(10, 2, device=device),
        "short": torch.ones(9, 2, device=device),
        "wide": torch.ones(10, 2, device=device, dtype=torch.float64),
    }
    op, *rest = arguments
    with pytest.raises(error, match=text):
        ops.gsddmm(graph, op, *(values.get(side, side) for side in rest))


def test_two_runs_agree_bitwise(device):
    graph = skewed_graph()
    x = draw(300, 3, 20, dtype=torch.float32, device=device, seed=1)
    y = draw(2500, 3, 1, dtype=torch.float32, device=device, seed=2)
    runs = []
    for _ in range(2):
        leaves = [x.clone().requires_grad_(), y.clone().requires_grad_()]
        out = ops.u_mul_e(graph, *leaves)
        out.square().sum().backward()
        runs.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)
