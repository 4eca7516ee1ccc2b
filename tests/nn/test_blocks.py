"""A single tensor on a block: the destinations are its first rows."""

from __future__ import annotations

import dgl_flash  # noqa: F401

# isort: split
import dgl
import pytest
import torch

from tests.graphs import bipartite_down, bipartite_up, block, relation_slice
from tests.nn.common import assert_same, draw, twins
from tests.nn.layers import LAYERS, to, with_two_sides
from tests.nn.verdicts import assert_dgls


def cycle_block():
    """The in-edges of two nodes of a cycle of four."""
    cycle = dgl.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    return dgl.to_block(dgl.in_subgraph(cycle, [1, 2]), torch.tensor([1, 2]))


@pytest.mark.parametrize("kwargs", [{}, {"residual": True}, {"share_weights": True}], ids=str)
def test_a_tensor_is_the_pair_with_its_first_rows(kwargs, device):
    graph = cycle_block()
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (3, 2)
    layer = twins("GATv2Conv", 4, 3, 2, **kwargs)[0].to(device)
    feat = draw(3, 4).to(device)
    torch.testing.assert_close(layer(graph, feat), layer(graph, (feat, feat[:2])))


def test_destinations_go_through_their_own_linear(device):
    """Attention over several sources changes with the projection of the destination."""
    graph = block()
    layer = twins("GATv2Conv", 4, 3, 2)[0].to(device)
    feat = draw(graph.num_src_nodes(), 4).to(device)
    before = layer(graph, feat)
    with torch.no_grad():
        layer.fc_dst.weight.mul_(-3)
    assert not torch.allclose(before, layer(graph, feat))


@pytest.mark.parametrize("in_feats", [4, 6], ids=["projected", "identical"])
def test_the_residual_comes_from_the_destinations(in_feats, device):
    graph = block()
    layers = twins("GATv2Conv", in_feats, 3, 2, residual=True)
    assert_same(layers, graph, draw(graph.num_src_nodes(), in_feats), device)


@with_two_sides
def test_every_layer_on_a_block(name, device):
    """A tensor is the pair with its first rows; outputs and gradients are DGL's."""
    layer, graph = LAYERS[name], block()
    assert_dgls(name, graph, device)
    first, *others = to(layer.inputs(graph), device).values()
    mine = layer.make().to(device)
    pair = first, first[: graph.num_dst_nodes()]
    torch.testing.assert_close(mine(graph, pair, *others), mine(graph, first, *others))


@with_two_sides
@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, relation_slice])
def test_every_layer_on_two_sets_of_nodes(name, builder, device):
    assert_dgls(name, builder(), device, allow_zero_in_degree=True)


@pytest.mark.parametrize("name", ["GATv2Conv", "GraphConv"])
def test_two_blocks_in_a_row(name, device):
    """Mini-batch training as in DGL's tutorials: a sampler's blocks, outermost first."""
    graph = dgl.add_self_loop(dgl.rand_graph(60, 300))
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(2)
    inputs, _, blocks = sampler.sample_blocks(graph, torch.arange(5))
    feat = draw(60, 8)[inputs].to(device)
    sizes = [(8, 6, 2), (12, 3, 2)] if name == "GATv2Conv" else [(8, 6), (6, 3)]
    hidden = feat
    expected = feat.cpu()
    for size, part in zip(sizes, blocks, strict=True):
        mine, other = twins(name, *size)
        hidden = mine.to(device)(part, hidden).flatten(1)
        expected = other(part, expected).flatten(1)
    assert hidden.shape[0] == 5
    torch.testing.assert_close(hidden.cpu(), expected, rtol=1e-4, atol=1e-5)
