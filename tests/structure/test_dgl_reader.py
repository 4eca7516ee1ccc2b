"""Reading DGL graphs: every format, id type and relation, and what is no graph at all."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl

from dgl_flash.structure import GraphStructure, graph, structure
from tests.graphs import (
    block,
    csc_only,
    permuted_edges,
    power_law,
    random_graph,
    two_relations,
    zoo,
)


def assert_same_edges(one: GraphStructure, other: GraphStructure) -> None:
    assert (one.num_src, one.num_dst) == (other.num_src, other.num_dst)
    for mine, theirs in zip(one.edges(), other.edges(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("formats", ["coo", "csr", "csc", ["coo", "csr"], ["csr", "csc"]])
@pytest.mark.parametrize("make", [random_graph, permuted_edges, power_law])
def test_restricted_formats(make: Any, formats: Any) -> None:
    whole = random_graph(20, 70) if make is random_graph else make()
    restricted = whole.formats(formats)
    before = restricted.formats()
    assert_same_edges(structure(restricted), structure(whole))
    allowed = {fmt for group in before.values() for fmt in group}
    after = restricted.formats()
    assert {fmt for group in after.values() for fmt in group} == allowed


@pytest.mark.parametrize("name", zoo())
def test_id_types_give_equal_structures(name: str) -> None:
    short, long = (structure(zoo()[name](idtype)) for idtype in (torch.int32, torch.int64))
    assert_same_edges(short, long)
    assert torch.equal(short.in_adj.indices, long.in_adj.indices)
    assert torch.equal(short.in_adj.indptr, long.in_adj.indptr)


def test_block_sizes_and_its_single_relation() -> None:
    made = block()
    found = structure(made)
    assert (found.num_src, found.num_dst) == (made.num_src_nodes(), made.num_dst_nodes())
    assert structure(made, etype="_E") is found


def test_relations_by_name_triple_and_slice() -> None:
    whole = two_relations()
    rates = structure(whole, etype="rates")
    assert (rates.num_src, rates.num_dst, rates.num_edges) == (4, 6, 6)
    assert structure(whole, etype=("user", "rates", "item")) is rates
    assert_same_edges(structure(whole["rates"]), rates)
    follows = structure(whole, etype="follows")
    assert (follows.num_src, follows.num_dst, follows.num_edges) == (4, 4, 4)
    assert_same_edges(structure(whole["follows"]), follows)


def test_relation_errors_are_dgls_own() -> None:
    whole = two_relations()
    for etype in (None, "no such", ("user", "no such", "item")):
        with pytest.raises(dgl.DGLError) as ours:
            structure(whole, etype=etype)
        with pytest.raises(dgl.DGLError) as theirs:
            whole.get_etype_id(etype)
        assert str(ours.value) == str(theirs.value)
    one = random_graph(3, 4)
    with pytest.raises(dgl.DGLError):
        structure(one, etype="no such")
    own = graph(([0], [1]))
    assert structure(own, etype="_E").num_edges == 1
    with pytest.raises(dgl.DGLError, match="does not exist"):
        structure(own, etype="no such")


def test_a_failure_that_is_no_restriction_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("out of memory")

    graph = random_graph(4, 5)
    monkeypatch.setattr(type(graph._graph), "adjacency_matrix_tensors", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        structure(graph)


def test_graph_like_objects_are_read_each_time() -> None:
    ends = [torch.tensor([0, 1]), torch.tensor([1, 1])]
    duck = SimpleNamespace(
        edges=lambda order: tuple(ends), num_src_nodes=lambda: 2, num_dst_nodes=lambda: 3
    )
    assert structure(duck).in_degrees().tolist() == [0, 2, 0]
    ends[1] = torch.tensor([2, 2])
    assert structure(duck).in_degrees().tolist() == [0, 0, 2]


def test_structures_and_containers_pass_through() -> None:
    own = graph(([0, 1], [1, 2]))
    found = structure(own)
    assert structure(own) is found
    assert structure(found) is found
    assert structure(found, "cpu") is found
    assert structure(own, "meta").in_adj is structure(own, "meta").in_adj
    assert structure(found, "meta").device.type == "meta"


def test_a_tensor_for_a_graph_suggests_a_swap() -> None:
    with pytest.raises(TypeError, match=r"gatv2: expected a graph .*got Tensor; did you swap"):
        structure(torch.ones(3, 4), op="gatv2")
    with pytest.raises(TypeError, match=r"structure: .*got ndarray; dgl_flash.graph"):
        structure(torch.ones(3, 4).numpy())
    for wrong in (None, "graph", ([0], [1]), object()):
        with pytest.raises(TypeError, match="expected a graph"):
            structure(wrong)
    assert structure(csc_only()).num_edges == 40, "the next correct call works"
