"""Several statistics from one pass: values, gradients, hubs, options."""

from __future__ import annotations

import itertools

import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.ops import dispatch
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.reference.statistics import root
from tests.graphs import random_graph, zoo
from tests.ops.common import (
    LAYOUT_GRAPHS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_idtype,
    every_layout,
    every_shape,
    on,
    only_cuda,
    skewed_graph,
)
from tests.ops.test_winners import both, star, steps

ALL = ("sum", "mean", "max", "min", "var", "std")
PNA = ("mean", "max", "min", "std")
on_either = pytest.mark.parametrize("on_edges", [False, True], ids=["sources", "edges"])
SPREADS = {"var", "std"}
# A gradient to one row passes through the root of a spread, which is steep where that is small.
ULPS = {torch.float64: 1e5, torch.float32: 100, torch.float16: 8, torch.bfloat16: 8}

# One source has 1,000 edges: the order of so many terms shows.
HUB_ULPS = {torch.float64: 4000, torch.float32: 8, torch.float16: 4, torch.bfloat16: 4}


def plain(struct, feat, names, on_edges):
    """What torch makes of it: in float64 the truth, else spreads as DGL takes them."""
    if feat.dtype == torch.float64 or not SPREADS & set(names):
        return reference.statistics(struct, feat, names, on_edges)
    rows = feat.to(accumulation_dtype(feat.dtype))

    def reduce(name, values):
        sides = (None, values) if on_edges else (values, None)
        return reference.gspmm(struct, "copy_rhs" if on_edges else "copy_lhs", name, *sides)

    mean = reduce("mean", rows)
    variance = torch.relu(reduce("mean", rows * rows) - mean * mean)
    spreads = {"var": variance, "std": root(variance)}
    return tuple(
        (spreads[name] if name in spreads else reduce(name, rows)).to(feat.dtype) for name in names
    )


def run_both(graph, device, feat, names, on_edges):
    """The kernels take spreads about the mean so far; plain torch as DGL does, see below."""
    if device.type == "cpu":
        names = tuple(name for name in names if name not in SPREADS)
    if not names:
        return
    tolerance = ULPS if SPREADS & set(names) else HUB_ULPS
    check_twins(
        lambda g, feat: ops.statistics(g, feat, names, on_edges=on_edges),
        lambda s, feat: plain(s, feat, names, on_edges),
        graph,
        device,
        ulps={"grad_feat": tolerance[feat.dtype]},
        feat=feat,
    )


@every_dtype
@pytest.mark.parametrize("on_edges", [False, True])
def test_spreads_on_the_cpu(dtype, on_edges):
    """As differences of means of squares, which equal numbers leave with a rounding error."""
    graph = skewed_graph()
    size = graph.num_edges() if on_edges else graph.num_nodes()
    feat = draw(size, 5, dtype=dtype, device=torch.device("cpu"), seed=1).requires_grad_()
    var, std = ops.statistics(graph, feat, ("var", "std"), on_edges=on_edges)
    struct = on(feat.device, graph)
    exact, exact_root = reference.statistics(struct, feat.double(), ("var", "std"), on_edges)
    close = {"atol": 64 * torch.finfo(dtype).eps, "rtol": 64 * torch.finfo(dtype).eps}
    torch.testing.assert_close(var.double(), exact, **close)
    far = exact > 0.01
    torch.testing.assert_close(std.double()[far], exact_root[far], **close)
    (grad,) = torch.autograd.grad(var.sum(), feat)
    (expected,) = torch.autograd.grad(exact.sum(), feat)
    torch.testing.assert_close(grad, expected, atol=200 * close["atol"], rtol=close["rtol"])


def rows_of(graph, device, *shape, dtype=torch.float32, on_edges=False, seed=1):
    size = graph.num_edges() if on_edges else graph.num_src_nodes()
    return draw(size, *shape, dtype=dtype, device=device, seed=seed)


@every_idtype
@every_graph
@on_either
def test_every_graph(name, idtype, on_edges, device):
    graph = zoo()[name](idtype)
    run_both(graph, device, rows_of(graph, device, 12, on_edges=on_edges), PNA, on_edges)


@every_shape
@on_either
def test_every_shape(num_heads, head_dim, dtype, on_edges, device):
    graph = skewed_graph()
    feat = rows_of(graph, device, num_heads, head_dim, dtype=dtype, on_edges=on_edges)
    run_both(graph, device, feat, PNA, on_edges)


@only_cuda
@every_layout
@every_dtype
@pytest.mark.parametrize("width", [7, 64, 100, 256])
def test_every_layout(rows, dtype, width, device):
    graph = LAYOUT_GRAPHS[rows]()
    run_both(graph, device, rows_of(graph, device, width, dtype=dtype), PNA, False)


SOME = [names for size in (1, 2, 6) for names in itertools.combinations(ALL, size)]


@pytest.mark.parametrize("names", SOME, ids="-".join)
def test_every_choice(names, device):
    graph = skewed_graph()
    run_both(graph, device, rows_of(graph, device, 9), names, False)
    on_edges = rows_of(graph, device, 9, on_edges=True)
    run_both(graph, device, on_edges, names, True)


