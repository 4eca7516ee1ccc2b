"""Weighted sums: values, gradients to features and weights, factors, mean."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import zoo
from tests.ops.common import (
    EDGE_ULPS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_half,
    every_idtype,
    every_kind_of_row,
    every_shape,
    on,
    skewed_graph,
    small_graph_of,
)


def run_both(graph, device, given, **fixed):
    check_twins(
        lambda g, **kw: ops.spmm(g, **kw, **fixed),
        lambda s, **kw: reference.spmm(s, **kw, **fixed),
        graph,
        device,
        ulps={"grad_edge_weight": EDGE_ULPS[given["feat"].dtype]},
        **given,
    )


@every_idtype
@every_graph
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_every_graph(name, idtype, reduce, device):
    graph = zoo()[name](idtype)
    struct = on(device, graph)
    kind = {"dtype": torch.float32, "device": device}
    given = {
        "feat": draw(struct.num_src, 2, 12, seed=1, **kind),
        "edge_weight": draw(struct.num_edges, 2, seed=2, **kind),
    }
    run_both(graph, device, given, reduce=reduce)


@every_half
@every_kind_of_row
@pytest.mark.parametrize("width", [7, 64])
def test_every_kind_of_row_in_16_bits(name, dtype, width, device):
    graph = zoo()[name](torch.int64)
    struct = on(device, graph)
    kind = {"dtype": dtype, "device": device}
    given = {
        "feat": draw(struct.num_src, 2, width, seed=1, **kind),
        "edge_weight": draw(struct.num_edges, 2, seed=2, **kind),
    }
    run_both(graph, device, given)


@every_shape
@pytest.mark.parametrize("weight", ["none", "scalar", "per head", "per element"])
def test_every_shape(num_heads, head_dim, dtype, weight, device):
    graph = skewed_graph()
    kind = {"dtype": dtype, "device": device}
    given = {"feat": draw(300, num_heads, head_dim, seed=1, **kind)}
    if weight == "scalar":
        given["edge_weight"] = draw(2500, seed=2, **kind)
    elif weight == "per head":
        given["edge_weight"] = draw(2500, num_heads, 1, seed=2, **kind)
    elif weight == "per element":
        given["edge_weight"] = draw(2500, num_heads, head_dim, seed=2, **kind)
    run_both(graph, device, given)


@every_dtype
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("scaled", ["src", "dst", "both"])
def test_factors_of_the_nodes(dtype, reduce, scaled, device):
    graph = skewed_graph()
    kind = {"dtype": dtype, "device": device}
    given = {"feat": draw(300, 20, seed=1, **kind), "edge_weight": draw(2500, seed=2, **kind)}
    factor = {"dtype": torch.float32, "device": device}
    fixed = {"src_scale": draw(300, seed=3, **factor), "dst_scale": draw(300, seed=4, **factor)}
    fixed = {k: v for k, v in fixed.items() if scaled in (k[:3], "both")}
    run_both(graph, device, given, reduce=reduce, **fixed)


@pytest.mark.parametrize("shape", [(), (1,), (1433,), (3, 5, 7), (0,)])
def test_any_feature_shape(shape, device):
    graph = skewed_graph()
    kind = {"dtype": torch.float32, "device": device}
    given = {"feat": draw(300, *shape, seed=1, **kind), "edge_weight": draw(2500, seed=2, **kind)}
    run_both(graph, device, given)


def test_two_runs_agree_bitwise(device):
    graph = skewed_graph()
    feat = draw(300, 3, 40, dtype=torch.float32, device=device, seed=1)
    weight = draw(2500, 3, dtype=torch.float32, device=device, seed=2)
    runs = []
    for _ in range(2):
        leaves = [feat.clone().requires_grad_(), weight.clone().requires_grad_()]
        out = ops.spmm(graph, *leaves)
        out.square().sum().backward()
        runs.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for a, b in zip(*runs, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_gradcheck_to_second_order(reduce, device):
    graph = small_graph_of()
    kind = {"dtype": torch.float64, "device": device}
    feat = draw(12, 2, 3, seed=1, **kind).requires_grad_()
    weight = draw(40, 2, seed=2, **kind).requires_grad_()
    scale = draw(12, seed=3, **kind)

    def run(feat, weight):
        return ops.spmm(graph, feat, weight, reduce=reduce, src_scale=scale, dst_scale=scale)

    assert torch.autograd.gradcheck(run, (feat, weight))
    assert torch.autograd.gradgradcheck(run, (feat, weight))


def test_non_contiguous_and_expanded(device):
    graph = skewed_graph()
    wide = draw(300, 64, dtype=torch.float32, device=device, seed=1)
    for feat in (wide[:, ::2], wide[:, 1:33], wide[:1].expand(300, 64), wide.t()[:40].t()):
        expected = ops.spmm(graph, feat.contiguous().clone())
        assert torch.equal(ops.spmm(graph, feat), expected)


SPOILED = {
    "feat has too few rows": ({"feat": lambda t: t[:-1]}, ValueError, "feat"),
    "feat of integers": ({"feat": lambda t: t.long()}, TypeError, "feat"),
    "weight has too few rows": ({"edge_weight": lambda t: t[:-1]}, ValueError, "edge_weight"),
    "weight of other heads": (
        {"edge_weight": lambda t: t[:, :1].expand(-1, 3)},
        ValueError,
        "edge_weight",
    ),
    "weight of other dtype": ({"edge_weight": lambda t: t.double()}, TypeError, "edge_weight"),
    "weight elsewhere": ({"edge_weight": lambda t: t.to("meta")}, ValueError, "edge_weight"),
    "unknown reducer": ({"reduce": lambda t: "max"}, ValueError, "reduce"),
    "factor of other size": ({"src_scale": lambda t: torch.ones(4)}, ValueError, "src_scale"),
    "factor with gradient": (
        {"dst_scale": lambda t: torch.ones(300, requires_grad=True)},
        ValueError,
        "dst_scale",
    ),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_spoiled_arguments(case, device):
    changes, error, name = SPOILED[case]
    graph = skewed_graph()
    kind = {"dtype": torch.float32, "device": device}
    given = {"feat": draw(300, 2, 8, seed=1, **kind), "edge_weight": draw(2500, 2, seed=2, **kind)}
    expected = ops.spmm(graph, **given)
    bad = dict(given)
    for key, spoil in changes.items():
        value = spoil(given.get(key))
        bad[key] = (
            value.to(device) if isinstance(value, torch.Tensor) and not value.is_meta else value
        )
        if isinstance(value, torch.Tensor) and value.requires_grad:
            bad[key] = value.detach().to(device).requires_grad_()
    with pytest.raises(error, match=rf"spmm: expected `{name}`"):
        ops.spmm(graph, **bad)
    assert torch.equal(ops.spmm(graph, **given), expected)


@pytest.mark.parametrize("width", [0, 3])
def test_without_edges_all_is_zero_and_differentiable(device, width):
    struct = on(device, zoo()["empty"](torch.int64))
    kind = {"dtype": torch.float32, "device": device}
    feat = torch.full((struct.num_src, 2, width), float("inf"), **kind, requires_grad=True)
    weight = torch.zeros(0, 2, **kind, requires_grad=True)
    out = ops.spmm(struct, feat, weight)
    assert torch.equal(out, torch.zeros_like(feat))
    grads = torch.autograd.grad(out.sum(), (feat, weight))
    assert torch.equal(grads[0], torch.zeros_like(feat))
    assert grads[1].shape == weight.shape
    dots = ops.u_dot_v(struct, feat, feat)
    assert dots.shape == (0, 2, 1)
    assert torch.equal(torch.autograd.grad(dots.sum(), feat)[0], torch.zeros_like(feat))
