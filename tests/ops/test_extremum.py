"""Maxima and minima on the CPU against the reference: values, winners and derivatives."""

from __future__ import annotations

import dgl
import pytest
import torch
import torch.nn.functional as F

import dgl_flash.ops as ops
from dgl_flash import cpu, reference
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
    values, winners = cpu.extreme_rows(adj, adj.indices, rows, reduce_op, True)
    best = [[3.0, 5.0], [1.0, 2.0]][reduce_op == "min"]
    assert values[0].tolist() == best
    assert winners[0].tolist() == ([1, 0] if reduce_op == "max" else [0, 2])
    assert values[1].tolist() == [0, 0]
    assert winners[1].tolist() == [4, 4]
    assert values[2, 0].isnan()
    assert torch.equal(
        cpu.extreme_rows(adj, adj.indices, rows, reduce_op, False)[0][:2], values[:2]
    )
