"""Destinations without in-edges: refused with DGL's words, or zeros."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import bipartite_up, block, empty, isolated_rows, regular
from tests.nn.common import assert_same, draw, features, raised, twins

LAYERS = {"GATv2Conv": (4, 3, 2), "GraphConv": (4, 3)}
every_layer = pytest.mark.parametrize("name", sorted(LAYERS))


@every_layer
@pytest.mark.parametrize("builder", [empty, isolated_rows, bipartite_up])
def test_same_error_as_dgl(name, builder, device):
    graph = builder()
    mine, other = twins(name, *LAYERS[name])
    feat = features(graph, 4)
    expected = raised(partial(other, graph, feat))
    there = tuple(part.to(device) for part in feat) if isinstance(feat, tuple) else feat.to(device)
    found = raised(partial(mine.to(device), graph, there))
    assert type(found) is type(expected) is dgl.DGLError
    assert str(found) == str(expected)


@every_layer
def test_the_flag_belongs_to_the_instance(name):
    graph, feat = isolated_rows(), draw(9, 4)
    strict, lenient = twins(name, *LAYERS[name])[0], twins(name, *LAYERS[name])[0]
    lenient.set_allow_zero_in_degree(True)
    lenient(graph, feat)
    assert isinstance(raised(partial(strict, graph, feat)), dgl.DGLError)
    lenient.set_allow_zero_in_degree(False)
    assert isinstance(raised(partial(lenient, graph, feat)), dgl.DGLError)


@every_layer
def test_no_edges_at_all(name, device):
    """Zeros, plus the bias where it is added after the sum; zero gradients."""
    graph = empty()
    layers = twins(name, *LAYERS[name], allow_zero_in_degree=True)
    found = assert_same(layers, graph, draw(4, 4), device)
    if name == "GATv2Conv":
        assert not found["out0"].any()
    else:
        assert torch.equal(found["out0"], layers[0].bias.detach().expand(4, 3))
    assert not found["grad_feat0"].any()


def test_no_edges_but_a_residual(device):
    layers = twins("GATv2Conv", 4, 3, 2, residual=True, allow_zero_in_degree=True)
    found = assert_same(layers, empty(), draw(4, 4), device)
    assert found["out0"].any()


@every_layer
def test_other_nodes_are_as_without_them(name, device):
    layers = twins(name, *LAYERS[name], allow_zero_in_degree=True)
    assert_same(layers, isolated_rows(), draw(9, 4), device)


@every_layer
@pytest.mark.parametrize("builder", [regular, block])
def test_graphs_without_such_nodes_pass(name, builder):
    graph = builder()
    layer = twins(name, *LAYERS[name])[0]
    assert graph.in_degrees().min() > 0
    layer(graph, features(graph, 4))


def test_blocks_count_their_destinations_only():
    """The sources of a block need no in-edges."""
    graph = dgl.to_block(dgl.graph(([1, 2, 3], [0, 0, 0])), torch.tensor([0]))
    for name, args in LAYERS.items():
        layer = twins(name, *args)[0]
        assert layer(graph, draw(4, 4)).shape[0] == 1


def test_users_of_our_own_container_get_our_error():
    """Without a DGL graph in sight it is still the class that `except dgl.DGLError` catches."""
    graph = dgl_flash.graph(([0, 1], [1, 1]), num_nodes=2)
    layer = twins("GraphConv", 4, 3)[0]
    assert isinstance(raised(partial(layer, graph, draw(2, 4))), dgl.DGLError)
