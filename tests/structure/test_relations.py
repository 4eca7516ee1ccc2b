"""Edges sorted by relation: every edge once, in bounded chunks, cached while that is right."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref

import pytest
import torch

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)
from dgl_flash.structure import graph as make_graph
from dgl_flash.structure import relations as module
from dgl_flash.structure import structure
from dgl_flash.structure.relations import relations
from dgl_flash.structure.tiles import Runs
from tests.graphs import random_graph, small_zoo

small_graph = pytest.mark.parametrize("name", sorted(small_zoo()))


@pytest.fixture(params=["runs", "tiles"])
def layout(request, monkeypatch):
    """The layout of the CPU, and that of a GPU on the CPU."""
    tiled = request.param == "tiles"
    for place in ("relations", "tiles"):
        monkeypatch.setattr(f"dgl_flash.structure.{place}.use_tiles", lambda device: tiled)
    return request.param


@pytest.fixture(params=[2**17, 3], ids=["whole", "chunks"])
def chunks(request, monkeypatch):
    monkeypatch.setattr(module, "FEWEST_EDGES", request.param)


def types_of(graph, num_types=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(num_types, (graph.num_edges(),), generator=generator)


def listed(struct, found):
    """(source, relation, destination) of each edge, by edge id, read from the chunks."""
    triples = []
    for chunk in found.chunks:
        if isinstance(chunk.layout, Runs):
            of_slot = torch.arange(len(chunk.layout.lengths)).repeat_interleave(
                torch.tensor(chunk.layout.lengths)
            )
        else:
            of_slot = chunk.layout.types.repeat_interleave(chunk.layout.height)
        assert of_slot.numel() == chunk.layout.num_slots == chunk.gather.num_dst
        slot_of_pair, dst_of_pair = chunk.scatter.edges()
        dst_of_slot = torch.full((chunk.layout.num_slots,), -1)
        dst_of_slot[slot_of_pair] = dst_of_pair
        assert chunk.scatter.num_src == chunk.layout.num_slots
        assert slot_of_pair.unique().numel() == slot_of_pair.numel()
        src, slot = chunk.gather.edges()
        triples += zip(
            src.tolist(), of_slot[slot].tolist(), dst_of_slot[slot].tolist(), strict=True
        )
    by_edge = [None] * struct.num_edges
    for edge, triple in zip(found.order.tolist(), triples, strict=True):
        assert by_edge[edge] is None
        by_edge[edge] = triple
    return by_edge


@small_graph
@pytest.mark.parametrize("merge", [True, False])
def test_every_edge_is_there_once(name, merge, layout, chunks):
    graph = small_zoo()[name](torch.int64)
    struct, etypes = structure(graph), types_of(graph)
    found = relations(struct, etypes, 3, merge)
    src, dst = struct.edges()
    expected = list(zip(src.tolist(), etypes.tolist(), dst.tolist(), strict=True))
    assert listed(struct, found) == expected
    pairs = sum(chunk.scatter.num_edges for chunk in found.chunks)
    assert pairs == (len({triple[1:] for triple in expected}) if merge else len(expected))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_either_integer_type(dtype, layout):
    graph = random_graph(12, 40, seed=3)
    etypes = types_of(graph)
    wanted = relations(structure(graph), etypes, 3)
    assert torch.equal(relations(structure(graph), etypes.to(dtype), 3).order, wanted.order)


def test_chunks_are_bounded(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_EDGES", 50)
    graph = random_graph(40, 1000, seed=3)
    found = relations(structure(graph), types_of(graph), 3)
    sizes = [chunk.gather.num_edges for chunk in found.chunks]
    longest = max(chunk.gather.in_adj.max_degree for chunk in found.chunks)
    assert sum(sizes) == 1000
    assert len(sizes) == 20
    assert max(sizes) < 50 + longest  # edges of one pair stay together


def test_a_pair_of_many_edges_stays_whole(monkeypatch):
    monkeypatch.setattr(module, "FEWEST_EDGES", 5)
    graph = make_graph((torch.zeros(40, dtype=torch.int64), torch.ones(40, dtype=torch.int64)))
    found = relations(structure(graph), torch.zeros(40, dtype=torch.int64), 1)
    assert [chunk.gather.num_edges for chunk in found.chunks] == [40]
    assert found.chunks[0].scatter.num_edges == 1


@pytest.mark.parametrize("values", [[0, 3], [-1, 2]])
def test_relations_out_of_range(values, layout):
    struct = structure(make_graph(([0, 1], [1, 0])))
    text = rf"edge types in \[0, 3\), got values from {values[0]} to {values[1]}"
    with pytest.raises(IndexError, match=text):
        relations(struct, torch.tensor(values), 3)


class TestCache:
    def test_same_graph_and_types(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        found = relations(structure(graph), etypes, 3)
        assert relations(structure(graph), etypes, 3) is found
        with graph.local_scope():
            assert relations(structure(graph), etypes, 3) is found

    def test_a_view_of_the_structure_shares_it(self):
        """A graph of ours makes a new GraphStructure for a device each time."""
        graph = make_graph(([0, 1], [1, 0]))
        etypes = torch.tensor([0, 1])
        found = relations(structure(graph, "cpu"), etypes, 3)
        assert relations(structure(graph).reverse().reverse(), etypes, 3) is found

    def test_what_else_matters(self, monkeypatch):
        graph = random_graph(12, 40, seed=3)
        etypes, struct = types_of(graph), structure(graph)
        found = relations(struct, etypes, 3)
        assert relations(struct, etypes, 4) is not found
        assert relations(struct, etypes, 3, merge=False) is not found
        assert relations(struct.reverse(), etypes, 3) is not found
        assert relations(struct, etypes.clone(), 3) is not found
        assert relations(structure(random_graph(12, 40, seed=4)), etypes, 3) is not found
        monkeypatch.setattr(module, "use_tiles", lambda device: True)
        assert relations(struct, etypes, 3) is not found

    def test_types_that_are_written_to(self):
        graph = random_graph(12, 40, seed=3)
        etypes, struct = types_of(graph), structure(graph)
        relations(struct, etypes, 3)
        etypes[:7] = 2
        found = relations(struct, etypes, 3)
        assert torch.equal(found.order, relations(struct, etypes.clone(), 3).order)
        assert relations(struct, etypes, 3) is found

    def test_a_graph_that_changes(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        relations(structure(graph), etypes, 3)
        graph.remove_edges([0, 1])
        graph.add_edges([3, 4], [5, 5])
        found = relations(structure(graph), etypes, 3)
        src, dst = graph.edges()
        expected = list(zip(src.tolist(), etypes.tolist(), dst.tolist(), strict=True))
        assert listed(structure(graph), found) == expected

    def test_nothing_is_kept_alive(self):
        gc.disable()  # references alone must do
        try:
            for first in ("graph", "types"):
                graph = random_graph(12, 40, seed=3)
                etypes = types_of(graph)
                found = relations(structure(graph), etypes, 3)
                chunk = found.chunks[0]
                chunk.gather.out_adj, chunk.scatter.in_adj  # noqa: B018
                watched = [weakref.ref(structure(graph)._edges), weakref.ref(chunk.gather)]
                of_types = weakref.ref(etypes)
                del found, chunk
                if first == "graph":
                    del graph
                    assert [reference() for reference in watched] == [None, None]
                    assert of_types() is etypes
                else:
                    del etypes
                    assert of_types() is None
                    assert watched[0]() is not None
                    assert watched[1]() is None
        finally:
            gc.enable()

    def test_new_types_at_each_step_leave_memory_flat(self):
        graph = random_graph(12, 40, seed=3)
        for seed in range(300):
            relations(structure(graph), types_of(graph, seed=seed), 3)
            if seed == 5:
                gc.collect()
                objects = len(gc.get_objects())
        gc.collect()
        assert len(gc.get_objects()) - objects < 50

    def test_copies_of_the_types_have_their_own(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        found = relations(structure(graph), etypes, 3)
        for twin in (copy.deepcopy(etypes), pickle.loads(pickle.dumps(etypes))):
            assert relations(structure(graph), twin, 3) is not found

    def test_inference_tensors_are_not_trusted(self):
        """They have no version: nothing tells whether they were written to."""
        graph = random_graph(12, 40, seed=3)
        with torch.inference_mode():
            etypes = types_of(graph).clone()
            before = relations(structure(graph), etypes, 3).order.clone()
            etypes.copy_(2 - etypes)
            assert not torch.equal(relations(structure(graph), etypes, 3).order, before)

    def test_what_inference_builds_trains(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        with torch.inference_mode():
            found = relations(structure(graph), etypes, 3)
        assert not found.order.is_inference()
        assert not found.chunks[0].gather.in_adj.indices.is_inference()
