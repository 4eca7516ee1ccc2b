"""Dot-product attention beyond what ``test_attention`` tests of all kinds of attention."""

from __future__ import annotations

import math

import pytest
import torch

from dgl_flash import ops, reference
from tests.ops.attention import KINDS
from tests.ops.common import (
    EDGE_ULPS,
    check_twins,
    draw,
    every_dtype,
    on,
    skewed_graph,
    small_graph_of,
)

inputs = KINDS["dot_attention"].inputs


def twins(graph, device, given, ulps=None, **options):
    check_twins(
        lambda g, **kw: ops.dot_attention(g, **kw, **options),
        lambda s, **kw: reference.dot_attention(s, **kw, **options),
        graph,
        device,
        ulps={"grad_edge_bias": EDGE_ULPS[given["q"].dtype], **(ulps or {})},
        **given,
    )


@pytest.mark.parametrize("scale", [0.0, -0.5, 1.0])
def test_every_scale(scale, device):
    graph = skewed_graph()
    twins(graph, device, inputs(graph, 2, 32, torch.float32, device), scale=scale)


def test_the_usual_scale(device):
    graph = skewed_graph()
    given = inputs(graph, 2, 32, torch.float32, device)
    expected = ops.dot_attention(graph, **given, scale=1 / math.sqrt(32))
    torch.testing.assert_close(ops.dot_attention(graph, **given), expected)


@every_dtype
@pytest.mark.parametrize("width", [1, 5, 16, 40])
def test_values_of_another_width(width, dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 3, 16, dtype, device)
    given["v"] = draw(300, 3, width, dtype=dtype, device=device, seed=9)
    assert ops.dot_attention(graph, **given).shape == (300, 3, width)
    twins(graph, device, given)


@every_dtype
@pytest.mark.parametrize("heads", [1, 3])
def test_a_bias_that_is_a_factor(heads, dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 3, 16, dtype, device)
    given["edge_bias"] = draw(2500, heads, dtype=dtype, device=device, seed=9)
    # Scores are products of three, and as many factors stand before each gradient.
    ulps = dict.fromkeys(("grad_q", "grad_k"), 8.0) if dtype == torch.float32 else {}
    twins(graph, device, given, ulps, bias_op="mul")


def test_a_factor_to_second_order(device):
    graph = small_graph_of()
    given = inputs(graph, 2, 3, torch.float64, device)
    given["edge_bias"] = draw(40, 2, dtype=torch.float64, device=device, seed=9)
    leaves = [t.requires_grad_() for t in given.values()]

    def run(*args):
        named = dict(zip(given, args, strict=True))
        return ops.dot_attention(graph, **named, bias_op="mul", return_attention=True)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@every_dtype
@pytest.mark.parametrize(("num_heads", "head_dim"), [(2, 64), (3, 7)])
def test_keys_that_are_values(num_heads, head_dim, dtype, device):
    graph = skewed_graph()
    given = inputs(graph, num_heads, head_dim, dtype, device)
    shared = {"q": given["q"], "k": given["k"]}
    check_twins(
        lambda g, q, k: ops.dot_attention(g, q, k, k),
        lambda s, q, k: reference.dot_attention(s, q, k, k),
        graph,
        device,
        **shared,
    )


@every_dtype
def test_one_tensor_three_times(dtype, device):
    graph = skewed_graph()
    feat = inputs(graph, 2, 8, dtype, device)["q"]
    check_twins(
        lambda g, feat: ops.dot_attention(g, feat, feat, feat),
        lambda s, feat: reference.dot_attention(s, feat, feat, feat),
        graph,
        device,
        feat=feat,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_large_scores_stay_finite(dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 16, dtype, device)
    for name in ("q", "k"):
        given[name] *= 100
    out = ops.dot_attention(graph, **given)
    exact = reference.dot_attention(on(device, graph), **{k: v.double() for k, v in given.items()})
    assert out.isfinite().all()
    assert ((out.double() - exact).abs().max() / exact.abs().max()) < 2e-3


SPOILED = {
    "q has too few rows": ("q", lambda t: t[:-1], ValueError),
    "q flat": ("q", lambda t: t.flatten(1), ValueError),
    "q no tensor": ("q", lambda t: t.tolist(), TypeError),
    "k of other width": ("k", lambda t: t[..., :-1], ValueError),
    "k of other dtype": ("k", lambda t: t.double(), TypeError),
    "v of other heads": ("v", lambda t: t[:, :1], ValueError),
    "v elsewhere": ("v", lambda t: t.to("meta"), ValueError),
    "v sparse": ("v", lambda t: t.to_sparse(), ValueError),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_spoiled_arguments(case, device):
    name, spoil, error = SPOILED[case]
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    expected = ops.dot_attention(graph, **given)
    with pytest.raises(error, match=rf"dot_attention: expected `{name}`"):
        ops.dot_attention(graph, **{**given, name: spoil(given[name])})
    with pytest.raises(ValueError, match="dot_attention: expected `bias_op`"):
        ops.dot_attention(graph, **given, bias_op="div")
    assert torch.equal(ops.dot_attention(graph, **given), expected)


def test_swapped_graph_and_features(device):
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    with pytest.raises(TypeError, match="dot_attention: expected a graph"):
        ops.dot_attention(given["q"], graph, given["k"], given["v"])
