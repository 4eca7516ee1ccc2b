"""SGConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import dgl
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

ANY_DEGREE = {"allow_zero_in_degree": True}
SGC = partial(twins, "SGConv")
every_k = pytest.mark.parametrize("k", [0, 1, 2, 5])


def positive(graph, seed=5):
    return draw(graph.num_edges(), seed=seed).abs() + 0.1


@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(SGC(4, 3, k=2, **ANY_DEGREE), graph, features(graph, 4), device)


@every_idtype
def test_both_id_types(idtype, device):
    graph = batched(idtype)
    assert_same(SGC(4, 3, k=2, **ANY_DEGREE), graph, features(graph, 4), device)


@every_k
@pytest.mark.parametrize("widths", [(7, 3), (3, 7)], ids=str)
@pytest.mark.parametrize("builder", [regular, isolated_rows, multi_edges])
@pytest.mark.parametrize("weighted", [False, True])
def test_hops(k, widths, builder, weighted, device):
    """Learned weights, too, go through their normalisation."""
    graph = builder()
    layers = SGC(*widths, k=k, **ANY_DEGREE)
    edge_weight = positive(graph) if weighted else None
    assert_same(layers, graph, features(graph, widths[0]), device, edge_weight=edge_weight)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "norm", [None, torch.tanh, nn.LayerNorm(4)], ids=["none", "tanh", "LayerNorm"]
)
def test_bias_and_norm(bias, norm, device):
    graph = regular()
    assert_same(SGC(4, 3, bias=bias, norm=norm), graph, features(graph, 4), device)


def test_features_of_integers(device):
    """The factors of the degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, 4)).long()
    mine, other = SGC(4, 3, 2)
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


def test_leading_dimensions(device):
    """DGL scales them along the wrong dimension: each slice stands for itself."""
    graph = regular()
    layer = SGC(4, 3, k=2)[0].to(device)
    feat = features(graph, 4, 2).to(device)
    expected = torch.stack([layer(graph, feat[:, 0]), layer(graph, feat[:, 1])], dim=1)
    torch.testing.assert_close(layer(graph, feat), expected)


@pytest.mark.parametrize("weighted", [False, True])
def test_cache(weighted, device):
    """The first forward counts, for any later graph, features and edge weights, as in DGL."""
    graph, other_graph = regular(), random_graph(7, 30, seed=3)
    given = {"edge_weight": positive(graph).to(device)} if weighted else {}
    mine, other = SGC(4, 3, k=2, cached=True, norm=torch.tanh, **ANY_DEGREE)
    mine.to(device)
    first = mine(graph, features(graph, 4).to(device), **given)
    assert_same(SGC(4, 3, k=2, norm=torch.tanh), graph, features(graph, 4), device)
    expected = other(graph, features(graph, 4), **{key: w.cpu() for key, w in given.items()})
    torch.testing.assert_close(first.cpu(), expected)
    torch.testing.assert_close(mine._cached_h.cpu(), other._cached_h)
    again = mine(other_graph, torch.ones(7, 4, device=device))
    assert torch.equal(again, first)
    with torch.no_grad():
        mine.fc.weight.mul_(2)
    assert not torch.equal(mine(graph, features(graph, 4).to(device)), first)
    mine._cached_h = None
    assert mine(other_graph, torch.ones(7, 4, device=device)).shape == (7, 3)


def test_the_cache_keeps_what_dgl_keeps():
    """Features that require a gradient are cached with their autograd graph."""
    graph = regular()
    for layer in SGC(4, 3, cached=True):
        feat = features(graph, 4).requires_grad_()
        layer(graph, feat).sum().backward()
        assert feat.grad.abs().sum() > 0
        assert "_cached_h" not in layer.state_dict()
        assert isinstance(raised(layer(graph, feat).sum().backward), RuntimeError)


def test_a_cached_layer_still_checks_the_graph_and_the_weights():
    graph = regular()
    mine, other = SGC(4, 3, cached=True)
    for layer in (mine, other):
        layer(graph, features(graph, 4))
    for arguments in ((isolated_rows(), draw(9, 4)), (graph, draw(10, 4), -positive(graph))):
        found, expected = (raised(partial(layer, *arguments)) for layer in (mine, other))
        assert type(found) is type(expected) is dgl.DGLError
        assert str(found) == str(expected)


@pytest.mark.parametrize("builder", [empty, isolated_rows])
def test_zero_in_degree(builder, device):
    graph = builder()
    mine, other = SGC(4, 3)
    feat = features(graph, 4)
    expected = raised(partial(other, graph, feat))
    found = raised(partial(mine.to(device), graph, feat.to(device)))
    assert type(found) is type(expected) is dgl.DGLError
    assert str(found) == str(expected)
    mine.set_allow_zero_in_degree(True)
    assert mine(graph, feat.to(device)).shape == (graph.num_nodes(), 3)
    mine.set_allow_zero_in_degree(False)
    assert isinstance(raised(partial(mine, graph, feat.to(device))), dgl.DGLError)


def test_no_edges_give_the_bias(device):
    layers = SGC(4, 3, **ANY_DEGREE)
    found = assert_same(layers, empty(), draw(4, 4), device)
    assert torch.equal(found["out0"], layers[0].fc.bias.detach().expand(4, 3))
    assert not found["grad_feat0"].any()


@pytest.mark.parametrize(
    "edge_weight",
    [torch.ones(30, 1), -torch.ones(30), torch.ones(29)],
    ids=["two dimensions", "negative", "too few"],
)
def test_wrong_weights(edge_weight):
    graph = regular()
    mine, other = (raised(partial(layer, graph, draw(10, 4), edge_weight)) for layer in SGC(4, 3))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up, partial(random_bipartite, 5, 5, 9)])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    mine, other = SGC(4, 3, **ANY_DEGREE)
    assert raised(partial(other, graph, feat))
    assert "homogeneous" in str(raised(partial(mine, graph, feat)))


def test_compiles(device):
    graph = random_graph(20, 90)
    layer = SGC(4, 3, k=2, **ANY_DEGREE)[0].to(device)
    assert_compiles(layer, graph, features(graph, 4).to(device))


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = SGC(4, 3)
    feat, edge_weight = features(graph, 4), positive(graph)
    expected = other(for_dgl(graph), feat, edge_weight)
    torch.testing.assert_close(mine(graph, feat, edge_weight), expected)
    assert not graph.ndata
    assert not graph.edata