@on_either
@pytest.mark.parametrize("degree", [3, 255, 256, 3000])
def test_extremes_are_those_of_gspmm(degree, on_edges, device):
    graph = star(degree)
    size = graph.num_edges() if on_edges else graph.num_nodes()
    feat = steps(size, 6, values=5, seed=2, device=device)
    op = "copy_rhs" if on_edges else "copy_lhs"
    for nth, name in ((0, "max"), (2, "min")):
        found = both(
            lambda x, n=nth: ops.statistics(graph, x, ("max", "mean", "min"), on_edges=on_edges)[n],
            [feat.clone().requires_grad_()],
        )
        expected = both(
            lambda x, n=name: ops.gspmm(graph, op, n, *((None, x) if on_edges else (x, None))),
            [feat.clone().requires_grad_()],
        )
        for mine, wanted in zip(found, expected, strict=True):
            assert torch.equal(mine, wanted)


@every_dtype
@every_layout
def test_an_edge_may_win_both(rows, dtype, device):
    """Of equal values the first is the largest and the smallest, and of few values many are."""
    graph = LAYOUT_GRAPHS[rows]()
    for values in (1, 2):
        feat = steps(graph.num_nodes(), 40, values=values, seed=3, dtype=dtype, device=device)
        run_both(graph, device, feat, ("max", "min"), False)
        run_both(graph, device, feat, ("max", "mean", "min"), False)


def test_equal_rows_have_no_spread_and_pass_nothing_back(device):
    graph = skewed_graph()
    feat = torch.full((300, 5), 0.1, device=device, requires_grad=True)
    var, std = ops.statistics(graph, feat, ("var", "std"))
    (grad,) = torch.autograd.grad(std.sum(), feat)
    assert grad.isfinite().all()
    if device.type == "cuda":
        assert not var.any()
        assert not std.any()
        assert not grad.any()


@only_cuda
def test_a_large_mean_costs_no_digits(device):
    graph = skewed_graph()
    feat = draw(300, 16, dtype=torch.float64, device=device, seed=1) + 3000
    exact = ops.statistics(graph, feat, ("std",))[0]
    found = ops.statistics(graph, feat.float(), ("std",))[0]
    torch.testing.assert_close(found.double(), exact, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("names", [PNA, ("sum", "var")], ids="-".join)
def test_gradcheck_to_second_order(names, device):
    graph = random_graph(8, 30, seed=3)
    feat = draw(8, 3, dtype=torch.float64, device=device, seed=1).requires_grad_()

    def run(x):
        return ops.statistics(graph, x, names)

    assert torch.autograd.gradcheck(run, feat)
    assert torch.autograd.gradgradcheck(run, feat)


def test_two_runs_agree_bitwise(device):
    graph = skewed_graph()
    runs = []
    for _ in range(2):
        feat = rows_of(graph, device, 40).requires_grad_()
        found = ops.statistics(graph, feat, PNA)
        (grad,) = torch.autograd.grad(sum(x.square().sum() for x in found), feat)
        runs.append([*found, grad])
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)


def test_what_is_not_used_costs_nothing_and_may_be_written_over(device):
    graph = skewed_graph()
    feat = rows_of(graph, device, 4, 5).requires_grad_()
    mean, most, *_ = ops.statistics(graph, feat, PNA)
    assert mean.shape == (300, 4, 5)
    (grad,) = torch.autograd.grad(most.sum(), feat)
    (expected,) = torch.autograd.grad(ops.copy_u_max(graph, feat).sum(), feat)
    assert torch.equal(grad, expected)
    with torch.no_grad():
        mean, *_ = ops.statistics(graph, feat, PNA)
    mean.mul_(torch.ones((), device=device, requires_grad=True))
    assert mean.requires_grad


def test_one_launch_for_all(device):
    graph = skewed_graph()
    feat = rows_of(graph, device, 16)
    with dispatch.record() as choices:
        ops.statistics(graph, feat, PNA)
    if device.type == "cuda":
        assert [choice.kernels for choice in choices] == [("statistics",)]
    assert choices[0].op == "statistics"


@pytest.mark.parametrize(
    ("feat", "names", "on_edges", "error", "text"),
    [
        (torch.zeros(5, 3), ("mean",), False, ValueError, r"\(N_src, \*\) = \(300, \*\)"),
        (torch.zeros(5, 3), ("mean",), True, ValueError, r"\(E, \*\) = \(2500, \*\)"),
        (torch.zeros(300, 3), ("median",), False, ValueError, "different ones of"),
        (torch.zeros(300, 3), ("max", "max"), False, ValueError, "different ones of"),
        (torch.zeros(300, 3, dtype=torch.int64), ("max",), False, TypeError, "float"),
    ],
)
def test_spoiled_arguments(feat, names, on_edges, error, text):
    with pytest.raises(error, match=text):
        ops.statistics(skewed_graph(), feat, names, on_edges=on_edges)


def test_nothing_asked_for_and_nothing_there(device):
    graph = skewed_graph()
    assert ops.statistics(graph, rows_of(graph, device, 3), ()) == ()
    found = ops.statistics(graph, torch.zeros(300, 0, device=device), PNA)
    assert [x.shape for x in found] == [(300, 0)] * 4
    struct = on(device, zoo()["empty"](torch.int64))
    feat = torch.ones(struct.num_src, 3, device=device, requires_grad=True)
    found = ops.statistics(struct, feat, PNA)
    assert not any(x.any() for x in found)
    (grad,) = torch.autograd.grad(sum(x.sum() for x in found), feat)
    assert not grad.any()
