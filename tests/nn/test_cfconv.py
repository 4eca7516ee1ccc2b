"""CFConv gives DGL's outputs and gradients."""

from __future__ import annotations

import importlib
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from dgl.nn.pytorch.conv import cfconv as dgl_cfconv

from dgl_flash.nn.conv import cfconv
from tests.graphs import batched, bipartite_down, bipartite_up, block, path, regular, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    raised,
    twins,
)

CF = partial(twins, "CFConv")


def efeat(graph, width=3):
    return draw(graph.num_edges(), width, seed=4)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(CF(4, 3, 5, 2), graph, features(graph, 4), device, edge_feats=efeat(graph))


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(CF(4, 3, 5, 2), graph, features(graph, 4), device, edge_feats=efeat(graph))


@pytest.mark.parametrize("widths", [(1, 1, 1, 1), (4, 3, 1, 2), (4, 1, 33, 7)], ids=str)
@pytest.mark.parametrize("builder", [regular, bipartite_down])
def test_widths(widths, builder, device):
    graph = builder()
    feat, edge_feats = features(graph, widths[0]), efeat(graph, widths[1])
    assert_same(CF(*widths), graph, feat, device, edge_feats=edge_feats)


@pytest.mark.parametrize("builder", [bipartite_up, block])
def test_a_tensor_holds_the_sources(builder, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    assert_same(CF(4, 3, 5, 2), graph, feat, device, edge_feats=efeat(graph))


def test_only_the_source_part_of_a_pair_is_read(device):
    graph = bipartite_up()
    layer = CF(4, 3, 5, 2)[0].to(device)
    feat, edge_feats = draw(3, 4).to(device), efeat(graph).to(device)
    expected = layer(graph, feat, edge_feats)
    assert torch.equal(layer(graph, (feat, None), edge_feats), expected)
    assert torch.equal(layer(graph, (feat, draw(5, 7).to(device)), edge_feats), expected)


def test_path_by_hand(device):
    """Filters and projections fixed: what remains is a weighted sum."""
    layer = CF(1, 1, 1, 1)[0].to(device)
    layer.project_edge = torch.nn.Identity()
    layer.project_out = torch.nn.Identity()
    with torch.no_grad():
        layer.project_node.weight.fill_(2)
        layer.project_node.bias.fill_(1)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    out = layer(path(), feat, torch.tensor([[3.0], [-4.0]], device=device))
    assert out.flatten().tolist() == [0, 9, -84]


@pytest.mark.parametrize("arguments", [(), (2,), (1, 3), (0.5, 2, 1)], ids=str)
def test_shifted_softplus(arguments, device):
    mine, other = (module.ShiftedSoftplus(*arguments) for module in (cfconv, dgl_cfconv))
    assert repr(mine) == repr(other)
    values = torch.linspace(-30, 30, 601, device=device)
    torch.testing.assert_close(mine(values), other(values), rtol=0, atol=0)


def test_shifted_softplus_is_zero_at_zero():
    assert cfconv.ShiftedSoftplus()(torch.zeros(3)).abs().max() < 1e-7


def test_shifted_softplus_has_dgls_path():
    module = importlib.import_module("dgl_flash.nn.pytorch.conv.cfconv")
    assert module.ShiftedSoftplus is cfconv.ShiftedSoftplus


def test_features_of_other_edges_are_refused():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 4), draw(29, 3)) for layer in CF(4, 3, 5, 2)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError


def test_own_container(device):
    graph = regular()
    layer = CF(4, 3, 5, 2)[0].to(device)
    feat, given = features(graph, 4).to(device), efeat(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    CF(4, 3, 5, 2)[0](graph, features(graph, 4), efeat(graph))
    assert not graph.ndata
    assert not graph.edata
