"""NNConv gives DGL's outputs and gradients."""

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
    bipartite_down,
    bipartite_up,
    block,
    empty,
    no_nodes,
    path,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)

every_aggregator = pytest.mark.parametrize("aggregator", ["sum", "mean", "max"])


def NN(in_feats, out_feats, aggregator="mean", edge_func=None, **kwargs):
    """Layers of equal weights, with an edge function of their own each."""
    width = (in_feats if isinstance(in_feats, int) else in_feats[0]) * out_feats
    edge_func = edge_func or nn.Linear(5, width)
    mine, other = (
        twins("NNConv", in_feats, out_feats, edge_func, aggregator, **kwargs) for _ in range(2)
    )
    return mine[0], other[1]


def efeat(graph, *shape):
    return draw(graph.num_edges(), *(shape or (5,)), seed=4)


@every_graph
@pytest.mark.parametrize("aggregator", ["sum", "mean"])
def test_zoo(name, aggregator, device):
    graph = zoo()[name](torch.int64)
    layers = NN(4, 3, aggregator)
    assert_same(layers, graph, features(graph, 4), device, efeat=efeat(graph))


# DGL's maximum has no gradient on a graph without edges; see below.
@pytest.mark.parametrize("name", sorted(zoo().keys() - {"empty", "no_nodes"}))
def test_zoo_of_maxima(name, device):
    graph = zoo()[name](torch.int64)
    layers = NN(4, 3, "max")
    assert_same(layers, graph, features(graph, 4), device, efeat=efeat(graph))


@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_maximum_without_edges(builder, device):
    graph = builder()
    layer = NN(4, 3, "max")[0]
    randomise(layer)
    found = run(layer, graph, features(graph, 4), device, torch.float32, efeat=efeat(graph))
    assert torch.equal(found["out0"], layer.bias.detach().expand(graph.num_nodes(), 3))
    assert not found["grad_feat0"].any()


@every_idtype
@every_aggregator
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, aggregator, idtype, device):
    graph = builder(idtype)
    assert_same(NN(4, 3, aggregator), graph, features(graph, 4), device, efeat=efeat(graph))


@every_aggregator
@pytest.mark.parametrize("builder", [regular, block, bipartite_down])
@pytest.mark.parametrize("out_feats", [3, 4], ids=["projected", "as it is"])
def test_residual(aggregator, builder, out_feats, device):
    graph = builder()
    layers = NN(4, out_feats, aggregator, residual=True)
    assert_same(layers, graph, features(graph, 4), device, efeat=efeat(graph))


@pytest.mark.parametrize("residual", [False, True])
def test_two_input_widths(residual, device):
    graph = bipartite_up()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 6, seed=1)
    layers = NN((4, 6), 3, residual=residual)
    assert_same(layers, graph, feat, device, efeat=efeat(graph))


@every_aggregator
@pytest.mark.parametrize("widths", [(1, 1), (1, 3), (4, 1), (4, 4)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_widths(aggregator, widths, bias, device):
    graph = regular()
    layers = NN(*widths, aggregator, bias=bias)
    assert_same(layers, graph, features(graph, widths[0]), device, efeat=efeat(graph))


def test_edge_function_of_any_kind(device):
    """A function, and one that returns matrices."""
    graph = regular()
    for function in (torch.tanh, lambda x: x.reshape(-1, 2, 6).sin()):
        layers = NN(4, 3, edge_func=function)
        assert_same(layers, graph, features(graph, 4), device, efeat=efeat(graph, 12))


def test_network_as_edge_function(device):
    graph = block()
    function = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 12))
    layers = NN(4, 3, edge_func=function)
    assert any(key.startswith("edge_func.2.") for key in layers[0].state_dict())
    assert_same(layers, graph, features(graph, 4), device, efeat=efeat(graph, 2))


def test_path_by_hand(device):
    layer = NN(2, 1, "sum", edge_func=torch.relu)[0].to(device)
    feat = torch.tensor([[1.0, 2.0], [10.0, 20.0], [0.0, 0.0]], device=device)
    matrices = torch.tensor([[3.0, 4.0], [5.0, -6.0]], device=device)
    assert layer(path(), feat, matrices).flatten().tolist() == [0, 11, 50]


def test_maximum_is_taken_before_the_sum(device):
    """Two edges into node 1; each wins in one of the two inputs."""
    graph = dgl_flash.graph(([0, 0], [1, 1]), num_nodes=2)
    layer = NN(2, 1, "max", edge_func=torch.relu)[0].to(device)
    feat = torch.tensor([[1.0, 1.0], [0.0, 0.0]], device=device)
    matrices = torch.tensor([[3.0, 4.0], [5.0, 2.0]], device=device)
    assert layer(graph, feat, matrices).flatten().tolist() == [0, 9]


def test_unknown_aggregator():
    mine, other = (
        raised(partial(library.NNConv, 4, 3, nn.Identity(), "min")) for library in (ours, theirs)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_features_of_other_edges_are_refused():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 4), draw(29, 5)) for layer in NN(4, 3)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError


def test_own_container(device):
    graph = regular()
    layer = NN(4, 3)[0].to(device)
    feat, given = features(graph, 4).to(device), efeat(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    NN(4, 3)[0](graph, features(graph, 4), efeat(graph))
    assert not graph.ndata
    assert not graph.edata
