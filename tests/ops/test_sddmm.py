"""Dot products of an edge's ends."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import zoo
from tests.ops.common import (
    EDGE_ULPS,
    LAYOUT_GRAPHS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_layout,
    every_shape,
    every_tail,
    on,
    skewed_graph,
    small_graph_of,
)


def inputs(graph, num_heads, head_dim, dtype, device):
    struct = on(device, graph)
    kind = {"dtype": dtype, "device": device}
    return {
        "feat_src": draw(struct.num_src, num_heads, head_dim, seed=1, **kind),
        "feat_dst": draw(struct.num_dst, num_heads, head_dim, seed=2, **kind),
    }


def dots(graph, feat_src, feat_dst):
    out = ops.u_dot_v(graph, feat_src, feat_dst)
    assert out.shape[2:] == (1,)
    return out.squeeze(-1)


@every_graph
def test_every_graph(name, device):
    graph = zoo()[name](torch.int64)
    given = inputs(graph, 2, 12, torch.float32, device)
    check_twins(
        dots,
        reference.u_dot_v,
        graph,
        device,
        ulps={"out": EDGE_ULPS[given["feat_src"].dtype]},
        **given,
    )


@every_shape
def test_every_shape(num_heads, head_dim, dtype, device):
    graph = skewed_graph()
    given = inputs(graph, num_heads, head_dim, dtype, device)
    check_twins(
        dots,
        reference.u_dot_v,
        graph,
        device,
        ulps={"out": EDGE_ULPS[given["feat_src"].dtype]},
        **given,
    )


@every_layout
@every_dtype
@every_tail
def test_every_layout(rows, dtype, num_heads, head_dim, device):
    graph = LAYOUT_GRAPHS[rows]()
    given = inputs(graph, num_heads, head_dim, dtype, device)
    check_twins(
        dots,
        reference.u_dot_v,
        graph,
        device,
        ulps={"out": EDGE_ULPS[given["feat_src"].dtype]},
        **given,
    )


@pytest.mark.parametrize("head_dim", [1433, 2048])
def test_heads_wider_than_a_warp(head_dim, device):
    graph = skewed_graph()
    given = inputs(graph, 1, head_dim, torch.float32, device)
    check_twins(
        dots,
        reference.u_dot_v,
        graph,
        device,
        ulps={"out": EDGE_ULPS[given["feat_src"].dtype]},
        **given,
    )


def test_gradcheck_to_second_order(device):
    graph = small_graph_of()
    given = inputs(graph, 2, 3, torch.float64, device)
    leaves = [t.requires_grad_() for t in given.values()]

    def run(*args):
        return ops.u_dot_v(graph, *args)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)
