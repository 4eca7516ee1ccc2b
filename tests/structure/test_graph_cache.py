"""The cache lives with DGL's index: shared by scopes, fresh after changes, never in the way."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import resource
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl

from dgl_flash.structure import graph, structure
from tests.graphs import block, random_graph, two_relations

Change = Callable[[dgl.DGLGraph], dgl.DGLGraph]


def in_place(change: Callable[[dgl.DGLGraph], None]) -> Change:
    def changed(graph: dgl.DGLGraph) -> dgl.DGLGraph:
        change(graph)
        return graph

    return changed


CHANGES: dict[str, Change] = {
    "add_edges": lambda g: dgl.add_edges(g, [0, 1], [2, 2]),
    "add_edges in place": in_place(lambda g: g.add_edges([0, 1], [2, 2])),
    "add_nodes": lambda g: dgl.add_nodes(g, 3),
    "add_nodes in place": in_place(lambda g: g.add_nodes(3)),
    "remove_edges": lambda g: dgl.remove_edges(g, [0, 3]),
    "remove_edges in place": in_place(lambda g: g.remove_edges([0, 3])),
    "remove no edge": in_place(lambda g: g.remove_edges([])),
    "remove every edge": in_place(lambda g: g.remove_edges(list(range(g.num_edges())))),
    "remove_nodes": lambda g: dgl.remove_nodes(g, [0, 5]),
    "remove_nodes in place": in_place(lambda g: g.remove_nodes([0, 5])),
    "add_self_loop": dgl.add_self_loop,
    "remove_self_loop": dgl.remove_self_loop,
    "reverse": dgl.reverse,
    "to_simple": dgl.to_simple,
    "to_bidirected": lambda g: dgl.to_bidirected(g),
    "int": lambda g: g.int(),
    "long": lambda g: g.int().long(),
    "coo": lambda g: g.formats("coo"),
    "csc": lambda g: g.formats("csc"),
    "csr": lambda g: g.formats("csr"),
    "edge_subgraph": lambda g: dgl.edge_subgraph(g, [1, 4, 2]),
    "node_subgraph": lambda g: dgl.node_subgraph(g, [0, 3, 4]),
    "clone": lambda g: g.clone(),
    "reorder": lambda g: dgl.reorder_graph(g, "custom", "dst", permute_config={
        "nodes_perm": list(range(g.num_nodes()))[::-1]
    }),
    "batch": lambda g: dgl.batch([g, g]),
    "to": lambda g: g.to("cpu"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_graph_is_read_anew(name: str) -> None:
    graph = random_graph(12, 40, seed=5)
    before = structure(graph)
    old_ends = [end.clone() for end in before.edges()]
    before.out_adj.plan(1)
    structure(graph, "meta")
    changed = CHANGES[name](graph)
    found = structure(changed)
    assert (found.num_src, found.num_dst) == (changed.num_nodes(), changed.num_nodes())
    whole = changed.formats(["coo", "csr", "csc"])
    for mine, theirs in zip(found.edges(), whole.edges(order="eid"), strict=True):
        assert torch.equal(mine, theirs.long())
    assert structure(changed, "meta").num_edges == changed.num_edges()
    # What somebody still holds of the old graph has not changed under him.
    for end, old in zip(before.edges(), old_ends, strict=True):
        assert torch.equal(end, old)


def test_scopes_share_the_structure() -> None:
    graph = random_graph(12, 40)
    with graph.local_scope():
        inside = structure(graph)
        graph.ndata["h"] = torch.ones(12, 2)
    assert structure(graph) is inside
    assert structure(graph.local_var()) is inside
    assert structure(graph, "cpu") is inside
    assert structure(graph, torch.device("cpu")) is inside
    assert structure(graph, "meta") is structure(graph, "meta")
    whole = two_relations()
    with whole.local_scope():
        rates = structure(whole, etype="rates")
    assert structure(whole.local_var(), etype="rates") is rates


def test_a_change_inside_a_scope_is_seen_inside_and_not_after() -> None:
    graph = random_graph(6, 9)
    before = structure(graph)
    with graph.local_scope():
        graph.add_edges([0], [1])
        assert structure(graph).num_edges == 10
    assert structure(graph).num_edges == graph.num_edges()
    assert before.num_edges == 9


def test_graphs_of_equal_size_never_share() -> None:
    seen = []
    for seed in range(50):  # each may get the addresses of the one before
        graph = random_graph(8, 16, seed=seed)
        found = structure(graph)
        for mine, theirs in zip(found.edges(), graph.edges(order="eid"), strict=True):
            assert torch.equal(mine, theirs)
        seen.append(found.in_adj.indices.tolist())
        del graph, found
    assert len({tuple(indices) for indices in seen}) > 40


def used(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    found = structure(graph)
    found.out_adj.plan(1)
    found.edges()
    structure(graph, "meta")
    return graph


COPIES = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda graph: pickle.loads(pickle.dumps(graph)),
    "clone": lambda graph: graph.clone(),
}


# DGL's own clone of a block is broken, so that it has nothing to be compared with.
COPIED = [(random_graph, name) for name in COPIES] + [(block, n) for n in COPIES if n != "clone"]


@pytest.mark.parametrize(("make", "name"), COPIED)
def test_a_used_graph_can_be_copied_and_pickled(make: Any, name: str) -> None:
    graph = used(make(12, 40) if make is random_graph else make())
    other = COPIES[name](graph)
    for mine, theirs in zip(structure(other).edges(), structure(graph).edges(), strict=True):
        assert torch.equal(mine, theirs)


def test_no_cache_travels_along() -> None:
    size = len(pickle.dumps(random_graph(500, 3000)))
    graph = used(random_graph(500, 3000))
    assert len(pickle.dumps(graph)) == pytest.approx(size, abs=200)
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert "dgl_flash" not in other._graph._cache
    buffer = io.BytesIO()
    torch.save(graph, buffer)
    assert buffer.tell() < size + 20_000
    buffer.seek(0)
    assert structure(torch.load(buffer, weights_only=False)).num_edges == 3000


@pytest.mark.parametrize("make", [lambda: random_graph(12, 40), lambda: graph(([0], [1]))])
def test_the_cache_keeps_no_graph_alive(make) -> None:
    gc.collect()
    gc.disable()
    try:
        one = make()
        found = structure(one)
        moved = structure(one, "meta")  # only copied: computing on it keeps frames in torch
        for part in (found, found.reverse()):
            assert part.out_adj.num_edges == part.num_edges
            part.degree_scale("src", -0.5, torch.float32)
        found.in_adj.plan(1)
        with one.local_scope():
            structure(one)
        watched = [weakref.ref(item) for item in (one, found, moved, found.out_adj, moved.in_adj)]
        del one
        assert watched[0]() is None, "the graph must go at once, without the garbage collector"
        del found, moved, part
        assert [reference() for reference in watched] == [None] * len(watched)
    finally:
        gc.enable()


def test_fresh_graphs_leave_memory_flat() -> None:
    def step(seed: int) -> None:
        graph = dgl.rand_graph(30, 70)
        found = structure(graph)
        found.out_adj.max_degree  # noqa: B018
        found.degree_scale("dst", -1, torch.float32)
        structure(graph, "meta")

    for seed in range(200):
        step(seed)
    gc.collect()
    objects = len(gc.get_objects())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gc.disable()
    try:
        for seed in range(2000):
            step(seed)
        assert len(gc.get_objects()) - objects < 100
    finally:
        gc.enable()
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert grown_kib < 4096


def test_one_graph_used_often_leaves_memory_flat() -> None:
    graph = used(random_graph(50, 300))
    gc.collect()
    objects = len(gc.get_objects())
    for _ in range(500):
        used(graph)
    gc.collect()
    assert len(gc.get_objects()) - objects < 20
