"""Maxima and minima on the CPU against the reference: values, winners and derivatives.

All is done at once in small graphs, and step by step in others: here both in the same graphs.
"""

from __future__ import annotations

import dgl
import pytest
import torch
import torch.nn.functional as F

import dgl_flash.ops as ops
from dgl_flash import cpu, reference
from dgl_flash.cpu import chunks, fold, jagged
from dgl_flash.structure import structure
from tests.graphs import zoo

GRAPHS = zoo()
OPS = ("copy_lhs", "copy_rhs", "add", "sub", "mul", "div")
SHAPES = {
    "plain": ((5,), (5,)),
    "heads": ((2, 3), (2, 1)),
    "wide": ((1,), (2, 4)),
    "flat": ((), ()),
}
every_reducer = pytest.mark.parametrize("reduce_op", ["max", "min"])
every_op = pytest.mark.parametrize("op", OPS)


@pytest.fixture(params=["at once", "step by step", "in pieces"])
def way(request, monkeypatch):
    """The last with few rows in a block and few edges in a piece of a row."""
    if request.param != "at once":
        monkeypatch.setattr(fold, "SMALL", 0)
    if request.param == "in pieces":
        monkeypatch.setattr(fold, "STEP_BYTES", 1 << 12)
        monkeypatch.setattr(jagged, "PIECE", 3)
        monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 12)


def operands(graph, shapes, dtype, seed=0):
    """Few values, hence ties in most rows."""
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(1, 4, (size, *shape), generator=generator).to(dtype).requires_grad_()
        for size, shape in zip((graph.num_src_nodes(), graph.num_edges()), shapes, strict=True)
    ]


def run(function, graph, op, reduce_op, lhs, rhs):
    """Result, and a gradient for each operand that is read."""
    lhs, rhs = (None if op == "copy_rhs" else lhs), (None if op == "copy_lhs" else rhs)
    out = function(graph, op, reduce_op, lhs, rhs)
    grad = torch.arange(out.numel()).reshape(out.shape).to(out.dtype)
    read = [side for side in (lhs, rhs) if side is not None]
    return [out.detach(), *torch.autograd.grad(out, read, grad)]


@every_reducer
@every_op
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.usefixtures("way")
def test_equals_the_reference_with_ties(name, shapes, op, reduce_op):
    graph = GRAPHS[name](torch.int64)
    given = operands(graph, SHAPES[shapes], torch.float64)
    found = run(ops.gspmm, graph, op, reduce_op, *given)
    expected = run(reference.gspmm, structure(graph), op, reduce_op, *given)
    for mine, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, wanted)


@every_reducer
@every_op
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.usefixtures("way")
def test_every_dtype(dtype, op, reduce_op):
    graph = GRAPHS["regular"](torch.int32)
    given = operands(graph, ((4,), (4,)), dtype)
    found = run(ops.gspmm, graph, op, reduce_op, *given)
    expected = run(reference.gspmm, structure(graph), op, reduce_op, *given)
    for mine, wanted in zip(found, expected, strict=True):
        assert mine.dtype == dtype
        torch.testing.assert_close(mine, wanted)


@every_reducer
@every_op
@pytest.mark.usefixtures("way")
def test_infinities_and_nan_neither_win_nor_pass_gradients(op, reduce_op):
    """Rows of both, of one kind only, and with quotients by 0."""
    graph = dgl.graph(([0, 1, 2, 3, 4, 2, 3, 3, 5, 0], [0, 0, 0, 0, 1, 2, 2, 3, 4, 4]))
    nan, inf = float("nan"), float("inf")
    lhs = torch.tensor([1.0, nan, inf, -inf, nan, 2.0]).requires_grad_()
    rhs = torch.tensor([2.0, 1, nan, -1, inf, 1, nan, -inf, 0, 0]).requires_grad_()
    found = run(ops.gspmm, graph, op, reduce_op, lhs, rhs)
    expected = run(reference.gspmm, structure(graph), op, reduce_op, lhs, rhs)
    assert torch.equal(found[0], expected[0])
    for mine, wanted in zip(found[1:], expected[1:], strict=True):
        is_number = ~wanted.isnan()  # the reference differentiates every message, also x / 0
        assert torch.equal(mine[is_number], wanted[is_number])
        assert not mine.isnan().any()


