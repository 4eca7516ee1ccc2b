"""Orders are permutations, the same on every device, and do what their names say."""

from __future__ import annotations

import itertools

import pytest
import torch

from dgl_flash.reordering.communities import Links, communities, links_of
from dgl_flash.reordering.orders import ORDERS, Undirected, community_order, degree_order, rcm_order
from dgl_flash.reordering.permuting import permuted_structure
from dgl_flash.reordering.result import places_of
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.windows import window_statistics
from tests.graphs import zoo

SQUARE = {
    name: build
    for name, build in zoo().items()
    if name not in ("bipartite_up", "bipartite_down", "block", "two_relations", "relation_slice")
}


def shuffled_cliques(groups: int, size: int, seed: int = 0) -> tuple[GraphStructure, torch.Tensor]:
    """Complete groups and a ring of single edges between them; and the group of each node."""
    inside = torch.ones(size, size).nonzero().t()
    first = torch.arange(groups).mul(size).view(-1, 1, 1)
    ends = (inside + first).transpose(0, 1).reshape(2, -1)
    ring = torch.arange(groups) * size
    ends = torch.cat([ends, torch.stack([ring, ring.roll(1)])], dim=1)
    places = torch.randperm(groups * size, generator=torch.Generator().manual_seed(seed))
    group = torch.empty_like(places)
    group[places] = torch.arange(groups * size) // size
    src, dst = places[ends]
    return GraphStructure.from_coo(src, dst, groups * size, groups * size), group


@pytest.mark.parametrize("method", ORDERS)
@pytest.mark.parametrize("name", SQUARE)
def test_every_node_comes_once(name, method, device):
    struct = structure(SQUARE[name](torch.int64))
    order = ORDERS[method](Undirected(struct.to(device)))
    assert order.device == device
    assert torch.equal(order.sort().values, torch.arange(struct.num_src, device=device))
    assert torch.equal(
        order.cpu(), ORDERS[method](Undirected(struct))
    )  # the same everywhere, every time


def test_degrees_descend(device):
    struct = structure(SQUARE["power_law"](torch.int64)).to(device)
    degrees = struct.in_degrees() + struct.out_degrees()
    ordered = degrees[degree_order(Undirected(struct))]
    assert (ordered[1:] <= ordered[:-1]).all()
    ties = torch.zeros(4, dtype=torch.int64)
    assert degree_order(Undirected(GraphStructure.from_coo(ties[:0], ties[:0], 4, 4))).tolist() == [
        0,
        1,
        2,
        3,
    ]


def test_a_path_becomes_narrow():
    places = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    struct = GraphStructure.from_coo(places[:-1], places[1:], 50, 50)
    src, dst = permuted_structure(struct, places_of(rcm_order(Undirected(struct)))).edges()
    assert (src - dst).abs().max() == 1


def test_edges_between_two_nodes_do_not_cancel():
    """256 of them are none where a byte counts them."""
    src = torch.tensor([0] * 256 + [1])
    dst = torch.tensor([2] * 256 + [2])
    order = rcm_order(Undirected(GraphStructure.from_coo(src, dst, 3, 3))).tolist()
    assert order.index(2) == 1


def test_communities_of_cliques(device):
    struct, group = shuffled_cliques(40, 16)
    order = community_order(Undirected(struct.to(device))).cpu()
    assert (group[order].view(40, 16) == group[order][::16].view(40, 1)).all()
    reordered = permuted_structure(struct, places_of(order))
    assert window_statistics(struct.in_adj, 16).edges_per_column < 2
    assert window_statistics(reordered.in_adj, 16).edges_per_column > 15


def test_levels_refine_each_other(device):
    struct, group = shuffled_cliques(60, 8)
    src, dst = (ends.to(device) for ends in struct.edges())
    apart = src != dst
    rows, columns = torch.cat([dst, src])[apart.repeat(2)], torch.cat([src, dst])[apart.repeat(2)]
    levels = communities(links_of(rows, columns, struct.num_src))
    assert len(levels) > 1
    for fine, coarse in itertools.pairwise(levels):
        pairs = torch.unique(torch.stack([fine, coarse], dim=1), dim=0)
        assert pairs.shape[0] == int(fine.max()) + 1  # each lies in one
        assert coarse.max() <= fine.max()
    together = torch.unique(torch.stack([group.to(device), levels[-1]], dim=1), dim=0)
    assert together.shape[0] == 60  # no clique is torn in the end


def test_nothing_to_join():
    none = torch.zeros(0, dtype=torch.int64)
    assert [labels.tolist() for labels in communities(links_of(none, none, 3))] == [[0, 1, 2]]
    assert [labels.tolist() for labels in communities(links_of(none, none, 0))] == [[]]


def test_heavy_links_stay_exact():
    """Products of weights and degrees of large graphs fit into int64."""
    pairs = torch.arange(16).view(8, 2)
    rows, columns = torch.cat([pairs, pairs.flip(1)]).unbind(1)
    heavy = torch.full((16,), 2**27)
    found = communities(Links(rows, columns, heavy, heavy))[0][pairs]
    assert (found[:, 0] == found[:, 1]).all()
    assert found.unique().numel() == 8
