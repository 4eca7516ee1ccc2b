"""GraphStructure: degrees, scales, edges, reverse, subgraphs and copies per device."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from dgl_flash.structure import GraphStructure, structure
from tests.graphs import bipartite_up, hub, permuted_edges, power_law, zoo


@pytest.mark.parametrize("name", zoo())
def test_degrees_and_edges_equal_dgl(device: torch.device, name: str) -> None:
    graph = zoo()[name](torch.int64).formats(["coo", "csr", "csc"])
    found = structure(graph, device)
    for degrees, expected in (
        (found.in_degrees(), graph.in_degrees()),
        (found.out_degrees(), graph.out_degrees()),
    ):
        assert degrees.dtype == torch.int32
        assert torch.equal(degrees.cpu().long(), expected)
    assert found._edges.adjacencies[1] is None, "out_degrees must not build the transpose"
    for end, expected in zip(found.edges(), graph.edges(order="eid"), strict=True):
        assert end.dtype == torch.int64
        assert torch.equal(end.cpu(), expected)
    has_zero = bool((graph.in_degrees() == 0).any())
    assert found.has_zero_in_degree == has_zero


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("exponent", [-1, -0.5])
@pytest.mark.parametrize("side", ["src", "dst"])
def test_degree_scale(device: torch.device, side: str, exponent: float, dtype: torch.dtype) -> None:
    graph = hub()
    found = structure(graph, device)
    scale = found.degree_scale(side, exponent, dtype)
    degrees = graph.out_degrees() if side == "src" else graph.in_degrees()
    exact = degrees.clamp(min=1).double().pow(exponent)
    assert scale.dtype == dtype
    # The hub's in-degree is beyond fp16, its inverse is not: nothing may become zero.
    expected = exact.to(dtype) if dtype != torch.float64 else exact
    torch.testing.assert_close(scale.cpu(), expected, rtol=torch.finfo(dtype).eps * 4, atol=0)
    assert found.degree_scale(side, exponent, dtype) is scale
    other = "dst" if side == "src" else "src"
    assert found.reverse().degree_scale(other, exponent, dtype) is scale


def test_reverse_shares_both_directions(device: torch.device) -> None:
    found = structure(bipartite_up(), device)
    back = found.reverse()
    assert (back.num_src, back.num_dst) == (5, 3)
    assert back.out_adj is found.in_adj
    assert back.in_adj is found.out_adj, "built once, whoever asks first"
    assert torch.equal(back.in_degrees(), found.out_degrees())
    assert torch.equal(back.out_degrees(), found.in_degrees())
    src, dst = found.edges()
    assert torch.equal(back.edges()[0], dst)
    assert torch.equal(back.edges()[1], src)
    again = back.reverse()
    assert again.in_adj is found.in_adj
    assert (again.num_src, again.num_dst) == (3, 5)
    assert again.has_zero_in_degree
    assert not back.has_zero_in_degree


def test_edges_come_from_either_side() -> None:
    forward = structure(permuted_edges())
    backward = GraphStructure.from_adjacency(out_adj=forward.out_adj)
    for mine, theirs in zip(backward.edges(), forward.edges(), strict=True):
        assert torch.equal(mine, theirs)
    assert torch.equal(backward.in_adj.indptr, forward.in_adj.indptr)
    with pytest.raises(ValueError, match="in_adj"):
        GraphStructure.from_adjacency()


def test_edge_subgraph_numbers_edges_as_asked(device: torch.device) -> None:
    found = structure(bipartite_up(), device)
    eids = torch.tensor([4, 0, 5, 4], device=device, dtype=torch.int32)
    part = found.edge_subgraph(eids)
    assert (part.num_src, part.num_dst, part.num_edges) == (3, 5, 4)
    for mine, all_of_them in zip(part.edges(), found.edges(), strict=True):
        assert torch.equal(mine, all_of_them[eids.long()])
    nothing = found.edge_subgraph(eids[:0])
    assert (nothing.num_edges, nothing.num_dst) == (0, 5)
    assert nothing.has_zero_in_degree


def test_copies_per_device_are_made_once() -> None:
    found = structure(power_law())
    moved = found.to("meta")
    assert found.to("cpu") is found
    assert moved.device.type == "meta"
    assert found.to(torch.device("meta")).in_adj is moved.in_adj
    assert found.reverse().to("meta").out_adj is moved.in_adj


def test_a_bare_device_name_means_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    from dgl_flash.structure.graph_structure import resolve_device

    current = iter([0, 1])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: next(current))
    assert resolve_device("cuda") == torch.device("cuda", 0)
    assert resolve_device("cuda") == torch.device("cuda", 1)
    assert resolve_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_carry_edges_but_no_caches(duplicate) -> None:
    found = structure(bipartite_up()).reverse()
    found.degree_scale("src", -1, torch.float32)
    found.to("meta")
    found.edges()
    other = duplicate(found)
    assert other._edges.copies == {}
    assert other._edges.scales == {}
    assert other._edges.coo is None
    for mine, theirs in zip(other.edges(), found.edges(), strict=True):
        assert torch.equal(mine, theirs)
    assert (other.num_src, other.num_dst) == (found.num_src, found.num_dst)
