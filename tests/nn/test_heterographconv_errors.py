"""HeteroGraphConv refuses what DGL's refuses, in its words, and what is no graph in ours."""

from __future__ import annotations

from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest

import dgl_flash
from tests.nn.common import draw, raised
from tests.nn.test_heterographconv import RELATIONS, block_of, container, feats, graph_of

# DGL's, about relations without edges.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not contain valid edges")


def both(**options):
    return container(ours, ours, **options), container(theirs, theirs, **options)


def assert_same_error(calls, kind):
    errors = [raised(call) for call in calls]
    assert type(errors[0]) is type(errors[1]) is kind
    assert str(errors[0]) == str(errors[1])


def test_unknown_aggregator():
    calls = [partial(lib.HeteroGraphConv, {}, "median") for lib in (ours, theirs)]
    assert_same_error(calls, dgl.DGLError)


def test_relation_without_a_layer():
    given = graph_of(), feats(graph_of())
    assert_same_error([partial(lay, *given) for lay in both(keys=["follows"])], KeyError)
    for etype in ("nothing", ("a", "nothing", "b")):
        assert_same_error([partial(lay._get_module, etype) for lay in both()], KeyError)
    for layer in both(keys=[*RELATIONS, "rates"]):
        assert layer._get_module("rates") is layer.mods["rates"]
        relation = ("user", "rates", "item")
        assert layer._get_module(relation) is layer.mods[str(relation)]


def test_destinations_without_features():
    assert_same_error([partial(lay, graph_of(), {"user": draw(4, 5)}) for lay in both()], KeyError)


def test_features_of_a_type_that_a_block_has_not():
    given = {**feats(block_of()), "planet": draw(3, 5)}
    assert_same_error([partial(lay, block_of(), given) for lay in both()], dgl.DGLError)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max"])
def test_results_of_several_shapes(aggregate):
    calls = []
    for library in (ours, theirs):
        mods = {"rates": library.GraphConv(5, 3), "sells": library.GraphConv(5, 4)}
        layer = library.HeteroGraphConv(mods, aggregate)
        pair = feats(graph_of()), feats(graph_of())
        calls.append(partial(layer, graph_of().edge_type_subgraph(["rates", "sells"]), pair))
    assert_same_error(calls, RuntimeError)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max"])
def test_results_that_are_no_tensors(aggregate):
    named = {"rates": {"get_attention": True}}
    layers = both(conv="GATConv", aggregate=aggregate)
    calls = [partial(lay, graph_of(), feats(graph_of()), None, named) for lay in layers]
    assert_same_error(calls, TypeError)


def test_zero_in_degree_is_allowed_and_can_be_forbidden():
    layers = both(conv="GATConv")
    for layer in layers:
        for module in layer.mods.values():
            assert module._allow_zero_in_degree
            module.set_allow_zero_in_degree(False)
    calls = [partial(lay, graph_of(), feats(graph_of())) for lay in layers]
    assert_same_error(calls, dgl.DGLError)
    assert "0-in-degree" in str(raised(calls[0]))


def test_what_is_no_heterograph():
    layer, given = container(ours, ours), feats(graph_of())
    with pytest.raises(TypeError, match=r"HeteroGraphConv: .* got dict; did you swap"):
        layer(given, graph_of())
    own = dgl_flash.graph(([0, 1], [1, 2]))
    with pytest.raises(TypeError, match=r"HeteroGraphConv: .* got Graph; .* layer\(graph, feat\)"):
        layer(own, {"_N": draw(3, 5)})
    with pytest.raises(TypeError, match="expected `inputs` to be a dict"):
        layer(graph_of(), given["user"])
    with pytest.raises(TypeError, match="expected `inputs` to be a dict"):
        layer(graph_of(), (given["user"], given["item"]))
