"""The reference against its formulas, edge by edge in Python."""

from __future__ import annotations

import math

import pytest
import torch

from dgl_flash import reference
from dgl_flash.structure import structure
from tests.graphs import small_zoo

every_graph = pytest.mark.parametrize("name", sorted(small_zoo()))


def build(name):
    struct = structure(small_zoo()[name](torch.int64))
    src, dst = (end.tolist() for end in struct.edges())
    return struct, list(zip(src, dst, strict=True))


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@every_graph
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("weight_shape", [None, (), (1, 1), (3,), (3, 1), (1, 2), (3, 2)])
def test_spmm(name, reduce, weight_shape):
    struct, edges = build(name)
    feat = draw(struct.num_src, 3, 2)
    weight = None if weight_shape is None else draw(struct.num_edges, *weight_shape, seed=1)
    src_scale, dst_scale = draw(struct.num_src, seed=2), draw(struct.num_dst, seed=3)
    expected = torch.zeros(struct.num_dst, 3, 2, dtype=torch.float64)
    for e, (u, v) in enumerate(edges):
        message = src_scale[u] * feat[u]
        if weight is not None:
            factor = weight[e].reshape(weight_shape + (1,) * (2 - len(weight_shape)))
            message = message * factor
        expected[v] += dst_scale[v] * message
    if reduce == "mean":
        for v in range(struct.num_dst):
            expected[v] /= max(sum(end == v for _, end in edges), 1)
    out = reference.spmm(
        struct, feat, weight, reduce=reduce, src_scale=src_scale, dst_scale=dst_scale
    )
    torch.testing.assert_close(out, expected)


@every_graph
def test_u_dot_v(name):
    struct, edges = build(name)
    feat_src, feat_dst = draw(struct.num_src, 2, 3), draw(struct.num_dst, 2, 3, seed=1)
    out = reference.u_dot_v(struct, feat_src, feat_dst)
    assert out.shape == (struct.num_edges, 2)
    for e, (u, v) in enumerate(edges):
        for h in range(2):
            torch.testing.assert_close(out[e, h], feat_src[u, h] @ feat_dst[v, h])


@every_graph
def test_edge_softmax(name):
    struct, edges = build(name)
    logits = draw(struct.num_edges, 2, 1)
    out = reference.edge_softmax(struct, logits)
    assert out.shape == logits.shape
    for e, (_, v) in enumerate(edges):
        for h in range(2):
            total = sum(math.exp(logits[i, h]) for i, (_, end) in enumerate(edges) if end == v)
            assert out[e, h].item() == pytest.approx(math.exp(logits[e, h]) / total)


def attended(edges, num_dst, values, score):
    """Attention and output, destination by destination, from scores of (edge, source, v, head)."""
    num_heads, head_dim = values.shape[1:]
    attention = torch.zeros(len(edges), num_heads, 1, dtype=torch.float64)
    out = torch.zeros(num_dst, num_heads, head_dim, dtype=torch.float64)
    for v in range(num_dst):
        arriving = [(e, u) for e, (u, end) in enumerate(edges) if end == v]
        for h in range(num_heads) if arriving else ():
            weights = torch.softmax(torch.stack([score(e, u, v, h) for e, u in arriving]), 0)
            for (e, u), weight in zip(arriving, weights, strict=True):
                attention[e, h, 0] = weight
                out[v, h] += weight * values[u, h]
    return out, attention


def bend(value, slope):
    return torch.where(value > 0, value, slope * value)


@every_graph
def test_gatv2(name):
    struct, edges = build(name)
    feat_src, feat_dst = draw(struct.num_src, 2, 3), draw(struct.num_dst, 2, 3, seed=1)
    attn, bias = draw(2, 3, seed=2), draw(struct.num_edges, 2, seed=3)

    def score(e, u, v, h):
        return attn[h] @ bend(feat_src[u, h] + feat_dst[v, h], 0.3) + bias[e, h]

    found = reference.gatv2(
        *(struct, feat_src, feat_dst, attn, 0.3), edge_bias=bias, return_attention=True
    )
    torch.testing.assert_close(found, attended(edges, struct.num_dst, feat_src, score))


@every_graph
def test_gat(name):
    struct, edges = build(name)
    feat = draw(struct.num_src, 2, 3)
    el, er = draw(struct.num_src, 2, seed=1), draw(struct.num_dst, 2, seed=2)
    bias = draw(struct.num_edges, seed=3)

    def score(e, u, v, h):
        return bend(el[u, h] + er[v, h] + bias[e], 0.3)

    found = reference.gat(struct, feat, el, er, 0.3, edge_bias=bias, return_attention=True)
    torch.testing.assert_close(found, attended(edges, struct.num_dst, feat, score))


@every_graph
def test_dot_attention(name):
    struct, edges = build(name)
    q, k = draw(struct.num_dst, 2, 4), draw(struct.num_src, 2, 4, seed=1)
    v, bias = draw(struct.num_src, 2, 3, seed=2), draw(struct.num_edges, 1, seed=3)
    for op, combine in (("add", torch.add), ("mul", torch.mul)):

        def score(e, source, end, h, combine=combine):
            return combine(q[end, h] @ k[source, h] / 2, bias[e, 0])

        found = reference.dot_attention(
            struct, q, k, v, edge_bias=bias, bias_op=op, return_attention=True
        )
        torch.testing.assert_close(found, attended(edges, struct.num_dst, v, score))


def test_masks_and_weights_are_factors_of_the_attention():
    struct, _ = build("regular")
    feat, attn = draw(10, 2, 3), draw(2, 3, seed=2)
    keep = 2.0 * (draw(struct.num_edges, 2, seed=4) > 0)
    weight = draw(struct.num_edges, seed=5)
    given = struct, feat, feat, attn
    out, found = reference.gatv2(*given, keep=keep, edge_weight=weight, return_attention=True)
    _, whole = reference.gatv2(*given, return_attention=True)
    torch.testing.assert_close(found, whole * (keep * weight[:, None]).unsqueeze(-1))
    torch.testing.assert_close(out, reference.spmm(struct, feat, found))


def test_scores_beyond_the_range_of_exp():
    struct, _ = build("regular")
    logits = torch.tensor([1e4, -1e4, 9e3], dtype=torch.float64).repeat(10).unsqueeze(1)
    out = reference.edge_softmax(struct, logits)
    half = reference.edge_softmax(struct, logits.half())
    assert out.isfinite().all()
    torch.testing.assert_close(half.double(), out, rtol=0, atol=1e-3)
