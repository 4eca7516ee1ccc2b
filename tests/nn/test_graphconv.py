"""GraphConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import batched, bipartite_down, bipartite_up, block, path, regular, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    for_dgl,
    raised,
    twins,
)

GCN = partial(twins, "GraphConv")
ANY_DEGREE = {"allow_zero_in_degree": True}
every_norm = pytest.mark.parametrize("norm", ["both", "left", "right", "none"])
# Narrowing projects before the sum, widening after it.
every_order = pytest.mark.parametrize("widths", [(7, 3), (3, 7), (4, 4)], ids=str)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(GCN(4, 3, **ANY_DEGREE), graph, features(graph, 4), device)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(GCN(4, 3, **ANY_DEGREE), graph, features(graph, 4), device)


@every_norm
@every_order
@pytest.mark.parametrize("builder", [regular, block, bipartite_up, bipartite_down])
@pytest.mark.parametrize("weighted", [False, True])
def test_norms(norm, widths, builder, weighted, device):
    graph = builder()
    edge_weight = draw(graph.num_edges(), seed=5) if weighted else None
    layers = GCN(*widths, norm=norm, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, widths[0]), device, edge_weight=edge_weight)


@every_norm
@every_order
@pytest.mark.parametrize("extra", [(2,), (2, 3)], ids=str)
def test_leading_dimensions(norm, widths, extra, device):
    graph = regular()
    assert_same(GCN(*widths, norm=norm), graph, features(graph, widths[0], *extra), device)


@every_order
@pytest.mark.parametrize("shape", [(1,), (1, 1), ("width",), (2, "width"), (2, 1), (1, "width")])
def test_edge_weights_align_with_the_last_dimensions(widths, shape, device):
    graph = regular()
    width = min(widths)  # the sum is made in the narrower of both
    shape = [width if size == "width" else size for size in shape]
    edge_weight = draw(graph.num_edges(), *shape, seed=5)
    feat = features(graph, widths[0], 2)
    assert_same(GCN(*widths), graph, feat, device, edge_weight=edge_weight)


@every_order
def test_one_edge_weight_per_feature(widths, device):
    graph = regular()
    edge_weight = draw(graph.num_edges(), min(widths), seed=5)
    feat = features(graph, widths[0])
    assert_same(GCN(*widths), graph, feat, device, edge_weight=edge_weight)


@pytest.mark.parametrize("norm", ["none", "left"])
@pytest.mark.parametrize(
    ("sizes", "shape"),
    [
        ((1,), (5,)),
        ((2, 1), (5,)),
        ((1, 4), (2, 4)),
        ((4,), (1, 1)),
        ((4,), (2, 1)),
        ((2, 3, 4), (2, 1, 4)),
        ((2, 1, 4), (1, 3, 1)),
    ],
    ids=str,
)
def test_edge_weights_and_features_broadcast(sizes, shape, norm, device):
    graph = regular()
    layers = GCN(sizes[-1], sizes[-1], norm=norm, weight=False, bias=False)
    feat = draw(graph.num_nodes(), *sizes)
    edge_weight = draw(graph.num_edges(), *shape, seed=5)
    assert_same(layers, graph, feat, device, edge_weight=edge_weight)


@every_norm
@every_order
def test_edge_weights_of_more_dimensions_than_the_features(norm, widths, device):
    """DGL scales the wrong dimension by the in-degrees."""
    graph = regular()
    layer = GCN(*widths, norm=norm)[0].to(device)
    feat = features(graph, widths[0]).to(device)
    edge_weight = draw(graph.num_edges(), 2, 1, seed=5).to(device)
    parts = [layer(graph, feat, edge_weight=edge_weight[:, i, 0]) for i in range(2)]
    out = layer(graph, feat, edge_weight=edge_weight)
    torch.testing.assert_close(out, torch.stack(parts, dim=1))


def test_edge_weights_that_do_not_broadcast():
    graph = regular()
    calls = [
        partial(layer, graph, features(graph, 4), edge_weight=torch.ones(30, 2))
        for layer in GCN(4, 4)
    ]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@every_order
@pytest.mark.parametrize("norm", ["both", "left"])
def test_features_of_integers(norm, widths, device):
    """The factors of the out-degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, widths[0])).long()
    mine, other = GCN(*widths, norm=norm)
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


