"""Results and gradients are DGL's on every kind of graph, with ids of 32 and of 64 bits.

test_layers.py and test_blocks.py have some of these, and for all devices; the files of the layers
have the whole zoo.
"""

from __future__ import annotations

import dgl_flash  # noqa: F401

# isort: split
import dgl
import pytest
import torch

from tests.graphs import (
    bipartite_down,
    bipartite_up,
    block,
    multi_edges,
    random_graph,
    regular,
    relation_slice,
    self_loops,
    two_relations,
)
from tests.nn.common import draw, every_idtype, ours, theirs
from tests.nn.layers import LAYERS, WIDTH, on_graphs, to, with_two_sides
from tests.nn.verdicts import assert_dgls, judge
from tests.numerics import pseudo_random

# DGL's, which frees storages; and about relations without edges.
pytestmark = [
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not contain valid edges"),
]


def looped(graph):
    return dgl.add_self_loop(graph)


def homograph(idtype):
    """Multi-edges and loops, edge ids in no order."""
    return looped(multi_edges(idtype))


def larger(idtype):
    return looped(random_graph(40, 200, seed=5, idtype=idtype))


def batched(idtype):
    """Members of several sizes."""
    return dgl.batch([looped(random_graph(n, 3 * n, n, idtype)) for n in (5, 1, 9)])


def batch_of_regular(idtype):
    return dgl.batch([regular(idtype)] * 2)


ONE_SIDE = [homograph, larger, self_loops, batched, batch_of_regular]
TWO_SIDES = [block, bipartite_up, bipartite_down, relation_slice]


@on_graphs
@every_idtype
@pytest.mark.parametrize("builder", ONE_SIDE)
def test_one_set_of_nodes(name, builder, idtype):
    assert_dgls(name, builder(idtype), allow_zero_in_degree=True)


@with_two_sides
@every_idtype
@pytest.mark.parametrize("builder", TWO_SIDES)
def test_two_sets_of_nodes(name, builder, idtype):
    graph = builder(idtype)
    assert graph.idtype == idtype
    assert_dgls(name, graph, allow_zero_in_degree=True)


def in_heterograph(library, layer, graph, dtype):
    """Outputs and gradients of a layer for each relation, in the library's own wrapper."""
    wrapped = library.HeteroGraphConv(
        {etype: layer.make(library) for etype in graph.etypes}, aggregate="sum"
    ).to(dtype)
    feats = {
        ntype: draw(graph.num_nodes(ntype), WIDTH, seed=i).to(dtype).requires_grad_()
        for i, ntype in enumerate(graph.ntypes)
    }
    further = {
        etype: tuple(list(to(layer.inputs(graph[etype]), dtype).values())[1:])
        for etype in graph.etypes
    }
    outputs = wrapped(graph, feats, mod_args=further)
    sum((out * pseudo_random(out)).sum() for out in outputs.values()).backward()
    leaves = {**feats, **dict(wrapped.named_parameters())}
    grads = {f"grad_{key}": leaf.grad for key, leaf in leaves.items() if leaf.grad is not None}
    return {**{key: out.detach() for key, out in outputs.items()}, **grads}


@with_two_sides
@every_idtype
def test_heterographs(name, idtype):
    layer, graph = LAYERS[name], two_relations(idtype)
    found, usual, exact = (
        in_heterograph(library, layer, graph, dtype)
        for library, dtype in (
            (ours, torch.float32),
            (theirs, torch.float32),
            (theirs, torch.float64),
        )
    )
    assert found.keys() == usual.keys() == exact.keys()
    for key, value in found.items():
        judge(key, value, usual[key], exact[key])
