"""Structures with one self-loop at each node, numbered as DGL numbers them, built once."""

from __future__ import annotations

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from dgl_flash.structure import structure
from dgl_flash.structure.self_loops import with_self_loops
from tests.graphs import zoo
from tests.nn.common import TWO_NODE_SETS, for_dgl


@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS))
def test_edges_and_their_numbers(name, device):
    graph = zoo()[name](torch.int64)
    expected = dgl.add_self_loop(dgl.remove_self_loop(for_dgl(graph)))
    looped = with_self_loops(structure(graph, device))
    for found, wanted in zip(looped.edges(), expected.edges(order="eid"), strict=True):
        assert torch.equal(found.cpu(), wanted)
    assert looped.device == device or looped.device.type == device.type == "cuda"


def test_kept_with_the_graph_until_it_changes(device):
    graph = dgl.graph(([0, 1, 1], [1, 1, 2]))
    looped = with_self_loops(structure(graph, device))
    assert with_self_loops(structure(graph, device)) is looped
    graph.add_edges([2], [0])
    assert with_self_loops(structure(graph, device)).num_edges == looped.num_edges + 1


@pytest.mark.parametrize("reverse_first", [False, True])
def test_reverse_structures_share_it(reverse_first):
    struct = dgl_flash.structure.structure(dgl_flash.graph(([0, 1, 1], [1, 1, 2])))
    pair = [struct, struct.reverse()]
    if reverse_first:
        with_self_loops(pair[1])
    there, back = (with_self_loops(part).edges() for part in pair)
    assert torch.equal(there[0], back[1])
    assert torch.equal(there[1], back[0])
    assert there[0].tolist() == [0, 1, 0, 1, 2]
    assert there[1].tolist() == [1, 2, 0, 1, 2]
