"""GINConv gives DGL's outputs and gradients."""

from __future__ import annotations

import itertools
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import (
    batched,
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    multi_edges,
    no_nodes,
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
    raised,
    run,
)
from tests.nn.common import twins as build_twins
from tests.numerics import pseudo_random

AGGREGATORS = ("sum", "max", "mean")
every_aggregator = pytest.mark.parametrize("kind", AGGREGATORS)


def twins(kind="sum", widths=(4, 3), **kwargs):
    """Each with a linear layer of its own."""
    pair = build_twins("GINConv", None, kind, **kwargs)
    for layer in pair:
        torch.manual_seed(1)
        layer.apply_func = nn.Linear(*widths)
    return pair


# Without edges DGL gives the gradient of a maximum to node 0: see the test of no edges below.
@pytest.mark.parametrize(
    ("kind", "name"), sorted({*itertools.product(AGGREGATORS, zoo())} - {("max", "empty")})
)
def test_zoo(kind, name, device):
    graph = zoo()[name](torch.int64)
    assert_same(twins(kind, learn_eps=True), graph, features(graph, 4), device)


@every_idtype
@every_aggregator
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, kind, idtype, device):
    graph = builder(idtype)
    assert_same(twins(kind), graph, features(graph, 4), device)


@every_aggregator
@pytest.mark.parametrize(
    "builder", [regular, block, bipartite_up, bipartite_down, isolated_rows, multi_edges]
)
@pytest.mark.parametrize("sizes", [(), (1,), (4,)], ids=str)
def test_edge_weights(kind, builder, sizes, device):
    graph = builder()
    edge_weight = draw(graph.num_edges(), *sizes, seed=5)
    layers = twins(kind, learn_eps=True)
    assert_same(layers, graph, features(graph, 4), device, edge_weight=edge_weight)


@every_aggregator
@pytest.mark.parametrize("sizes", [None, (), (1,), (4,), (2, 4), (2, 1), (1, 4)], ids=str)
def test_leading_dimensions(kind, sizes, device):
    """Weights align with the last dimensions."""
    graph = regular()
    edge_weight = None if sizes is None else draw(graph.num_edges(), *sizes, seed=5)
    assert_same(twins(kind), graph, features(graph, 4, 2), device, edge_weight=edge_weight)


@every_aggregator
def test_weights_widen_the_features(kind, device):
    graph = regular()
    edge_weight = draw(graph.num_edges(), 4, seed=5)
    assert_same(twins(kind), graph, features(graph, 1), device, edge_weight=edge_weight)


@every_aggregator
@pytest.mark.parametrize("weighted", [False, True])
def test_one_number_a_node(kind, weighted, device):
    graph = regular()
    edge_weight = draw(graph.num_edges(), seed=5) if weighted else None
    layers = build_twins("GINConv", None, kind, learn_eps=True)
    assert_same(layers, graph, draw(10), device, edge_weight=edge_weight)


@pytest.mark.parametrize("learn_eps", [False, True])
@pytest.mark.parametrize("init_eps", [0, 0.5, -1.0])
def test_eps(learn_eps, init_eps, device):
    graph = regular()
    layers = twins(init_eps=init_eps, learn_eps=learn_eps)
    assert isinstance(layers[0].eps, nn.Parameter) is learn_eps
    assert_same(layers, graph, features(graph, 4), device)


@pytest.mark.parametrize("activation", [None, torch.tanh, nn.ELU()], ids=["none", "tanh", "ELU"])
@pytest.mark.parametrize("apply_func", [None, torch.sin], ids=["none", "function"])
def test_functions(activation, apply_func, device):
    graph = isolated_rows()
    layers = build_twins("GINConv", apply_func, "mean", activation=activation, learn_eps=True)
    assert_same(layers, graph, features(graph, 4), device)


@every_aggregator
@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_no_edges(kind, builder, device):
    graph = builder()
    layer = build_twins("GINConv", None, kind, init_eps=1.0)[0]
    feat = features(graph, 4)
    found = run(layer, graph, feat, device, torch.float32)
    assert torch.equal(found["out0"].cpu(), 2 * feat)
    assert torch.equal(found["grad_feat0"].cpu(), 2 * pseudo_random(feat))


@pytest.mark.parametrize("kind", ["sum", "mean"])
@pytest.mark.parametrize("weighted", [False, True])
def test_compiles(kind, weighted, device):
    graph = random_graph(20, 90)
    given = {"edge_weight": torch.rand(90, device=device)} if weighted else {}
    layer = twins(kind, learn_eps=True)[0].to(device)
    assert_compiles(layer, graph, features(graph, 4).to(device), **given)


@pytest.mark.parametrize("kind", ["min", "lstm", None])
def test_unknown_aggregator(kind):
    mine, other = (raised(partial(library.nn.GINConv, None, kind)) for library in (dgl_flash, dgl))
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_wrong_number_of_weights():
    graph = regular()
    calls = [
        partial(layer, graph, features(graph, 4), edge_weight=torch.ones(29)) for layer in twins()
    ]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = twins()
    feat = features(graph, 4)
    torch.testing.assert_close(mine(graph, feat), other(for_dgl(graph), feat))
    assert not graph.ndata
    assert not graph.edata
