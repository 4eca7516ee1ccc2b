"""LabelPropagation gives DGL's labels, and what the formula says in float64."""

from __future__ import annotations

import itertools
from functools import partial

import dgl_flash.nn.utils

# isort: split
import pytest
import torch

from tests.graphs import batched, bipartite_up, block, empty, isolated_rows, regular, zoo
from tests.nn.common import draw, every_idtype, for_dgl, homogeneous_graph, raised, twins
from tests.numerics import assert_accurate

PROPAGATION = partial(twins, "LabelPropagation")
FLAGS = ("clamp", "normalize", "reset")


def classes(graph, num_classes=3):
    labels = torch.arange(graph.num_nodes()) * 7 % num_classes
    labels[:1] = num_classes - 1  # the largest one decides on the width
    return labels


def known(graph):
    return torch.arange(graph.num_nodes()) % 3 != 1


def formula(layer, graph, labels, mask):
    """Each step with a dense matrix."""
    wide = labels.double()
    start = wide.clone()
    if mask is not None:
        start[~mask] = 0
    src, dst = for_dgl(graph).edges(order="eid")
    size = graph.num_nodes()
    adjacency = torch.zeros(size, size, dtype=torch.float64)
    adjacency.index_put_((dst.long(), src.long()), torch.ones(()).double(), accumulate=True)
    in_degree, out_degree = (adjacency.sum(dim).clamp(min=1) for dim in (1, 0))
    if layer.norm_type == "sym":
        adjacency = adjacency / (in_degree[:, None] * out_degree).sqrt()
    else:
        adjacency = adjacency / in_degree[:, None]
    found = start
    for _ in range(layer.k):
        found = (1 - layer.alpha) * start + layer.alpha * adjacency @ found
        if layer.clamp:
            found = found.clamp(0, 1)
        if layer.normalize:
            found = found / found.abs().sum(1, keepdim=True).clamp(min=1e-12)
        if layer.reset:
            found = wide if mask is None else torch.where(mask[:, None], wide, found)
    return found


def assert_propagates(layers, graph, labels, mask, device):
    mine, other = layers
    there = [None if given is None else given.to(device) for given in (labels, mask)]
    copies = [None if given is None else given.clone() for given in there]
    found = mine.to(device)(graph, *there)
    usual = other(for_dgl(graph), labels, mask)
    one_hot = labels
    if labels.dim() == 1 or labels.shape[1] == 1:
        one_hot = torch.nn.functional.one_hot(labels.view(-1))
    assert_accurate(found.cpu(), usual, formula(mine, graph, one_hot, mask), ulps=16)
    for given, copy in zip(there, copies, strict=True):
        assert given is None or torch.equal(given, copy)


@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    labels = draw(graph.num_nodes(), 3).abs()
    assert_propagates(PROPAGATION(3, 0.7), graph, labels, known(graph), device)


@every_idtype
def test_both_id_types(idtype, device):
    graph = batched(idtype)
    assert_propagates(PROPAGATION(3, 0.7), graph, classes(graph), known(graph), device)


@pytest.mark.parametrize("norm_type", ["sym", "row"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("flags", list(itertools.product([False, True], repeat=3)), ids=str)
def test_options(norm_type, masked, flags, device):
    graph = isolated_rows()
    layers = PROPAGATION(4, 0.8, norm_type, **dict(zip(FLAGS, flags, strict=True)))
    mask = known(graph) if masked else None
    assert_propagates(layers, graph, classes(graph), mask, device)


@pytest.mark.parametrize("k", [0, 1, 20])
@pytest.mark.parametrize("alpha", [0, 0.5, 1])
def test_steps(k, alpha, device):
    graph = regular()
    assert_propagates(PROPAGATION(k, alpha), graph, classes(graph), known(graph), device)


@pytest.mark.parametrize("kind", ["classes", "column", "one-hot", "many labels", "float64"])
def test_labels(kind, device):
    graph = regular()
    labels = {
        "classes": classes(graph),
        "column": classes(graph).unsqueeze(1),
        "one-hot": torch.nn.functional.one_hot(classes(graph)),
        "many labels": (draw(10, 5) > 0).long(),
        "float64": draw(10, 5).double(),
    }[kind]
    layers = PROPAGATION(3, 0.5, clamp=False)
    assert_propagates(layers, graph, labels, known(graph), device)
    assert layers[0](graph, labels.to(device)).dtype == torch.float32


def test_no_edges(device):
    graph = empty()
    assert_propagates(PROPAGATION(3, 0.5), graph, classes(graph), None, device)


def test_unknown_norm():
    graph = regular()
    mine, other = (
        raised(partial(layer, graph, classes(graph))) for layer in PROPAGATION(1, 0.5, "column")
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    labels = torch.arange(graph.num_src_nodes())
    mine, other = PROPAGATION(2, 0.5)
    assert raised(partial(other, graph, labels))
    assert "homogeneous" in str(raised(partial(mine, graph, labels)))


def test_only_the_graph_is_read():
    graph = regular()
    PROPAGATION(2, 0.5)[0](graph, classes(graph))
    assert not graph.ndata
    assert not graph.edata


def test_module_of_the_class():
    assert dgl_flash.nn.LabelPropagation is dgl_flash.nn.utils.LabelPropagation
    assert dgl_flash.nn.LabelPropagation.__module__ == "dgl_flash.nn.utils"
