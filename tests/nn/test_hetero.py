"""Our convolutions inside DGL's HeteroGraphConv."""

from __future__ import annotations

from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import dgl
import pytest
import torch

from tests.graphs import two_relations
from tests.nn.common import draw, ours, raised, theirs
from tests.nn.layers import LAYERS, WIDTH, having, to, with_two_sides

# DGL's, about relations without edges.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not contain valid edges")
with_flag = pytest.mark.parametrize(
    "name",
    [
        name
        for name in having(two_sides=True)
        if hasattr(LAYERS[name].make(), "_allow_zero_in_degree")
    ],
)


def wrapped(library, name, etypes):
    return theirs.HeteroGraphConv(
        {etype: LAYERS[name].make(library) for etype in etypes}, aggregate="sum"
    )


def feats(graph, device="cpu"):
    return {
        ntype: draw(graph.num_nodes(ntype), WIDTH, seed=i).to(device)
        for i, ntype in enumerate(graph.ntypes)
    }


def further(name, graph, device="cpu"):
    """What the layers take beside the features of the nodes, by relation."""
    arguments = {}
    for etype in graph.canonical_etypes:
        _, *others = to(LAYERS[name].inputs(graph[etype]), device).values()
        arguments[etype[1]] = tuple(others)
    return arguments


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for ntype, value in expected.items():
        torch.testing.assert_close(found[ntype].cpu(), value)


@with_two_sides
def test_two_relations(name, device):
    graph = two_relations()
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    found = mine.to(device)(graph, feats(graph, device), mod_args=further(name, graph, device))
    assert_equal(found, other(graph, feats(graph), mod_args=further(name, graph)))


@with_two_sides
def test_canonical_keys(name):
    graph = two_relations()
    mine, other = (wrapped(library, name, graph.canonical_etypes) for library in (ours, theirs))
    given = feats(graph), further(name, graph)
    assert_equal(mine(graph, given[0], given[1]), other(graph, given[0], given[1]))


@with_two_sides
def test_relation_without_edges(name):
    graph = dgl.heterograph(
        {("a", "some", "b"): ([0, 1], [1, 0]), ("b", "none", "a"): ([], [])},
        num_nodes_dict={"a": 2, "b": 3},
    )
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    given = feats(graph), further(name, graph)
    assert_equal(mine(graph, given[0], given[1]), other(graph, given[0], given[1]))


@with_two_sides
def test_source_type_that_is_not_fed(name):
    """Without features of items as sources, their relation is left out."""
    graph = dgl.heterograph(
        {("a", "sends", "b"): ([0, 1], [1, 0]), ("b", "returns", "a"): ([0, 1], [0, 1])}
    )
    given = feats(graph)
    pair = {"a": given["a"]}, given
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    arguments = further(name, graph)
    found = mine(graph, pair, arguments)
    assert set(found) == {"b"}
    assert_equal(found, other(graph, pair, arguments))


@with_two_sides
def test_blocks_of_several_relations(name):
    graph = two_relations()
    seeds = {"user": torch.tensor([0, 2]), "item": torch.tensor([2, 4, 0])}
    part = dgl.to_block(dgl.in_subgraph(graph, seeds), seeds)
    given = {ntype: draw(part.num_src_nodes(ntype), WIDTH) for ntype in part.srctypes}
    arguments = further(name, part)
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    assert_equal(mine(part, given, arguments), other(part, given, arguments))


@with_flag
def test_wrapping_allows_zero_in_degrees(name):
    """DGL's wrapper calls the setter of each layer."""
    graph = two_relations()
    mine = wrapped(ours, name, graph.etypes)
    assert all(layer._allow_zero_in_degree for layer in mine.mods.values())
    for layer in mine.mods.values():
        layer.set_allow_zero_in_degree(False)
    other = wrapped(theirs, name, graph.etypes)
    for layer in other.mods.values():
        layer.set_allow_zero_in_degree(False)
    given = feats(graph), further(name, graph)
    errors = [raised(partial(layer, graph, *given)) for layer in (mine, other)]
    assert type(errors[0]) is type(errors[1]) is dgl.DGLError
    assert str(errors[0]) == str(errors[1])


@with_two_sides
def test_a_heterograph_without_a_relation_is_dgls_error(name):
    graph, layer = two_relations(), LAYERS[name]
    inputs = layer.inputs(graph["rates"])
    assert isinstance(raised(partial(layer.call, layer.make(), graph, inputs)), dgl.DGLError)
