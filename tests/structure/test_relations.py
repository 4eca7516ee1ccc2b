"""Edges sorted by relation: every edge once, in bounded chunks, cached while that is right."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import Counter
from itertools import pairwise

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


def order_of(found):
    """Edge id at each position of all chunks."""
    return torch.cat([chunk.order for chunk in found.chunks])


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
        dst_of_slot[slot_of_pair] = dst_of_pair + chunk.rows.start
        assert chunk.scatter.num_src == chunk.layout.num_slots
        assert chunk.scatter.num_dst == chunk.rows.stop - chunk.rows.start
        assert slot_of_pair.unique().numel() == slot_of_pair.numel()
        src, slot = chunk.gather.edges()
        triples += zip(
            src.tolist(), of_slot[slot].tolist(), dst_of_slot[slot].tolist(), strict=True
        )
    by_edge = [None] * struct.num_edges
    for edge, triple in zip(order_of(found).tolist(), triples, strict=True):
        assert by_edge[edge] is None
        by_edge[edge] = triple
    return by_edge


def triples_of(struct, etypes):
    src, dst = struct.edges()
    return list(zip(src.tolist(), etypes.tolist(), dst.tolist(), strict=True))


def check_rows(struct, found):
    """All destinations, each in one chunk."""
    rows = [chunk.rows for chunk in found.chunks]
    assert (rows[0].start, rows[-1].stop) == (0, struct.num_dst)
    assert all(first.stop == second.start for first, second in pairwise(rows))
    assert len(rows) == 1 or all(chunk.gather.num_edges for chunk in found.chunks)


@small_graph
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("direction", ["forth", "back"])
def test_every_edge_is_there_once(name, merge, direction, layout, chunks):
    graph = small_zoo()[name](torch.int64)
    struct, etypes = structure(graph), types_of(graph)
    struct = struct.reverse() if direction == "back" else struct
    found = relations(struct, etypes, 3, merge)
    expected = triples_of(struct, etypes)
    assert listed(struct, found) == expected
    check_rows(struct, found)
    pairs = sum(chunk.scatter.num_edges for chunk in found.chunks)
    sizes = Counter(triple[1:] for triple in expected).values() if merge else [1] * len(expected)
    most = module.SLOT_EDGES if layout == "tiles" else len(expected)
    assert pairs == sum(-(-size // most) for size in sizes)


@pytest.mark.parametrize("name", ["empty", "no_nodes"])
def test_without_edges_there_is_a_chunk_of_all_rows(name, layout):
    graph = small_zoo()[name](torch.int64)
    struct = structure(graph)
    (chunk,) = relations(struct, types_of(graph), 3).chunks
    assert chunk.rows == slice(0, struct.num_dst)
    assert chunk.layout.num_slots == 0


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_either_integer_type(dtype, layout):
    graph = random_graph(12, 40, seed=3)
    etypes = types_of(graph)
    wanted = order_of(relations(structure(graph), etypes, 3))
    assert torch.equal(order_of(relations(structure(graph), etypes.to(dtype), 3)), wanted)


def test_chunks_are_bounded(monkeypatch, layout):
    monkeypatch.setattr(module, "FEWEST_EDGES", 50)
    monkeypatch.setattr(module, "MOST_EDGES", 50)
    graph = random_graph(40, 1000, seed=3)
    struct = structure(graph)
    found = relations(struct, types_of(graph), 3)
    sizes = [chunk.gather.num_edges for chunk in found.chunks]
    assert sum(sizes) == 1000
    assert max(sizes) < 50 + struct.in_adj.max_degree  # destinations stay whole
    check_rows(struct, found)


@pytest.mark.parametrize(
    ("fewest", "most", "expected"), [(1, 10**6, 100), (300, 10**6, 300), (1, 40, 40)]
)
def test_a_chunk_has_a_tenth_of_the_edges(fewest, most, expected, monkeypatch):
    monkeypatch.setattr(module, "FEWEST_EDGES", fewest)
    monkeypatch.setattr(module, "MOST_EDGES", most)
    ring = torch.arange(1000)
    graph = make_graph((ring, ring.roll(1)), num_nodes=1000)
    found = relations(structure(graph), types_of(graph), 3)
    sizes = [chunk.gather.num_edges for chunk in found.chunks]
    assert sizes[:-1] == [expected] * (len(sizes) - 1)
    assert sizes[-1] == 1000 - sum(sizes[:-1])


def hub_graph():
    """Node 4 has 60 in-edges; a few on either side have some, the first and last ones none."""
    dst = torch.cat([torch.full((60,), 4), torch.tensor([1, 1, 3, 5, 5, 6])])
    return make_graph((torch.arange(66) % 9, dst), num_nodes=9)


def test_a_hub_stays_whole(monkeypatch, layout):
    monkeypatch.setattr(module, "FEWEST_EDGES", 4)
    monkeypatch.setattr(module, "NUM_CHUNKS", 20)
    graph = hub_graph()
    struct, etypes = structure(graph), types_of(graph)
    found = relations(struct, etypes, 3)
    check_rows(struct, found)
    assert [chunk.rows for chunk in found.chunks] == [slice(0, 5), slice(5, 6), slice(6, 9)]
    assert listed(struct, found) == triples_of(struct, etypes)


def test_rows_behind_a_hub_at_the_end(monkeypatch, layout):
    """The cut lies behind all edges: there is no chunk of rows without edges."""
    monkeypatch.setattr(module, "FEWEST_EDGES", 4)
    graph = make_graph((torch.zeros(9, dtype=torch.int64), torch.full((9,), 2)), num_nodes=5)
    found = relations(structure(graph), torch.zeros(9, dtype=torch.int64), 1)
    assert [chunk.rows for chunk in found.chunks] == [slice(0, 5)]


def test_what_is_told_about_degrees_is_right(monkeypatch):
    """On a GPU the degrees are not read: the longest row, and the plan of long ones, are known."""
    monkeypatch.setattr(module, "use_tiles", lambda device: True)
    monkeypatch.setattr(module, "FEWEST_EDGES", 40)
    graph = hub_graph()
    for merge, most in ((True, module.SLOT_EDGES), (False, 1)):
        found = relations(structure(graph), types_of(graph), 3, merge)
        assert len(found.chunks) > 1
        for chunk in found.chunks:
            assert chunk.gather.in_adj.degrees().max() <= most == chunk.gather.in_adj.max_degree
            assert chunk.scatter.out_adj.degrees().max() <= 1 == chunk.scatter.out_adj.max_degree
            told = chunk.scatter.in_adj
            assert torch.equal(told._facts.indptr, told.indptr)
            assert told._facts.indptr.dtype == told.index_dtype


@small_graph
def test_whole(name, layout, chunks):
    """One chunk, and one slot for all edges of a pair."""
    graph = small_zoo()[name](torch.int64)
    struct, etypes = structure(graph), types_of(graph)
    found = relations(struct, etypes, 3, whole=True)
    expected = triples_of(struct, etypes)
    assert listed(struct, found) == expected
    check_rows(struct, found)
    (chunk,) = found.chunks
    assert chunk.scatter.num_edges == len({triple[1:] for triple in expected})
    degrees = chunk.gather.in_adj.indptr.diff().tolist()
    assert chunk.gather.in_adj.max_degree == max(degrees, default=0)


@pytest.mark.parametrize("values", [[0, 3], [-1, 2]])
def test_relations_out_of_range(values, layout):
    struct = structure(make_graph(([0, 1], [1, 0])))
    text = rf"edge types in \[0, 3\) in `etypes`, got values from {values[0]} to {values[1]}"
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
        back = relations(struct.reverse(), etypes, 3)
        assert back is not found
        assert relations(structure(graph).reverse(), etypes, 3) is back
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
        assert torch.equal(order_of(found), order_of(relations(struct, etypes.clone(), 3)))
        assert relations(struct, etypes, 3) is found

    def test_a_graph_that_changes(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        relations(structure(graph), etypes, 3)
        graph.remove_edges([0, 1])
        graph.add_edges([3, 4], [5, 5])
        found = relations(structure(graph), etypes, 3)
        assert listed(structure(graph), found) == triples_of(structure(graph), etypes)

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
            before = order_of(relations(structure(graph), etypes, 3))
            etypes.copy_(2 - etypes)
            assert not torch.equal(order_of(relations(structure(graph), etypes, 3)), before)

    def test_what_inference_builds_trains(self):
        graph = random_graph(12, 40, seed=3)
        etypes = types_of(graph)
        with torch.inference_mode():
            found = relations(structure(graph), etypes, 3)
        assert not found.chunks[0].order.is_inference()
        assert not found.chunks[0].gather.in_adj.indices.is_inference()
