"""Winners: what is kept of them, ties, NaN and hubs; the moves to and from what they have won."""

from __future__ import annotations

import dgl
import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.kernels.memory import poisoned_outputs
from dgl_flash.ops.broadcast import as_weight
from dgl_flash.ops.extremum import run_forward
from dgl_flash.ops.winners import pick, pick_forward, put, put_forward
from dgl_flash.structure.places import SHORT_ROW, bytes_of_place, places_in_rows
from tests.graphs import random_graph, zoo
from tests.ops.common import (
    EDGE_ULPS,
    LAYOUT_GRAPHS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_half,
    every_layout,
    every_shape,
    every_tail,
    on,
    only_cuda,
    skewed_graph,
)

every_reducer = pytest.mark.parametrize("reduce_op", ["max", "min"])
KINDS = {"scalar": (1,), "head": None, "element": None}


def star(degree, leaves=3):
    """One row of ``degree`` edges among short ones, edge ids in no order."""
    src = torch.arange(degree + 2 * leaves) % (degree + 5)
    dst = torch.cat([torch.full((degree,), 1), torch.arange(leaves).repeat(2) + 2])
    order = torch.randperm(src.numel(), generator=torch.Generator().manual_seed(1))
    return dgl.graph((src[order], dst[order]), num_nodes=degree + 5)


