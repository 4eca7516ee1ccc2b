"""Compressed rows: the edges of the graph, degree facts without a device, copies, pickles."""

from __future__ import annotations

import copy
import pickle
from collections import Counter

import pytest
import torch
from torch import Tensor

from dgl_flash.structure import Adjacency, structure
from dgl_flash.structure.adjacency import choose_index_dtype
from tests.graphs import HUB_IN_EDGES, hub, isolated_rows, zoo


def edge_table(adjacency: Adjacency) -> list[tuple[int, int, int]]:
    """(edge id, row, column) of each edge, by edge id; written as plainly as can be."""
    indptr, indices = adjacency.indptr.tolist(), adjacency.indices.tolist()
    eids = range(len(indices)) if adjacency.eids is None else adjacency.eids.tolist()
    table = []
    for row in range(adjacency.num_rows):
        for position in range(indptr[row], indptr[row + 1]):
            table.append((eids[position], row, indices[position]))
    return sorted(table)


def expected_table(rows: Tensor, cols: Tensor) -> list[tuple[int, int, int]]:
    return list(zip(range(len(rows)), rows.tolist(), cols.tolist(), strict=True))


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", zoo())
def test_both_directions_hold_the_edges(
    device: torch.device, name: str, idtype: torch.dtype
) -> None:
    graph = zoo()[name](idtype)
    src, dst = graph.formats(["coo", "csr", "csc"]).edges(order="eid")
    found = structure(graph, device)
    assert (found.num_src, found.num_dst, found.num_edges) == (
        graph.num_src_nodes(),
        graph.num_dst_nodes(),
        graph.num_edges(),
    )
    for adjacency, rows, cols in ((found.in_adj, dst, src), (found.out_adj, src, dst)):
        assert adjacency.device == device
        assert edge_table(adjacency) == expected_table(rows, cols)
        tensors = [adjacency.indptr, adjacency.indices, adjacency.degrees(), adjacency.rows()]
        assert {tensor.dtype for tensor in tensors} == {torch.int32}
        assert all(tensor.is_contiguous() for tensor in tensors)
        degrees = Counter(rows.tolist())
        lengths = [degrees[row] for row in range(adjacency.num_rows)]
        assert adjacency.degrees().tolist() == lengths
        assert adjacency.max_degree == max(lengths, default=0)
        assert adjacency.has_empty_rows == (0 in lengths)
        assert adjacency.rows().tolist() == [row for row, n in enumerate(lengths) for _ in range(n)]


def test_transpose_is_stable_and_an_involution(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(1)
    rows, cols = torch.randint(40, (2, 5000), generator=generator)
    adjacency = Adjacency.from_coo(rows, cols, 40, 40)
    first, second = adjacency.to(device).transpose(), adjacency.transpose()
    assert torch.equal(first.indices.cpu(), second.indices)
    assert torch.equal(first.eids.cpu(), second.eids)
    for row in range(40):
        span = slice(*second.indptr[row : row + 2].tolist())
        assert torch.equal(second.indices[span], second.indices[span].sort().values)
    back = second.transpose()
    assert edge_table(back) == edge_table(adjacency)
    # In each row of an edge list, ties and all, edges come by ascending id.
    assert edge_table(Adjacency.from_coo(rows, cols, 40, 40)) == expected_table(rows, cols)
    in_row = adjacency.eids.diff()[adjacency.rows().diff() == 0]
    assert bool((in_row > 0).all())


def test_identity_edge_ids_are_none() -> None:
    rows = torch.tensor([0, 0, 1, 3])
    assert Adjacency.from_coo(rows, torch.tensor([2, 0, 1, 1]), 4, 4).eids is None
    assert Adjacency.from_coo(rows.flip(0), torch.tensor([2, 0, 1, 1]), 4, 4).eids is not None


def test_index_dtype_is_wide_only_when_needed() -> None:
    limit = 2**31 - 2**16
    assert choose_index_dtype(limit - 1, limit - 1, limit - 1) == torch.int32
    for sizes in ((limit, 1, 1), (1, limit, 1), (1, 1, limit)):
        assert choose_index_dtype(*sizes) == torch.int64
    indptr, indices = torch.tensor([0, 1, 2], dtype=torch.int32), torch.tensor([limit - 1, 5])
    wide = Adjacency(indptr, indices, None, limit)
    assert wide.index_dtype == wide.indptr.dtype == wide.indices.dtype == torch.int64
    narrow = Adjacency(indptr, torch.tensor([limit - 2, 5]), None, limit - 1)
    assert narrow.indices.tolist() == [limit - 2, 5]
    assert narrow.index_dtype == narrow.indices.dtype == torch.int32


def test_facts_of_a_host_graph_need_no_device() -> None:
    # The meta device has no data: whatever is answered there came from the host.
    graph = hub()
    moved = structure(graph, "meta").in_adj
    assert moved.indices.device.type == "meta"
    assert moved.max_degree >= HUB_IN_EDGES
    assert moved.has_empty_rows == bool((graph.in_degrees() == 0).any())
    plan = moved.plan(512)
    assert plan is not None
    assert plan.num_long == 1
    assert plan.chunk_begins.device.type == "meta"
    assert structure(isolated_rows(), "meta").has_zero_in_degree


def test_to_the_same_device_is_itself() -> None:
    adjacency = structure(isolated_rows()).in_adj
    assert adjacency.to("cpu") is adjacency


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda a: pickle.loads(pickle.dumps(a))])
def test_copies_carry_edges_but_no_caches(duplicate) -> None:
    adjacency = structure(hub()).in_adj
    adjacency.plan(64)
    adjacency.degrees()
    other = duplicate(adjacency)
    assert torch.equal(other.indptr, adjacency.indptr)
    assert torch.equal(other.indices, adjacency.indices)
    assert torch.equal(other.eids, adjacency.eids)
    assert other.num_cols == adjacency.num_cols
    assert other._plans == {}
    assert other._facts is None
    assert other._degrees is None
