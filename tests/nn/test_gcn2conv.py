"""GCN2Conv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import (
    batched,
    bipartite_up,
    block,
    isolated_rows,
    path,
    random_graph,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    features,
    homogeneous_graph,
    raised,
    twins,
)

GCN2 = partial(twins, "GCN2Conv")
ANY_DEGREE = {"allow_zero_in_degree": True}
every_projection = pytest.mark.parametrize("shared", [True, False])


def initial(graph, width, *extra):
    return draw(graph.num_nodes(), *extra, width, seed=2)


@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    layers = GCN2(4, 2, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, feat_0=initial(graph, 4))


@every_idtype
@pytest.mark.parametrize("builder", [batched, regular])
@pytest.mark.parametrize("weighted", [False, True])
def test_both_id_types(builder, idtype, weighted, device):
    graph = builder(idtype)
    edge_weight = draw(graph.num_edges(), seed=5).abs() + 0.1 if weighted else None
    assert_same(
        GCN2(4, 2, **ANY_DEGREE),
        graph,
        features(graph, 4),
        device,
        feat_0=initial(graph, 4),
        edge_weight=edge_weight,
    )


@every_projection
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_options(shared, bias, weighted, device):
    graph = random_graph(12, 60, seed=3)  # directed: in-degrees are not out-degrees
    edge_weight = draw(graph.num_edges(), seed=5).abs() + 0.1 if weighted else None
    layers = GCN2(5, 3, 0.3, 0.7, project_initial_features=shared, bias=bias, **ANY_DEGREE)
    assert_same(
        layers,
        graph,
        features(graph, 5),
        device,
        feat_0=initial(graph, 5),
        edge_weight=edge_weight,
    )


@every_projection
@pytest.mark.parametrize("activation", [torch.tanh, nn.ELU()], ids=["function", "module"])
def test_activation(shared, activation, device):
    graph = regular()
    layers = GCN2(4, 1, project_initial_features=shared, activation=activation)
    assert_same(layers, graph, features(graph, 4), device, feat_0=initial(graph, 4))


@every_projection
def test_leading_dimensions_with_weights(shared, device):
    graph = regular()
    layers = GCN2(4, 1, project_initial_features=shared)
    edge_weight = draw(graph.num_edges(), seed=5).abs() + 0.1
    feat, feat_0 = features(graph, 4, 2), initial(graph, 4, 2)
    assert_same(layers, graph, feat, device, feat_0=feat_0, edge_weight=edge_weight)


def test_leading_dimensions_without_weights(device):
    """DGL cannot broadcast its degrees here; every slice is a graph of features of its own."""
    graph = regular()
    layer = GCN2(4, 1)[0].to(device)
    feat, feat_0 = features(graph, 4, 2).to(device), initial(graph, 4, 2).to(device)
    parts = [layer(graph, feat[:, i], feat_0[:, i]) for i in range(2)]
    torch.testing.assert_close(layer(graph, feat, feat_0), torch.stack(parts, dim=1))


def test_surplus_rows_of_the_initial_features_are_not_read(device):
    graph = regular()
    layer = GCN2(4, 1)[0].to(device)
    feat, feat_0 = features(graph, 4).to(device), draw(13, 4, seed=2).to(device)
    feat_0[10:] = float("nan")
    assert torch.equal(layer(graph, feat, feat_0), layer(graph, feat, feat_0[:10]))


def test_features_of_integers(device):
    """The factors of the degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, 4)).long()
    mine, other = GCN2(4, 1)
    found = mine.to(device)(graph, feat.to(device), feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat, feat))


def test_path_by_hand(device):
    """In-degrees 0, 1, 1: the sum moves features one step on."""
    layer = GCN2(1, 1, alpha=0.25, lambda_=1, bias=False, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.weight1.zero_()
    feat = torch.tensor([[4.0], [8.0], [0.0]], device=device)
    out = layer(path(), feat, torch.full_like(feat, 4.0))
    beta = torch.tensor(2.0).log().item()
    assert out.flatten().tolist() == pytest.approx([(1 - beta) * z for z in (1, 4, 7)])


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_weights_must_be_positive(value):
    graph = regular()
    edge_weight = torch.ones(graph.num_edges())
    edge_weight[3] = value
    feat = features(graph, 4)
    mine, other = (raised(partial(c, graph, feat, feat, edge_weight)) for c in GCN2(4, 1))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("shape", [(30, 1), (29,)], ids=["two dimensions", "too few"])
def test_weights_must_be_scalar_and_one_an_edge(shape):
    graph = regular()
    feat, edge_weight = features(graph, 4), torch.ones(shape)
    mine, other = (raised(partial(c, graph, feat, feat, edge_weight)) for c in GCN2(4, 1))
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_zero_in_degree():
    graph = isolated_rows()
    feat = features(graph, 4)
    layers = GCN2(4, 1)
    mine, other = (raised(partial(layer, graph, feat, feat)) for layer in layers)
    assert (type(mine), str(mine)) == (type(other), str(other))
    for layer in layers:
        layer.set_allow_zero_in_degree(True)
    assert_same(layers, graph, feat, feat_0=feat)


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    error = raised(partial(GCN2(4, 1, **ANY_DEGREE)[0], graph, feat, feat))
    assert isinstance(error, dgl.DGLError)
    assert "GCN2Conv: expected a homogeneous graph" in str(error)


def test_own_container(device):
    graph = regular()
    layer = GCN2(4, 1)[0].to(device)
    feat = features(graph, 4).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, feat), layer(graph, feat, feat))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    feat = features(graph, 4)
    GCN2(4, 1)[0](graph, feat, feat, torch.ones(graph.num_edges()))
    assert not graph.ndata
    assert not graph.edata
