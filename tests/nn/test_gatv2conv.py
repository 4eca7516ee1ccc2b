"""GATv2Conv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.graphs import batched, bipartite_down, bipartite_up, block, regular, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    may_fall_back,
    twins,
)

GATv2 = partial(twins, "GATv2Conv")
ANY_DEGREE = {"allow_zero_in_degree": True}


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(GATv2(4, 3, 2, **ANY_DEGREE), graph, features(graph, 4), device)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(GATv2(4, 3, 2, **ANY_DEGREE), graph, features(graph, 4), device)


VARIANTS = {
    "one head": ((5, 7, 1), {}),
    "width 1": ((5, 1, 3), {}),
    "slope": ((5, 3, 2), {"negative_slope": 0.7}),
    "no bias": ((5, 3, 2), {"bias": False}),
    "projected residual": ((5, 3, 2), {"residual": True}),
    "projected residual without bias": ((5, 3, 2), {"residual": True, "bias": False}),
    "identical residual": ((6, 3, 2), {"residual": True}),
    "function": ((5, 3, 2), {"activation": torch.tanh}),
    "module": ((5, 3, 2), {"activation": nn.ELU()}),
    "shared": ((5, 3, 2), {"share_weights": True}),
    "shared with residual": ((5, 3, 2), {"share_weights": True, "residual": True}),
    "shared without bias": ((5, 3, 2), {"share_weights": True, "bias": False}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("builder", [regular, block])
def test_variants(variant, builder, device):
    args, kwargs = VARIANTS[variant]
    graph = builder()
    assert_same(GATv2(*args, **kwargs, **ANY_DEGREE), graph, features(graph, args[0]), device)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block, regular])
@pytest.mark.parametrize("kwargs", [{}, {"residual": True}, {"share_weights": True}], ids=str)
def test_pairs_of_one_width(builder, kwargs, device):
    """An int for `in_feats` with a pair of features: DGL still uses both linears, unless shared."""
    graph = builder()
    feat = draw(graph.num_src_nodes(), 6), draw(graph.num_dst_nodes(), 6, seed=1)
    assert_same(GATv2(6, 3, 2, **kwargs, **ANY_DEGREE), graph, feat, device)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block])
@pytest.mark.parametrize("residual", [False, True])
def test_pairs_of_two_widths(builder, residual, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 6, seed=1)
    assert_same(GATv2((4, 6), 3, 2, residual=residual, **ANY_DEGREE), graph, feat, device)


@may_fall_back
@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_attention_is_returned_in_edge_order(builder, device):
    graph = builder()
    layers = GATv2(4, 3, 2, **ANY_DEGREE)
    found = assert_same(layers, graph, features(graph, 4), device, get_attention=True)
    attention = found["out1"]
    assert attention.shape == (graph.num_edges(), 2, 1)
    _, dst = graph.edges(order="eid")
    sums = torch.zeros(graph.num_dst_nodes(), 2, 1).index_add_(0, dst, attention.cpu())
    expected = (graph.in_degrees() > 0).float().reshape(-1, 1, 1).expand_as(sums)
    torch.testing.assert_close(sums, expected)


def test_dropout_draws_what_dgl_draws():
    """Same seed, same masks: on features first, source before destination, then on attention."""
    graph = block()
    for feat in (draw(graph.num_src_nodes(), 4), (draw(graph.num_src_nodes(), 4), draw(3, 4))):
        mine, other = GATv2(4, 3, 2, feat_drop=0.3, attn_drop=0.4, **ANY_DEGREE)
        outs = []
        for layer in (mine, other):
            torch.manual_seed(11)
            outs.append(layer(graph, feat, get_attention=True))
        for found, expected in zip(*outs, strict=True):
            torch.testing.assert_close(found, expected)


def test_dropout_is_off_in_eval(device):
    graph = regular()
    layer = GATv2(4, 3, 2, feat_drop=0.5, attn_drop=0.5)[0].to(device).eval()
    feat = features(graph, 4).to(device)
    state = torch.get_rng_state()
    first = layer(graph, feat)
    assert torch.equal(first, layer(graph, feat))
    assert torch.equal(state, torch.get_rng_state())


@may_fall_back
def test_attention_dropout_is_reproducible(device):
    """The training of one seed can be repeated."""
    graph = regular()
    layer = GATv2(4, 3, 2, attn_drop=0.5)[0].to(device)
    feat = features(graph, 4).to(device)
    outs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outs.append(layer(graph, feat, get_attention=True)[1])
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


def test_activation_runs_after_the_residual(device):
    graph = regular()
    layer = GATv2(6, 3, 2, residual=True, activation=F.relu)[0].to(device)
    assert (layer(graph, features(graph, 6).to(device)) >= 0).all()
