"""GatedGCNConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import batched, bipartite_up, block, coo_only, path, regular, self_loops, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    features,
    homogeneous_graph,
    raised,
    run,
    twins,
)

GATED = partial(twins, "GatedGCNConv")
NO_BATCH = {"batch_norm": False}


def normalised(*args, **kwargs):
    """Layers with frozen biases: normalisation leaves little but rounding as their gradient.

    Of A and B nothing is left, of the others what passes through the gates, which is 100 to 3,000
    times smaller than the terms that cancel; :func:`test_gradients_of_normalised_biases` has them.
    """
    layers = GATED(*args, **kwargs)
    for layer in layers:
        for linear in (layer.A, layer.B, layer.C, layer.D, layer.E):
            linear.bias.requires_grad_(False)
    return layers


def efeat(graph, width=3):
    return draw(graph.num_edges(), width, seed=4)


@homogeneous_graph
def test_zoo(name, device):
    """Without batch normalisation, which refuses a batch of one node."""
    graph = zoo()[name](torch.int64)
    layers = GATED(4, 3, 5, **NO_BATCH)
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph))


@every_idtype
@pytest.mark.parametrize("builder", [batched, regular, coo_only])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    layers = normalised(4, 3, 5)
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph))


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("widths", [(4, 4, 4), (4, 4, 5), (4, 3, 4), (3, 4, 4)], ids=str)
def test_batch_norm_and_residual(batch_norm, residual, widths, device):
    graph = self_loops()
    layers = (normalised if batch_norm else GATED)(
        *widths, batch_norm=batch_norm, residual=residual
    )
    given = efeat(graph, widths[1])
    assert_same(layers, graph, features(graph, widths[0]), device, edge_feat=given)


@pytest.mark.parametrize("residual", [False, True])
def test_gradients_of_normalised_biases(residual, device):
    """In float64, where enough is left of them."""
    graph = self_loops()
    mine, other = GATED(4, 4, 4, residual=residual)
    inputs = graph, features(graph, 4)
    found = run(mine, *inputs, device, torch.float64, edge_feat=efeat(graph, 4))
    expected = run(other, *inputs, "cpu", torch.float64, edge_feat=efeat(graph, 4))
    assert found.keys() == expected.keys()
    for name, value in found.items():
        torch.testing.assert_close(value.cpu(), expected[name], rtol=1e-9, atol=1e-12, msg=name)
    assert found["grad_C.bias"].abs().min() > 1e-4


@pytest.mark.parametrize("activation", [None, torch.tanh, nn.ELU()], ids=["none", "tanh", "ELU"])
def test_activation(activation, device):
    graph = regular()
    layers = GATED(4, 3, 5, activation=activation, **NO_BATCH)
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph))


def test_batch_statistics_are_tracked():
    graph = regular()
    layers = GATED(4, 3, 5)
    for layer in layers:
        layer(graph, features(graph, 4), efeat(graph))
    mine, other = (layer.state_dict() for layer in layers)
    assert "bn_edge.running_var" in mine
    for key, value in other.items():
        torch.testing.assert_close(mine[key], value, msg=key)


def test_evaluation_uses_the_tracked_statistics(device):
    graph = regular()
    layers = GATED(4, 4, 4, 0.5)
    for layer in layers:
        with torch.no_grad():
            layer.bn_node.running_mean.add_(0.5)
            layer.bn_edge.running_var.mul_(2)
        layer.eval()
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph, 4))


def test_dropout_draws_nodes_first_and_edges_after():
    graph = regular()
    outputs = []
    for layer in GATED(4, 4, 4, 0.5):
        torch.manual_seed(11)
        outputs.append(layer(graph, features(graph, 4), efeat(graph, 4)))
    for found, expected in zip(*outputs, strict=True):
        torch.testing.assert_close(found, expected)
    assert (outputs[0][1] == 0).float().mean() > 0.3


def test_one_node_is_no_batch():
    graph = dgl.graph(([0], [0]))
    calls = [partial(layer, graph, draw(1, 4), draw(1, 3)) for layer in GATED(4, 3, 5)]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_path_by_hand(device):
    """Edge 0 has a gate of 1/2, edge 1 one of almost 1; both are divided out."""
    layer = GATED(1, 1, 1, batch_norm=False, residual=False, activation=None)[0].to(device)
    with torch.no_grad():
        for linear in (layer.A, layer.B, layer.C, layer.D, layer.E):
            linear.weight.zero_()
            linear.bias.zero_()
        layer.A.weight.fill_(1)
        layer.B.weight.fill_(2)
        layer.C.weight.fill_(1)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    out, edges = layer(path(), feat, torch.tensor([[0.0], [50.0]], device=device))
    assert out.flatten().tolist() == pytest.approx([1, 12, 120], rel=1e-5)
    assert edges.flatten().tolist() == [0, 50]


def test_ends_of_an_edge_have_matrices_of_their_own(device):
    """D belongs to the source, E to the destination."""
    layer = GATED(1, 1, 1, batch_norm=False, residual=False, activation=None)[0].to(device)
    with torch.no_grad():
        for linear in (layer.C, layer.D, layer.E):
            linear.weight.zero_()
            linear.bias.zero_()
        layer.D.weight.fill_(1)
        layer.E.weight.fill_(3)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    _, edges = layer(path(), feat, torch.zeros(2, 1, device=device))
    assert edges.flatten().tolist() == [31, 310]


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    error = raised(partial(GATED(4, 3, 5)[0], graph, feat, efeat(graph)))
    assert isinstance(error, dgl.DGLError)
    assert "GatedGCNConv: expected a homogeneous graph" in str(error)


def test_features_of_other_edges_are_refused():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 4), draw(29, 3)) for layer in GATED(4, 3, 5)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError


def test_own_container(device):
    graph = regular()
    layer = GATED(4, 3, 5)[0].to(device)
    feat, given = features(graph, 4).to(device), efeat(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    for found, expected in zip(layer(own, feat, given), layer(graph, feat, given), strict=True):
        torch.testing.assert_close(found, expected)


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    GATED(4, 3, 5)[0](graph, features(graph, 4), efeat(graph))
    assert not graph.ndata
    assert not graph.edata