@every_reducer
@every_op
@pytest.mark.usefixtures("way")
def test_second_derivatives(op, reduce_op):
    graph = GRAPHS["regular"](torch.int64)
    generator = torch.Generator().manual_seed(3)
    sizes = (graph.num_nodes(), graph.num_edges())
    given = [
        torch.rand(size, 2, generator=generator, dtype=torch.float64).add_(0.5).requires_grad_()
        for size in sizes
    ]

    def function(lhs, rhs):
        left, right = (None if op == "copy_rhs" else lhs), (None if op == "copy_lhs" else rhs)
        return ops.gspmm(graph, op, reduce_op, left, right).square()

    read = [i for i, copy in enumerate(("copy_rhs", "copy_lhs")) if op != copy]

    def of_read(*values):
        both = list(given)
        for i, value in zip(read, values, strict=True):
            both[i] = value
        return function(*both)

    values = [given[i] for i in read]
    assert torch.autograd.gradcheck(of_read, values)
    assert torch.autograd.gradgradcheck(of_read, values)


@every_op
@pytest.mark.usefixtures("way")
def test_the_same_without_gradients_and_to_be_written_over(op):
    graph = GRAPHS["regular"](torch.int64)
    given = operands(graph, ((2, 3), (2, 3)), torch.float32)
    expected, *_ = run(ops.gspmm, graph, op, "max", *given)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            sides = (None if op == "copy_rhs" else given[0], None if op == "copy_lhs" else given[1])
            out = ops.gspmm(graph, op, "max", *sides)
        assert torch.equal(out, expected)
    with torch.no_grad():
        out = ops.gspmm(graph, op, "max", *sides)
    out.mul_(torch.ones((), requires_grad=True))
    assert out.requires_grad
    out = ops.gspmm(graph, op, "max", *sides)
    assert torch.equal(out.mul_(2), 2 * expected)


@every_op
@pytest.mark.usefixtures("way")
def test_strides_do_not_matter(op):
    graph = GRAPHS["regular"](torch.int64)
    lhs, rhs = (side.detach() for side in operands(graph, ((2, 3), (2, 3)), torch.float64))
    turned = [
        lhs.transpose(1, 2).contiguous().transpose(1, 2).requires_grad_(),
        rhs[:, :, :1].expand(-1, -1, 3).requires_grad_(),
    ]
    plain = [side.detach().contiguous().requires_grad_() for side in turned]
    for mine, wanted in zip(
        run(ops.gspmm, graph, op, "max", *turned),
        run(ops.gspmm, graph, op, "max", *plain),
        strict=True,
    ):
        assert torch.equal(mine, wanted)


@pytest.mark.parametrize("op", ["add", "sub", "mul", "div"])
@pytest.mark.usefixtures("way")
def test_one_operand_of_two_wants_a_gradient(op):
    graph = GRAPHS["regular"](torch.int64)
    given = operands(graph, ((2, 3), (2, 1)), torch.float64)
    _, *expected = run(ops.gspmm, graph, op, "max", *given)
    for which, wanted in enumerate(expected):
        sides = [side.detach().requires_grad_(i == which) for i, side in enumerate(given)]
        out = ops.gspmm(graph, op, "max", *sides)
        grad = torch.arange(out.numel()).reshape(out.shape).to(out.dtype)
        (found,) = torch.autograd.grad(out, sides[which], grad)
        assert torch.equal(found, wanted)


