"""GINEConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import dgl.function as fn
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

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
    every_graph,
    every_idtype,
    features,
    for_dgl,
    raised,
)
from tests.nn.common import twins as build_twins

# DGL's user-defined messages warn on a graph without edges.
pytestmark = pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge function")


def twins(widths=(4, 3), **kwargs):
    """Each with a linear layer of its own."""
    pair = build_twins("GINEConv", **kwargs)
    for layer in pair:
        torch.manual_seed(1)
        layer.apply_func = nn.Linear(*widths)
    return pair


def edge_features(graph, *sizes):
    return draw(graph.num_edges(), *sizes, seed=5)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    given = {"edge_feat": edge_features(graph, 4)}
    assert_same(twins(learn_eps=True), graph, features(graph, 4), device, **given)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    given = {"edge_feat": edge_features(graph, 4)}
    assert_same(twins(), graph, features(graph, 4), device, **given)


@pytest.mark.parametrize(
    "builder", [regular, block, bipartite_up, bipartite_down, isolated_rows, multi_edges]
)
@pytest.mark.parametrize("node_width", [1, 4])
@pytest.mark.parametrize("edge_width", [1, 4])
def test_broadcast_widths(builder, node_width, edge_width, device):
    graph = builder()
    width = max(node_width, edge_width)
    given = {"edge_feat": edge_features(graph, edge_width)}
    assert_same(twins((width, 3)), graph, features(graph, node_width), device, **given)


@pytest.mark.parametrize("sizes", [(2, 4), (1, 4), (2, 1), (1, 1)], ids=str)
def test_leading_dimensions(sizes, device):
    graph = regular()
    given = {"edge_feat": edge_features(graph, *sizes)}
    assert_same(twins(), graph, features(graph, 4, 2), device, **given)


def test_edge_features_of_fewer_dimensions(device):
    """DGL fails on them, or aligns the edges with a feature: here a number an edge is one."""
    graph = regular()
    layer = twins()[0].to(device)
    feat, edge_feat = features(graph, 4).to(device), edge_features(graph).to(device)
    expected = layer(graph, feat, edge_feat.unsqueeze(1))
    torch.testing.assert_close(layer(graph, feat, edge_feat), expected)


@pytest.mark.parametrize(
    ("of_nodes", "of_edges"),
    [
        (torch.int64, torch.float32),
        (torch.float32, torch.int64),
        (torch.float32, torch.bool),
        (torch.float32, torch.float64),
        (torch.float64, torch.float32),
        (torch.float16, torch.float32),
    ],
)
def test_two_dtypes(of_nodes, of_edges, device):
    """As where torch adds two tensors, and hence in DGL."""
    graph = regular()
    feat, edge_feat = (3 * features(graph, 4)).to(of_nodes), edge_features(graph, 4).to(of_edges)
    mine, other = build_twins("GINEConv", init_eps=0.5)
    found = mine.to(device)(graph, feat.to(device), edge_feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat, edge_feat))


@pytest.mark.parametrize("learn_eps", [False, True])
@pytest.mark.parametrize("init_eps", [0, 0.5, -1.0])
def test_eps(learn_eps, init_eps, device):
    graph = regular()
    layers = twins(init_eps=init_eps, learn_eps=learn_eps)
    assert isinstance(layers[0].eps, nn.Parameter) is learn_eps
    given = {"edge_feat": edge_features(graph, 4)}
    assert_same(layers, graph, features(graph, 4), device, **given)


@pytest.mark.parametrize("apply_func", [None, torch.sin], ids=["none", "function"])
def test_functions(apply_func, device):
    graph = isolated_rows()
    layers = build_twins("GINEConv", apply_func, learn_eps=True)
    given = {"edge_feat": edge_features(graph, 4)}
    assert_same(layers, graph, features(graph, 4), device, **given)


@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_no_edges(builder, device):
    graph = builder()
    feat = features(graph, 4)
    layers = build_twins("GINEConv", init_eps=1.0)
    found = assert_same(layers, graph, feat, device, edge_feat=torch.zeros(0, 4))
    assert torch.equal(found["out0"].cpu(), 2 * feat)


def test_the_inputs_are_left_as_they_are(device):
    """The messages are rectified in place, and the features are no messages."""
    graph = regular()
    layer = build_twins("GINEConv")[0].to(device)
    feat, edge_feat = features(graph, 4).to(device), edge_features(graph, 4).to(device)
    copies = feat.clone(), edge_feat.clone()
    layer(graph, feat, edge_feat)
    assert torch.equal(feat, copies[0])
    assert torch.equal(edge_feat, copies[1])


class Calls(TorchDispatchMode):
    """Names of the functions of torch that are called."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_one_tensor_of_edges_is_made_and_kept_for_the_backward_pass(device):
    graph = regular()
    layer = build_twins("GINEConv")[0].to(device)
    feat = features(graph, 4).to(device).requires_grad_()
    edge_feat = edge_features(graph, 4).to(device).requires_grad_()
    kept = {}

    def keep(tensor):
        if tensor.shape == (graph.num_edges(), 4):
            kept[tensor.data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), Calls() as calls:
        layer(graph, feat, edge_feat)
    assert len(kept) == 1
    assert "relu_" in calls.names
    assert "relu" not in calls.names


def test_the_message_function_serves_dgl():
    graph, feat, edge_feat = regular(), draw(10, 4), draw(30, 4, seed=5)
    layer = build_twins("GINEConv")[0]
    with graph.local_scope():
        graph.ndata["hn"], graph.edata["he"] = feat, edge_feat
        graph.update_all(layer.message, fn.sum("m", "neigh"))
        expected = feat + graph.ndata["neigh"]
    torch.testing.assert_close(layer(graph, feat, edge_feat), expected)


def test_compiles(device):
    graph = random_graph(20, 90)
    layer = twins(learn_eps=True)[0].to(device)
    given = {"edge_feat": edge_features(graph, 4).to(device)}
    assert_compiles(layer, graph, features(graph, 4).to(device), **given)


@pytest.mark.parametrize("shape", [(29, 4), (30, 5)], ids=str)
def test_edge_features_that_do_not_fit(shape):
    graph = regular()
    for layer in twins():
        error = raised(partial(layer, graph, features(graph, 4), torch.ones(shape)))
        assert str(shape[0]) in str(error) or str(shape[1]) in str(error)


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = twins()
    feat, edge_feat = features(graph, 4), edge_features(graph, 4)
    torch.testing.assert_close(mine(graph, feat, edge_feat), other(for_dgl(graph), feat, edge_feat))
    assert not graph.ndata
    assert not graph.edata