@every_order
@pytest.mark.parametrize("bias", [False, True])
def test_external_weight(widths, bias, device):
    graph = regular()
    layers = GCN(*widths, weight=False, bias=bias)
    assert_same(layers, graph, features(graph, widths[0]), device, weight=draw(*widths, seed=3))


@pytest.mark.parametrize("activation", [torch.tanh, nn.ELU()], ids=["function", "module"])
def test_activation(activation, device):
    graph = regular()
    assert_same(GCN(4, 3, activation=activation), graph, features(graph, 4), device)


def test_without_weight_and_bias(device):
    graph = regular()
    assert_same(GCN(4, 4, weight=False, bias=False), graph, features(graph, 4), device)


@pytest.mark.parametrize("edge_weight", [None, [2.0, -3.0], [0.0, 4.0]], ids=str)
@pytest.mark.parametrize(
    ("norm", "factors"),
    [("none", (1, 1)), ("left", (1, 1)), ("right", (1, 1)), ("both", (1, 1))],
)
def test_path_by_hand(norm, factors, edge_weight, device):
    """0 -> 1 -> 2 has degrees of 1 only: every norm copies the (weighted) features one step on."""
    weights = [1.0, 1.0] if edge_weight is None else edge_weight
    layer = GCN(1, 1, norm=norm, weight=False, bias=False, **ANY_DEGREE)[0].to(device)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    given = None if edge_weight is None else torch.tensor(edge_weight, device=device)
    out = layer(path(), feat, edge_weight=given)
    expected = [0.0, factors[0] * weights[0] * 1.0, factors[1] * weights[1] * 10.0]
    assert out.flatten().tolist() == expected


@pytest.mark.parametrize(
    ("norm", "expected"),
    [("none", [0, 0, 12]), ("left", [0, 0, 6]), ("right", [0, 0, 6]), ("both", [0, 0, 6])],
)
def test_fan_by_hand(norm, expected, device):
    """0 and 1 send to 2 and each to one more: out-degrees 2, in-degree 2."""
    graph = dgl.graph(([0, 1, 0, 1], [2, 2, 3, 3]), num_nodes=4)
    layer = GCN(1, 1, norm=norm, weight=False, bias=False, **ANY_DEGREE)[0].to(device)
    out = layer(graph, torch.tensor([[4.0], [8.0], [0.0], [0.0]], device=device))
    assert out.flatten()[:3].tolist() == pytest.approx(expected)


@every_norm
def test_block_of_five_sources_and_two_destinations(norm, device):
    """Out-degrees are those of the block's sources, in-degrees those of its destinations."""
    graph = dgl.to_block(dgl.graph(([0, 1, 2, 3, 4, 2], [0, 0, 1, 1, 0, 0])), torch.tensor([0, 1]))
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (5, 2)
    assert_same(GCN(4, 3, norm=norm), graph, draw(5, 4), device)


def test_only_the_source_part_of_a_pair_is_read(device):
    graph = bipartite_up()
    layer = GCN(4, 3, **ANY_DEGREE)[0].to(device)
    feat = draw(3, 4).to(device)
    assert torch.equal(layer(graph, (feat, None)), layer(graph, (feat, draw(5, 4).to(device))))


def test_weight_gradient_is_a_dot_product(device):
    graph = regular()
    layer = GCN(4, 4, norm="none", weight=False, bias=False)[0].to(device)
    feat = features(graph, 4).to(device)
    edge_weight = draw(graph.num_edges(), seed=5).to(device).requires_grad_()
    grad_out = draw(graph.num_nodes(), 4, seed=6).to(device)
    layer(graph, feat, edge_weight=edge_weight).backward(grad_out)
    src, dst = (end.to(device) for end in graph.edges())
    expected = (feat[src] * grad_out[dst]).sum(1)
    torch.testing.assert_close(edge_weight.grad, expected)


def test_two_weights_are_one_too_many():
    graph = regular()
    calls = [
        partial(layer, graph, features(graph, 4), weight=torch.zeros(4, 3)) for layer in GCN(4, 3)
    ]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_unknown_norm():
    mine, other = (
        raised(partial(library.nn.GraphConv, 4, 3, norm="all")) for library in (dgl_flash, dgl)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = GCN(4, 3)
    feat = features(graph, 4)
    torch.testing.assert_close(mine(graph, feat), other(for_dgl(graph), feat))
    assert not graph.ndata
    assert not graph.edata
