"""Where the edges of one side stand in the rows of the other: values, and what is kept of them."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from dgl_flash.structure import Adjacency, GraphStructure, structure
from dgl_flash.structure.places import SHORT_ROW, places_in_rows, positions_in_rows
from tests.graphs import bipartite_up, csc_only, power_law, zoo

FINDERS = ("out_places", "out_positions")
every_finder = pytest.mark.parametrize("name", FINDERS)


def edge_ids(adjacency: Adjacency) -> torch.Tensor:
    """Edge of each position."""
    ids = torch.arange(adjacency.num_edges, device=adjacency.device)
    return ids if adjacency.eids is None else adjacency.eids.long()


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", zoo())
def test_positions_lead_to_the_same_edge(
    device: torch.device, name: str, idtype: torch.dtype
) -> None:
    found = structure(zoo()[name](idtype), device)
    for one in (found, found.reverse()):
        positions = one.out_positions()
        assert positions.dtype == one.in_adj.index_dtype
        assert positions.device == one.device
        assert torch.equal(edge_ids(one.in_adj)[positions.long()], edge_ids(one.out_adj))
        assert torch.equal(positions, positions_in_rows(one.in_adj, one.out_adj))
        # A place counts from the begin of the row that the edge leads to.
        begins = one.in_adj.indptr.long()[one.out_adj.indices.long()]
        places = one.out_places().long()
        assert torch.equal(torch.where(places < 0, ~places, places) + begins, positions)
        lengths = one.in_adj.degrees().long()[one.out_adj.indices.long()]
        assert torch.equal(places < 0, lengths > SHORT_ROW)


def test_by_hand() -> None:
    """Row 0 has the edges 1, 3 and 4, from 2, 0 and 2; row 1 the edges 0 and 2, from 2 and 1."""
    found = GraphStructure.from_coo(
        torch.tensor([2, 2, 1, 0, 2]), torch.tensor([1, 0, 1, 0, 0]), num_src=3, num_dst=2
    )
    assert edge_ids(found.in_adj).tolist() == [1, 3, 4, 0, 2]
    assert edge_ids(found.out_adj).tolist() == [3, 2, 1, 4, 0]
    assert found.out_positions().tolist() == [1, 4, 0, 2, 3]
    assert found.out_places().tolist() == [1, 1, 0, 2, 0]


@pytest.mark.parametrize("length", [SHORT_ROW - 1, SHORT_ROW, SHORT_ROW + 1])
def test_long_rows_are_told_by_the_sign(length: int) -> None:
    ends = torch.arange(length)
    found = GraphStructure.from_coo(ends, torch.zeros_like(ends), length, 1)
    expected = ends if length <= SHORT_ROW else ~ends
    assert found.out_places().long().tolist() == expected.tolist()


@every_finder
def test_found_once_for_each_side(device: torch.device, name: str) -> None:
    found = structure(power_law(), device)
    back = found.reverse()
    first, other = getattr(found, name)(), getattr(back, name)()
    assert getattr(found, name)() is first
    assert getattr(back.reverse(), name)() is first, "shared with whoever asks later"
    assert getattr(back, name)() is other
    assert getattr(found.reverse(), name)() is other
    assert first.data_ptr() != other.data_ptr()
    assert found.out_places() is not found.out_positions()
    assert {id(first), id(other)} <= {id(kept) for kept in found._edges.cached_tensors()}


@every_finder
def test_the_same_from_either_side(device: torch.device, name: str) -> None:
    """A graph that comes with one side only gets the other one built."""
    given = structure(csc_only(), device)
    expected = getattr(given, name)()
    from_rows = GraphStructure.from_adjacency(in_adj=given.in_adj)
    assert from_rows._edges.adjacencies[1] is None
    assert torch.equal(getattr(from_rows, name)(), expected)
    find = {"out_places": places_in_rows, "out_positions": positions_in_rows}[name]
    from_columns = GraphStructure.from_adjacency(out_adj=given.out_adj)
    assert from_columns._edges.adjacencies[0] is None
    found = getattr(from_columns, name)()
    assert torch.equal(found, find(from_columns.in_adj, from_columns.out_adj))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_find_their_own(duplicate) -> None:
    found = structure(bipartite_up())
    places, positions = found.out_places(), found.out_positions()
    assert len(found._edges.places) == 2
    other = duplicate(found)
    assert other._edges.places == {}
    assert torch.equal(other.out_places(), places)
    assert torch.equal(other.out_positions(), positions)
    assert other.out_places() is not places
    assert found.to("meta")._edges.places == {}


@every_finder
def test_what_inference_has_found_serves_in_training(device: torch.device, name: str) -> None:
    found = structure(bipartite_up(), device)
    with torch.inference_mode():
        kept = getattr(found, name)()
    assert not kept.is_inference()
    assert getattr(found, name)() is kept


def test_the_bound_of_in_degrees(device: torch.device) -> None:
    """Exact where somebody has counted, which is so on the CPU; else that of any graph."""
    graph = power_law()
    for one in (structure(graph, device), structure(graph, device).reverse()):
        longest = int(one.in_degrees().max())
        assert one.bound_in_degree() in (longest, one.num_edges)
        assert one.in_adj.max_degree == longest
        assert one.bound_in_degree() == longest
    found = structure(power_law())
    assert found.bound_in_degree() == found.in_adj.max_degree < found.num_edges
    assert found.reverse().bound_in_degree() == found.num_edges, "nobody has looked"
    assert found._edges.adjacencies[1] is None, "and nothing is built to look at"
    assert found.to("meta").bound_in_degree() == found.bound_in_degree()


def test_the_bound_without_edges_or_nodes() -> None:
    for name in ("empty", "no_nodes"):
        found = structure(zoo()[name](torch.int64))
        assert found.bound_in_degree() == found.reverse().bound_in_degree() == 0


def test_the_bound_of_edges_on_a_device(device: torch.device) -> None:
    """Rows that the host has not seen are not read for it."""
    ends = torch.tensor([0, 1, 2, 0], device=device)
    found = GraphStructure.from_coo(ends, ends.flip(0), 3, 3)
    assert found.bound_in_degree() == (2 if device.type == "cpu" else 4)
    assert found.in_adj.max_degree == 2
    assert found.bound_in_degree() == 2