@pytest.mark.usefixtures("way")
def test_one_tensor_on_both_sides():
    """As many nodes as edges."""
    graph = dgl.graph(([0, 1, 2, 3], [1, 1, 3, 3]))
    both = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)

    def function(values):
        return ops.gspmm(graph, "mul", "max", values, values)

    assert torch.autograd.gradcheck(function, both)
    assert torch.autograd.gradgradcheck(function, both)


@pytest.mark.parametrize("limit", [1, 1 << 24])
def test_senders_that_float32_cannot_number(limit, monkeypatch):
    monkeypatch.setattr(fold, "FLOAT32_IDS", limit)
    monkeypatch.setattr(fold, "SMALL", 0)
    graph = GRAPHS["hub"](torch.int64)
    given = operands(graph, ((4,), (4,)), torch.float32)
    found = run(ops.gspmm, graph, "mul", "max", *given)
    expected = run(reference.gspmm, structure(graph), "mul", "max", *given)
    for mine, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, wanted)


def test_steps_by_hand(monkeypatch):
    """Row 0 has edges 0, 3, 5, 6; row 1 has edge 4; row 2 none; row 3 edges 1, 2."""
    monkeypatch.setattr(jagged, "PIECE", 2)
    destinations = [0, 3, 3, 0, 1, 0, 0]
    graph = dgl.graph((torch.arange(7), torch.tensor(destinations)), num_nodes=7)
    steps = jagged.jagged(structure(graph).in_adj)
    assert steps.empty_rows.tolist() == [2, 4, 5, 6]
    assert steps.short.targets.tolist() == [3, 1]
    assert (steps.short.counts, steps.short.begins) == ([2, 1], [0, 2])
    assert steps.short.edges.tolist() == steps.short.sources.tolist() == [1, 4, 2]
    assert steps.long_rows.tolist() == [0]
    assert steps.indptr.tolist() == [0, 2]
    assert steps.pieces.targets.tolist() == [0, 1]
    assert steps.pieces.edges.tolist() == [0, 5, 3, 6]
    assert jagged.jagged(structure(graph).in_adj) is steps


@pytest.mark.usefixtures("way")
def test_copies_keep_nothing_of_the_size_of_the_edges():
    graph, kept = GRAPHS["hub"](torch.int64), []
    feat = torch.rand(graph.num_nodes(), 7, requires_grad=True)

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = ops.copy_u_max(graph, feat)
    assert out.requires_grad
    assert {tensor.layout for tensor in kept} == {torch.strided}
    assert max(tensor.numel() for tensor in kept) == feat.numel()


def test_torch_func_differentiates():
    graph = GRAPHS["regular"](torch.int64)
    (feat, _) = operands(graph, ((3,), (3,)), torch.float64)

    def loss(values):
        return F.softplus(ops.copy_u_max(graph, values)).sum()

    (expected,) = torch.autograd.grad(loss(feat), feat)
    torch.testing.assert_close(torch.func.grad(loss)(feat.detach()), expected)


@every_reducer
def test_extreme_rows_by_hand(reduce_op):
    """Row 0 reads rows 0, 1, 2; row 1 nothing; row 2 only NaN."""
    adj = structure(dgl.graph(([0, 1, 2, 3], [0, 0, 0, 2]), num_nodes=4)).in_adj
    rows = torch.tensor([[1.0, 5.0], [3.0, 5.0], [3.0, 2.0], [float("nan"), 0.0]])
    values, winners = cpu.extreme_rows(adj.indptr, adj.indices, rows, reduce_op, True)
    best = [[3.0, 5.0], [1.0, 2.0]][reduce_op == "min"]
    assert values[0].tolist() == best
    assert winners[0].tolist() == ([1, 0] if reduce_op == "max" else [0, 2])
    assert values[1].tolist() == [0, 0]
    assert winners[1].tolist() == [4, 4]
    assert values[2, 0].isnan()
    assert torch.equal(
        cpu.extreme_rows(adj.indptr, adj.indices, rows, reduce_op, False)[0][:2], values[:2]
    )
