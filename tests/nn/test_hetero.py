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

LAYERS = {
    "GATv2Conv": {"in_feats": 4, "out_feats": 3, "num_heads": 2},
    "GraphConv": {"in_feats": 4, "out_feats": 3},
}
every_layer = pytest.mark.parametrize("name", sorted(LAYERS))


def wrapped(library, name, etypes, **kwargs):
    torch.manual_seed(3)
    layers = {etype: getattr(library, name)(**LAYERS[name], **kwargs) for etype in etypes}
    return theirs.HeteroGraphConv(layers, aggregate="sum")


def feats(graph, device="cpu"):
    return {
        ntype: draw(graph.num_nodes(ntype), 4, seed=i).to(device)
        for i, ntype in enumerate(graph.ntypes)
    }


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for ntype, value in expected.items():
        torch.testing.assert_close(found[ntype].cpu(), value)


@every_layer
def test_two_relations(name, device):
    graph = two_relations()
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    assert_equal(mine.to(device)(graph, feats(graph, device)), other(graph, feats(graph)))


@every_layer
def test_canonical_keys(name):
    graph = two_relations()
    mine, other = (wrapped(library, name, graph.canonical_etypes) for library in (ours, theirs))
    assert_equal(mine(graph, feats(graph)), other(graph, feats(graph)))


@every_layer
def test_relation_without_edges(name):
    graph = dgl.heterograph(
        {("a", "some", "b"): ([0, 1], [1, 0]), ("b", "none", "a"): ([], [])},
        num_nodes_dict={"a": 2, "b": 3},
    )
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    assert_equal(mine(graph, feats(graph)), other(graph, feats(graph)))


@every_layer
def test_source_type_that_is_not_fed(name):
    """Without features of items as sources, their relation is left out."""
    graph = dgl.heterograph(
        {("a", "sends", "b"): ([0, 1], [1, 0]), ("b", "returns", "a"): ([0, 1], [0, 1])}
    )
    given = feats(graph)
    pair = {"a": given["a"]}, given
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    found = mine(graph, pair)
    assert set(found) == {"b"}
    assert_equal(found, other(graph, pair))


@every_layer
def test_blocks_of_several_relations(name):
    graph = two_relations()
    seeds = {"user": torch.tensor([0, 2]), "item": torch.tensor([2, 4, 0])}
    part = dgl.to_block(dgl.in_subgraph(graph, seeds), seeds)
    given = {ntype: draw(part.num_src_nodes(ntype), 4) for ntype in part.srctypes}
    mine, other = (wrapped(library, name, graph.etypes) for library in (ours, theirs))
    assert_equal(mine(part, given), other(part, given))


@every_layer
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
    errors = [raised(partial(layer, graph, feats(graph))) for layer in (mine, other)]
    assert type(errors[0]) is type(errors[1]) is dgl.DGLError
    assert str(errors[0]) == str(errors[1])


@every_layer
def test_a_heterograph_without_a_relation_is_dgls_error(name):
    graph = two_relations()
    layer = getattr(ours, name)(**LAYERS[name])
    assert isinstance(raised(partial(layer, graph, draw(4, 4))), dgl.DGLError)
