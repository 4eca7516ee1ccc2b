"""TAGConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import pytest
import torch
from torch import nn

from tests.graphs import (
    batched,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    multi_edges,
    random_bipartite,
    random_graph,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_compiles,
    assert_same,
    draw,
    every_idtype,
    features,
    for_dgl,
    homogeneous_graph,
    raised,
    twins,
)

TAG = partial(twins, "TAGConv")


def positive(graph, seed=5):
    return draw(graph.num_edges(), seed=seed).abs() + 0.1


@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(TAG(4, 3), graph, features(graph, 4), device)


@every_idtype
def test_both_id_types(idtype, device):
    graph = batched(idtype)
    assert_same(TAG(4, 3), graph, features(graph, 4), device)


@pytest.mark.parametrize("k", [0, 1, 2, 5])
@pytest.mark.parametrize("widths", [(7, 3), (3, 7)], ids=str)
@pytest.mark.parametrize("builder", [regular, isolated_rows, multi_edges])
@pytest.mark.parametrize("weighted", [False, True])
def test_hops(k, widths, builder, weighted, device):
    """Learned weights, too, go through their normalisation."""
    graph = builder()
    edge_weight = positive(graph) if weighted else None
    feat = features(graph, widths[0])
    assert_same(TAG(*widths, k=k), graph, feat, device, edge_weight=edge_weight)


@pytest.mark.parametrize("extra", [(2,), (2, 3)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
def test_leading_dimensions(extra, weighted, device):
    graph = regular()
    edge_weight = positive(graph) if weighted else None
    feat = features(graph, 4, *extra)
    assert_same(TAG(4, 3), graph, feat, device, edge_weight=edge_weight)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("activation", [None, torch.tanh, nn.ELU()], ids=["none", "tanh", "ELU"])
def test_bias_and_activation(bias, activation, device):
    graph = regular()
    assert_same(TAG(4, 3, bias=bias, activation=activation), graph, features(graph, 4), device)


def test_features_of_integers(device):
    """The factors of the degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, 4)).long()
    mine, other = TAG(4, 3)
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


def test_no_edges_leave_the_node_itself(device):
    layers = TAG(4, 3)
    feat = draw(4, 4)
    found = assert_same(layers, empty(), feat, device)
    alone = torch.cat([feat, torch.zeros(4, 8)], dim=1).to(device)
    torch.testing.assert_close(found["out0"], layers[0].lin(alone).detach())


@pytest.mark.parametrize(
    "edge_weight",
    [torch.ones(30, 1), -torch.ones(30), torch.ones(29)],
    ids=["two dimensions", "negative", "too few"],
)
def test_wrong_weights(edge_weight):
    graph = regular()
    mine, other = (raised(partial(layer, graph, draw(10, 4), edge_weight)) for layer in TAG(4, 3))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up, partial(random_bipartite, 5, 5, 9)])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    mine, other = (raised(partial(layer, graph, feat)) for layer in TAG(4, 3))
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_compiles(device):
    graph = random_graph(20, 90)
    layer = TAG(4, 3)[0].to(device)
    assert_compiles(layer, graph, features(graph, 4).to(device))


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = TAG(4, 3)
    feat, edge_weight = features(graph, 4), positive(graph)
    expected = other(for_dgl(graph), feat, edge_weight)
    torch.testing.assert_close(mine(graph, feat, edge_weight), expected)
    assert not graph.ndata
    assert not graph.edata
