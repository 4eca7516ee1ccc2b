"""ChebConv gives DGL's outputs and gradients."""

from __future__ import annotations

import warnings
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import batched, bipartite_up, block, coo_only, path, regular, two_relations, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    features,
    homogeneous_graph,
    raised,
    twins,
)

CHEB = partial(twins, "ChebConv")
DEFAULT = "lambda_max is not provided, using default value of 2.  "
unwarned = pytest.mark.filterwarnings("ignore:lambda_max is not provided")


@unwarned
@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(CHEB(4, 3, 3), graph, features(graph, 4), device)


@unwarned
@every_idtype
@pytest.mark.parametrize("builder", [batched, regular, coo_only])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(CHEB(4, 3, 2), graph, features(graph, 4), device)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("bias", [False, True])
def test_number_of_terms(k, bias, device):
    graph = regular()
    layers = CHEB(4, 3, k, bias=bias)
    assert_same(layers, graph, features(graph, 4), device, lambda_max=[1.7])


@pytest.mark.parametrize("activation", [None, torch.tanh, nn.ELU()], ids=["none", "tanh", "ELU"])
def test_activation(activation, device):
    graph = regular()
    layers = CHEB(4, 3, 3, activation=activation)
    assert_same(layers, graph, features(graph, 4), device, lambda_max=[1.7])


@pytest.mark.parametrize(
    "lambda_max",
    [[1.5], torch.tensor([1.5]), torch.tensor([[1.5]]), torch.tensor([[1.5, 1.6, 1.7, 1.8]])],
    ids=["list", "(1,)", "(1, 1)", "(1, width)"],
)
def test_lambda_max_of_one_graph(lambda_max, device):
    graph = regular()
    assert_same(CHEB(4, 3, 4), graph, features(graph, 4), device, lambda_max=lambda_max)


@pytest.mark.parametrize("as_tensor", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_lambda_max_of_a_batch(as_tensor, columns, device):
    graph = batched()
    values = [1.5, 1.6, 1.7, 1.8]
    lambda_max = torch.tensor(values) if as_tensor else values
    if columns:
        lambda_max = torch.tensor(values).unsqueeze(-1)
    assert_same(CHEB(4, 3, 4), graph, features(graph, 4), device, lambda_max=lambda_max)


def test_one_lambda_max_serves_a_batch(device):
    graph = batched()
    layer = CHEB(4, 3, 3)[0].to(device)
    feat = features(graph, 4).to(device)
    expected = layer(graph, feat, [1.5] * 4)
    torch.testing.assert_close(layer(graph, feat, [1.5]), expected)


def test_too_few_values_for_a_batch():
    graph = batched()
    mine, other = (
        raised(partial(layer, graph, features(graph, 4), [1.5, 1.6])) for layer in CHEB(4, 3, 3)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_too_many_values_for_a_graph():
    """DGL warns first, and then fails in the same way."""
    graph = regular()
    error = raised(partial(CHEB(4, 3, 3)[0], graph, features(graph, 4), [1.5, 1.6]))
    assert type(error) is RuntimeError
    assert "must match the size" in str(error)


def test_default_lambda_max_warns_at_the_callers_line():
    graph = regular()
    texts = []
    for layer in CHEB(4, 3, 2):
        with pytest.warns(dgl.base.DGLWarning, match=DEFAULT) as caught:
            layer(graph, features(graph, 4))
        texts.append(str(caught[0].message))
        if isinstance(layer, dgl_flash.nn.ChebConv):
            assert caught[0].filename == __file__
    assert texts[0] == texts[1]


@unwarned
def test_features_of_integers(device):
    """The factors of the degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, 4)).long()
    mine, other = CHEB(4, 3, 3)
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


def test_lambda_max_is_not_rounded_to_the_integers_of_the_features(device):
    """As DGL does."""
    graph = regular()
    feat = (10 * features(graph, 4)).long().to(device)
    layer = CHEB(4, 3, 3)[0].to(device)
    expected = layer(graph, feat.float(), [1.8])
    assert torch.equal(layer(graph, feat, [1.8]), expected)


def test_default_is_two(device):
    graph = regular()
    layer = CHEB(4, 3, 4)[0].to(device)
    feat = features(graph, 4).to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = layer(graph, feat)
    torch.testing.assert_close(found, layer(graph, feat, [2.0]))


def test_path_by_hand(device):
    """In-degrees 0, 1, 1, of which 0 counts as 1: the Laplacian moves features one step on."""
    layer = CHEB(1, 2, 2, activation=None, bias=False)[0].to(device)
    with torch.no_grad():
        layer.linear.weight.copy_(torch.eye(2))
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device), [1.0])
    # Z^1 = (2 / 1 - 1) Z^0 - 2 A Z^0
    assert out.tolist() == [[1, 1], [10, 8], [100, 80]]


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    mine, other = (raised(partial(layer, graph, feat, [2.0])) for layer in CHEB(4, 3, 2))
    assert type(mine) is type(other) is dgl.DGLError
    assert "ChebConv: expected a homogeneous graph" in str(mine)


def test_several_relations_are_refused_in_dgls_words():
    graph = two_relations()
    mine, other = (raised(partial(layer, graph, draw(10, 4), [2.0])) for layer in CHEB(4, 3, 2))
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_own_container(device):
    graph = regular()
    layer = CHEB(4, 3, 3)[0].to(device)
    feat = features(graph, 4).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, [1.9]), layer(graph, feat, [1.9]))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    CHEB(4, 3, 3)[0](graph, features(graph, 4), [1.9])
    assert not graph.ndata
    assert not graph.edata