def steps(*shape, values=4, seed=0, dtype=torch.float32, device="cpu"):
    """Few values, hence ties in most rows."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, values, shape, generator=generator).to(dtype).to(device)


def test_bytes_of_place():
    assert [bytes_of_place(n) for n in (0, 1, 255, 256, 65_535, 65_536)] == [1, 1, 1, 2, 2, 3]
    assert bytes_of_place(2**24 - 1) == 3
    assert bytes_of_place(2**24) == 4


@every_graph
def test_places_in_rows(name, device):
    struct = on(device, zoo()[name](torch.int64))
    for one in (struct, struct.reverse()):
        rows, places = one.in_adj, one.out_places()
        position = torch.arange(rows.num_edges, device=device)
        eids = rows.eids.long() if rows.eids is not None else position
        expected = torch.empty_like(position)
        owner = rows.rows().long()
        place = position - rows.indptr.long()[owner]
        is_long = rows.degrees().long()[owner] > SHORT_ROW
        expected[eids] = torch.where(is_long, ~place, place)
        other = one.out_adj
        ids = other.eids.long() if other.eids is not None else position
        assert places.dtype == rows.index_dtype
        assert torch.equal(places.long(), expected[ids])
        assert torch.equal(places, places_in_rows(rows, other))


def operands(graph, kind, heads, width, dtype, device, draw=draw):
    """Rows, and numbers of edges of a kind as the ops take them."""
    shapes = {"scalar": (1, 1), "head": (heads, 1), "element": (heads, width)}
    made = {"lhs": draw(graph.num_src_nodes(), heads, width, dtype=dtype, device=device, seed=1)}
    if kind in shapes:
        edges = draw(graph.num_edges(), *shapes[kind], dtype=dtype, device=device, seed=2)
        made["rhs"] = edges
    if kind == "edges":
        made = {"rhs": draw(graph.num_edges(), heads, width, dtype=dtype, device=device, seed=2)}
    return made


OPS = {"none": ("copy_lhs",), "edges": ("copy_rhs",)}
every_kind = pytest.mark.parametrize("kind", ["none", "edges", "scalar", "head", "element"])


def check(graph, device, kind, op, reduce_op, given):
    def run(gspmm):
        return lambda g, lhs=None, rhs=None: gspmm(g, op, reduce_op, lhs, rhs)

    dtype = next(iter(given.values())).dtype
    ulps = {"grad_rhs": EDGE_ULPS[dtype]} if kind in ("scalar", "head") else None
    check_twins(run(ops.gspmm), run(reference.gspmm), graph, device, ulps=ulps, **given)


@every_shape
@every_kind
def test_every_shape(num_heads, head_dim, dtype, kind, device):
    graph = skewed_graph()
    given = operands(graph, kind, num_heads, head_dim, dtype, device)
    for op in OPS.get(kind, ("add", "mul")):
        check(graph, device, kind, op, "max" if num_heads % 2 else "min", given)


@only_cuda
@every_layout
@every_tail
@every_dtype
def test_every_layout(rows, num_heads, head_dim, dtype, device):
    graph = LAYOUT_GRAPHS[rows]()
    for kind, op in (("none", "copy_lhs"), ("head", "mul")):
        given = operands(graph, kind, num_heads, head_dim, dtype, device)
        for reduce_op in ("max", "min"):
            check(graph, device, kind, op, reduce_op, given)


def both(function, leaves):
    out = function(*leaves)
    grad = steps(*out.shape, values=7, seed=5, device=out.device).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, leaves, grad)]


@every_reducer
@every_kind
@pytest.mark.parametrize("degree", [5, 254, 255, 256, 257, 600, 3000])
def test_the_first_of_equal_messages_wins(degree, kind, reduce_op, device):
    """Whole numbers: every sum is exact, hence equal and not just close."""
    graph = star(degree)
    given = operands(graph, kind, 2, 5, torch.float32, torch.device("cpu"), draw=steps)
    for op in OPS.get(kind, ("add", "sub", "mul")):
        expected, found = (
            both(
                lambda *sides, f=f, g=g, op=op: f(g, op, reduce_op, *_sides(kind, sides)),
                [value.to(where).requires_grad_() for value in given.values()],
            )
            for f, g, where in (
                (reference.gspmm, on(torch.device("cpu"), graph), "cpu"),
                (ops.gspmm, graph, device),
            )
        )
        for mine, wanted in zip(found, expected, strict=True):
            assert torch.equal(mine.cpu(), wanted)


def _sides(kind, values):
    return {"none": (*values, None), "edges": (None, *values)}.get(kind, values)


@every_half
@every_reducer
@pytest.mark.parametrize("width", [1, 6, 8, 40, 256])
def test_ties_in_16_bits(width, dtype, reduce_op, device):
    graph = star(700)
    feat = steps(graph.num_nodes(), width, values=9, seed=3)
    results = [
        both(
            lambda x, g=g, f=f: f(g, "copy_lhs", reduce_op, x, None),
            [feat.to(where, dtype).requires_grad_()],
        )
        for f, g, where in (
            (reference.gspmm, on(torch.device("cpu"), graph), "cpu"),
            (ops.gspmm, graph, device),
        )
    ]
    for mine, wanted in zip(results[1], results[0], strict=True):
        assert torch.equal(mine.cpu(), wanted)


@every_dtype
@every_reducer
@pytest.mark.parametrize("width", [3, 8, 64])
def test_nan_and_infinities(width, dtype, reduce_op, device):
    """NaN is passed over, infinite results are 0 and pass no gradient."""
    graph = random_graph(60, 400, seed=2)
    feat = steps(60, width, values=5, seed=4)
    special = steps(60, width, values=6, seed=6)
    for value, number in enumerate((float("nan"), float("inf"), -float("inf")), start=1):
        feat[special == value] = number
    results = [
        both(
            lambda x, g=g, f=f: f(g, "copy_lhs", reduce_op, x, None),
            [feat.to(where, dtype).requires_grad_()],
        )
        for f, g, where in (
            (reference.gspmm, on(torch.device("cpu"), graph), "cpu"),
            (ops.gspmm, graph, device),
        )
    ]
    for mine, wanted in zip(results[1], results[0], strict=True):
        assert torch.equal(mine.cpu(), wanted)
        assert mine.isfinite().all()


@every_reducer
def test_a_quotient_by_zero_passes_nothing_back(reduce_op, device):
    graph = dgl.graph(([0, 1, 2, 0], [0, 0, 0, 1]), num_nodes=3)
    lhs = torch.tensor([0.0, 3.0, -2.0], device=device, requires_grad=True)
    rhs = torch.tensor([0.0, 2.0, 4.0, 0.0], device=device, requires_grad=True)
    out = ops.gspmm(graph, "div", reduce_op, lhs, rhs)
    grads = torch.autograd.grad(out.sum(), (lhs, rhs))
    assert out.tolist() == ([1.5, 0, 0] if reduce_op == "max" else [-0.5, 0, 0])
    assert all(grad.isfinite().all() for grad in grads)
    assert grads[1][0] == grads[1][3] == 0


@only_cuda
@pytest.mark.parametrize("on_edges", [False, True])
@pytest.mark.parametrize("degree", [40, 300, 70_000])
def test_what_is_kept_of_winners(degree, on_edges, device):
    """As many bytes as the longest row asks for, and the same ones as plain torch finds."""
    graph = star(degree)
    struct = on(device, graph)
    num_rows = struct.num_edges if on_edges else struct.num_src
    feat = steps(num_rows, 6, values=50, seed=2, device=device)
    num_bytes = bytes_of_place(struct.in_adj.max_degree)
    out, winners = run_forward(struct, "copy", "max", feat, None, on_edges, num_bytes)
    sides = (None, feat) if on_edges else (feat, None)
    op = "copy_rhs" if on_edges else "copy_lhs"
    expected = reference.extremum(struct, op, "max", *sides, num_bytes)
    assert winners.shape[0] == {40: 1, 300: 2, 70_000: 3}[degree]
    assert torch.equal(out, expected[0])
    assert torch.equal(winners, expected[1])


def won(struct, width, num_bytes=None):
    feat = steps(struct.num_src, width, values=50, seed=2, device=struct.device)
    num_bytes = num_bytes or bytes_of_place(struct.in_adj.max_degree)
    return reference.extremum(struct, "copy_lhs", "max", feat, None, num_bytes)[1]


@every_graph
@pytest.mark.parametrize("on_edges", [False, True])
@pytest.mark.parametrize("num_parts", [1, 3, 12])
def test_moves_equal_the_reference(name, on_edges, num_parts, device):
    struct = on(device, zoo()[name](torch.int64))
    winners = won(struct, 12)
    if not on_edges and num_parts != 12:
        return  # sources have whole rows
    num_rows = struct.num_edges if on_edges else struct.num_src
    values = steps(num_rows, num_parts, seed=3, device=device)
    grad = steps(struct.num_dst, 12, seed=4, device=device)
    with poisoned_outputs():
        picked = pick_forward(struct, winners, values, on_edges)
        given = put_forward(struct, winners, grad, on_edges, num_parts)
    assert torch.equal(picked, reference.pick_won(struct, winners, values, on_edges))
    assert torch.equal(given, reference.put_won(struct, winners, grad, on_edges, num_parts))
    # Each is the transpose of the other.
    torch.testing.assert_close((picked * grad).sum(), (given * values).sum())


def test_more_bytes_than_needed_are_understood(device):
    struct = on(device, star(300))
    grad = steps(struct.num_dst, 6, seed=4, device=device)
    values = steps(struct.num_src, 6, seed=3, device=device)
    few, many = won(struct, 6), won(struct, 6, num_bytes=4)
    assert torch.equal(
        put_forward(struct, few, grad, False, 6), put_forward(struct, many, grad, False, 6)
    )
    assert torch.equal(
        pick_forward(struct, few, values, False), pick_forward(struct, many, values, False)
    )


@pytest.mark.parametrize("on_edges", [False, True])
def test_moves_have_derivatives_of_any_order(on_edges, device):
    struct = on(device, random_graph(9, 40, seed=3))
    winners = won(struct, 4)
    kind = {"dtype": torch.float64, "device": device}
    num_rows = struct.num_edges if on_edges else struct.num_src
    values = draw(num_rows, 4, seed=1, **kind).requires_grad_()
    grad = draw(struct.num_dst, 4, seed=2, **kind).requires_grad_()
    for function, leaf in (
        (lambda x: pick(struct, winners, x, on_edges), values),
        (lambda x: put(struct, winners, x, on_edges, 4), grad),
    ):
        assert torch.autograd.gradcheck(function, leaf)
        assert torch.autograd.gradgradcheck(function, leaf)


def test_as_weight_spells_out_what_repeats_otherwise():
    values = torch.arange(6.0).reshape(2, 1, 3)
    assert as_weight(values, (2, 3)).shape == (2, 6)


@only_cuda
def test_a_hub_is_no_cliff(device):
    """400,000 neighbours in one row among rows of 2: cut, merged, and right."""
    hub = torch.randint(0, 1000, (400_000,), generator=torch.Generator().manual_seed(0))
    rest = torch.arange(1, 50_000).repeat(2)
    dst = torch.cat([torch.zeros(400_000, dtype=torch.int64), rest])
    graph = dgl.graph((torch.cat([hub, rest % 1000]), dst), num_nodes=50_000)
    feat = draw(50_000, 32, dtype=torch.float32, device=device, seed=1).requires_grad_()
    out = ops.copy_u_max(graph, feat)
    (grad,) = torch.autograd.grad(out.sum(), feat)
    struct = on(device, graph)
    again = feat.detach().clone().requires_grad_()
    expected = reference.gspmm(struct, "copy_lhs", "max", again, None)
    assert torch.equal(out, expected)
    torch.testing.assert_close(grad, torch.autograd.grad(expected.sum(), again)[0])
    assert float(grad.sum()) == int((out != 0).sum())


@every_reducer
def test_two_runs_agree_bitwise(reduce_op, device):
    graph = skewed_graph()
    runs = []
    for _ in range(2):
        feat = draw(300, 40, dtype=torch.float32, device=device, seed=1).requires_grad_()
        weight = draw(2500, 1, dtype=torch.float32, device=device, seed=2).requires_grad_()
        out = ops.gspmm(graph, "mul", reduce_op, feat, weight)
        runs.append([out, *torch.autograd.grad(out.square().sum(), (feat, weight))])
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)


@only_cuda
@pytest.mark.parametrize("degree", [4, 100])
def test_memory_of_a_copy(degree, device):
    """A byte a number is kept; where rows are long, the gradient lists what each edge has won."""
    num_edges = 2000 * degree
    graph = random_graph(2000, num_edges, seed=1)
    feat = draw(2000, 64, dtype=torch.float32, device=device, seed=1).requires_grad_()
    grad = torch.ones_like(feat)

    def step():
        return torch.autograd.grad(ops.copy_u_max(graph, feat), feat, grad)

    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    taken = torch.cuda.max_memory_allocated() - before
    numbers = 2000 * 64
    lists = 8 * numbers + 4 * num_edges if degree > 10 else 0
    assert taken < 1.1 * (9 * numbers + lists) + 2**17  # result, gradient and winners
