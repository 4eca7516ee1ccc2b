"""EdgeWeightNorm gives DGL's weights and gradients."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import dgl_flash.nn as ours
from tests.graphs import block, regular, zoo
from tests.nn.common import draw, every_graph, features, raised, run, theirs, twins
from tests.numerics import assert_accurate


def weights(graph, seed=0):
    return draw(graph.num_edges(), seed=seed).abs() + 0.1


@every_graph
@pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge function")
@pytest.mark.parametrize("norm", ["both", "right", "none"])
def test_zoo(name, norm, device):
    graph = zoo()[name](torch.int64)
    mine, other = twins("EdgeWeightNorm", norm=norm, eps=0.01)
    found = run(mine, graph, weights(graph), device, torch.float32)
    plain = graph if graph.is_block else graph.formats(["coo", "csr", "csc"])
    usual = run(other, plain, weights(graph), "cpu", torch.float32)
    exact = run(other, plain, weights(graph), "cpu", torch.float64)
    for key, value in found.items():
        assert_accurate(value.cpu(), usual[key], exact[key], what=key, ulps=64)


def test_a_weighted_gcn(device):
    """Weights of 1 are normalised by the degrees, as GraphConv does by itself."""
    graph = regular()
    norm, conv = ours.EdgeWeightNorm().to(device), ours.GraphConv(4, 3, norm="none").to(device)
    edge_weight = torch.ones(graph.num_edges(), device=device)
    feat = features(graph, 4).to(device)
    out = conv(graph, feat, edge_weight=norm(graph, edge_weight))
    by_degree = ours.GraphConv(4, 3).to(device)
    by_degree.load_state_dict(conv.state_dict())
    torch.testing.assert_close(out, by_degree(graph, feat))


def test_blocks_keep_their_edge_order(device):
    graph = block()
    edge_weight = weights(graph).to(device)
    _, dst = (end.to(device) for end in graph.edges(order="eid"))
    found = ours.EdgeWeightNorm("right")(graph, edge_weight)
    sums = torch.zeros(graph.num_dst_nodes(), device=device).index_add_(0, dst, edge_weight)
    torch.testing.assert_close(found, edge_weight / sums[dst])


def test_none_returns_a_new_tensor():
    graph = regular()
    edge_weight = weights(graph)
    found = ours.EdgeWeightNorm("none")(graph, edge_weight)
    assert torch.equal(found, edge_weight)
    assert found.data_ptr() != edge_weight.data_ptr()


@pytest.mark.parametrize(
    ("norm", "edge_weight"),
    [
        ("both", torch.ones(30, 2)),
        ("right", torch.ones(30, 1)),
        ("both", torch.zeros(30)),
        ("both", -torch.ones(30)),
        ("both", torch.ones(29)),
        ("right", torch.ones(31)),
        ("none", torch.ones(29)),
    ],
)
def test_errors(norm, edge_weight):
    errors = [
        raised(partial(library.EdgeWeightNorm(norm), regular(), edge_weight))
        for library in (ours, theirs)
    ]
    assert type(errors[0]) is type(errors[1])
    assert str(errors[0]) == str(errors[1])


def test_negative_weights_may_be_normalised_on_the_right():
    graph = regular()
    edge_weight = weights(graph) - 5
    found, expected = (
        library.EdgeWeightNorm("right")(graph, edge_weight) for library in (ours, theirs)
    )
    torch.testing.assert_close(found, expected)
