"""Plans cut exactly the long rows, into chunks that cover each of their positions once."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.structure import Adjacency, structure
from tests.graphs import zoo
from tests.sync import no_device_sync


def rows_of_lengths(*lengths: int) -> Adjacency:
    indptr = torch.tensor([0, *lengths]).cumsum(0)
    return Adjacency(indptr, torch.zeros(int(indptr[-1]), dtype=torch.int64), None, 1)


def check_plan(adjacency: Adjacency, chunk: int) -> None:
    plan = adjacency.plan(chunk)
    indptr = adjacency.indptr.tolist()
    lengths = adjacency.degrees().tolist()
    expected_long = [row for row, length in enumerate(lengths) if length > 2 * chunk]
    if not expected_long:
        assert plan is None
        return
    assert plan is not None
    assert (plan.chunk, plan.num_long) == (chunk, len(expected_long))
    assert plan.long_rows.tolist() == expected_long
    pointers, begins = plan.chunk_ptr.tolist(), plan.chunk_begins.tolist()
    assert (pointers[0], pointers[-1]) == (0, plan.num_chunks)
    for i, row in enumerate(expected_long):
        mine = range(pointers[i], pointers[i + 1])
        assert {plan.chunk_rows[j].item() for j in mine} == {row}
        covered = [
            position
            for j in mine
            for position in range(begins[j], min(begins[j] + chunk, indptr[row + 1]))
        ]
        assert covered == list(range(indptr[row], indptr[row + 1]))
    for tensor in (plan.long_rows, plan.chunk_ptr, plan.chunk_rows, plan.chunk_begins):
        assert tensor.dtype == adjacency.index_dtype
        assert tensor.device == adjacency.device


@pytest.mark.parametrize("chunk", [1, 3, 64, 1000])
@pytest.mark.parametrize("name", zoo())
def test_zoo(device: torch.device, name: str, chunk: int) -> None:
    found = structure(zoo()[name](torch.int64), device)
    check_plan(found.in_adj, chunk)
    check_plan(found.out_adj, chunk)


@pytest.mark.parametrize("lengths", [(8,), (9,), (12, 9), (0, 13, 0), (8, 9, 8, 100, 0, 17), ()])
def test_limits(device: torch.device, lengths: tuple[int, ...]) -> None:
    check_plan(rows_of_lengths(*lengths).to(device), chunk=4)


def test_plans_are_cached_per_chunk() -> None:
    adjacency = rows_of_lengths(100, 1)
    assert adjacency.plan(8) is adjacency.plan(8)
    assert adjacency.plan(8) is not adjacency.plan(16)
    assert adjacency.plan(16).num_chunks == 7


def test_few_edges_need_no_look_at_the_rows() -> None:
    # On the meta device a look would raise: no row can be long when all edges are few.
    indptr, indices = torch.empty(5, device="meta"), torch.empty(64, device="meta")
    assert Adjacency(indptr, indices, None, 4).plan(32) is None


@pytest.mark.gpu
def test_nothing_waits_for_the_device_when_the_graph_came_from_the_host() -> None:
    graph = zoo()["hub"](torch.int64)
    found = structure(graph, "cuda")
    with no_device_sync():
        assert found.has_zero_in_degree == found.in_adj.has_empty_rows
        assert found.in_adj.max_degree > 100_000
        assert found.in_adj.plan(256) is not None
        found.out_degrees()
        found.degree_scale("src", -0.5, torch.float32)
        found.out_adj.transpose()
