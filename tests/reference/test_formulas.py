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


@every_graph
def test_gatv2(name):
    struct, edges = build(name)
    feat_src, feat_dst = draw(struct.num_src, 2, 3), draw(struct.num_dst, 2, 3, seed=1)
    attn = draw(2, 3, seed=2)
    out, attention = reference.gatv2(
        struct, feat_src, feat_dst, attn, negative_slope=0.3, return_attention=True
    )
    assert attention.shape == (struct.num_edges, 2, 1)
    expected = torch.zeros(struct.num_dst, 2, 3, dtype=torch.float64)
    for v in range(struct.num_dst):
        arriving = [(e, u) for e, (u, end) in enumerate(edges) if end == v]
        for h in range(2):
            scores = []
            for _, u in arriving:
                hidden = feat_src[u, h] + feat_dst[v, h]
                scores.append(attn[h] @ torch.where(hidden > 0, hidden, 0.3 * hidden))
            if not scores:
                continue
            weights = torch.softmax(torch.stack(scores), 0)
            for (e, u), weight in zip(arriving, weights, strict=True):
                torch.testing.assert_close(attention[e, h, 0], weight)
                expected[v, h] += weight * feat_src[u, h]
    torch.testing.assert_close(out, expected)


def test_attention_dropout_drops_and_rescales():
    struct, _ = build("regular")
    feat, attn = draw(10, 2, 3), draw(2, 3, seed=2)
    torch.manual_seed(0)
    out, dropped = reference.gatv2(struct, feat, feat, attn, attn_drop=0.5, return_attention=True)
    _, whole = reference.gatv2(struct, feat, feat, attn, return_attention=True)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(dropped[kept], 2 * whole[kept])
    torch.testing.assert_close(out, reference.spmm(struct, feat, dropped))


def test_scores_beyond_the_range_of_exp():
    struct, _ = build("regular")
    logits = torch.tensor([1e4, -1e4, 9e3], dtype=torch.float64).repeat(10).unsqueeze(1)
    out = reference.edge_softmax(struct, logits)
    half = reference.edge_softmax(struct, logits.half())
    assert out.isfinite().all()
    torch.testing.assert_close(half.double(), out, rtol=0, atol=1e-3)
