"""dgl_flash.graph reads every format; where DGL reads it too, with the same edges and ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch

import dgl_flash

# isort: split
import dgl

SRC, DST = [0, 3, 1, 1, 4, 0, 0], [1, 2, 1, 0, 4, 1, 1]
INDPTR, INDICES, EIDS = [0, 2, 2, 3, 5], [1, 3, 0, 2, 2], [4, 0, 2, 1, 3]


def edges(graph: Any) -> tuple[list[int], list[int]]:
    src, dst = graph.edges(order="eid")
    return src.tolist(), dst.tolist()


COO = {
    "lists": (SRC, DST),
    "tuple of tuples": (tuple(SRC), tuple(DST)),
    "tensors": (torch.tensor(SRC), torch.tensor(DST)),
    "int32 tensors": (torch.tensor(SRC, dtype=torch.int32), torch.tensor(DST, dtype=torch.int32)),
    "short tensors": (torch.tensor(SRC, dtype=torch.uint8), torch.tensor(DST, dtype=torch.int16)),
    "numpy": (np.array(SRC), np.array(DST)),
    "unsigned numpy": (np.array(SRC, dtype=np.uint64), np.array(DST, dtype=np.uint32)),
    "numpy in big steps": (np.array([SRC, SRC]).T[:, 0], np.array(DST)[::1]),
    "reversed numpy": (np.array(SRC[::-1])[::-1], np.array(DST[::-1])[::-1]),
    "read-only numpy": (np.broadcast_to(np.array(SRC), (7,)), np.array(DST)),
    "named coo": ("coo", (SRC, DST)),
    "edge_index": torch.tensor([SRC, DST]),
    "numpy edge_index": np.array([SRC, DST]),
    "PyG": SimpleNamespace(edge_index=torch.tensor([SRC, DST]), num_nodes=None),
    "strided edge_index": torch.tensor(list(zip(SRC, DST, strict=True))).t(),
}


@pytest.mark.parametrize("name", COO)
def test_edge_lists(name: str) -> None:
    graph = dgl_flash.graph(COO[name])
    assert edges(graph) == (SRC, DST)
    assert graph.num_nodes() == 5
    assert graph.idtype == (torch.int32 if name == "int32 tensors" else torch.int64)
    assert graph.nodes().dtype == graph.in_degrees().dtype == graph.idtype


def test_sizes_and_types_as_asked() -> None:
    graph = dgl_flash.graph((SRC, DST), num_nodes=9, idtype=torch.int32, device="meta")
    assert graph.num_nodes() == 9
    assert graph.idtype == torch.int32
    assert graph.device.type == "meta"
    data = SimpleNamespace(edge_index=torch.tensor([SRC, DST]), num_nodes=7)
    assert dgl_flash.graph(data).num_nodes() == 7
    assert dgl_flash.graph(data, num_nodes=8).num_nodes() == 8
    assert dgl_flash.graph(([], [])).num_nodes() == 0
    assert dgl_flash.graph(([], []), num_nodes=np.int64(3)).in_degrees().tolist() == [0, 0, 0]


def test_bipartite_sizes() -> None:
    for given in ({"num_src_nodes": 5}, {"num_dst_nodes": 3}):
        graph = dgl_flash.graph(([0, 4], [2, 1]), **given)
        assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (5, 3)
    graph = dgl_flash.graph(("csc", ([0, 1, 2], [3, 0], [])), num_src_nodes=6)
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (6, 2)
    graph = dgl_flash.graph(("csr", ([0, 1, 2], [3, 0], [])), num_src_nodes=2)
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (2, 4)


@pytest.mark.parametrize("eids", [EIDS, []])
@pytest.mark.parametrize("fmt", ["csr", "csc"])
def test_compressed_edges_as_dgl(fmt: str, eids: list[int]) -> None:
    data = (fmt, (INDPTR, INDICES, eids))
    ours, theirs = dgl_flash.graph(data), dgl.graph(data)
    whole = theirs.formats(["coo", "csr", "csc"])
    assert edges(ours) == edges(whole)
    assert torch.equal(ours.in_degrees(), theirs.in_degrees())
    tensors = tuple(torch.tensor(part, dtype=torch.int32) for part in (INDPTR, INDICES, eids))
    again = dgl_flash.graph((fmt, tensors))
    assert edges(again) == edges(ours)
    assert again.idtype == torch.int32


def adjacency(dtype: Any = np.float32) -> np.ndarray:
    matrix = np.zeros((4, 4), dtype)
    matrix[[0, 2, 2, 3], [1, 0, 3, 3]] = 1
    return matrix


@pytest.mark.parametrize("make", ["matrix", "array"])
@pytest.mark.parametrize("fmt", ["coo", "csr", "csc", "lil", "dok", "dia", "bsr"])
def test_scipy_as_dgl(fmt: str, make: str) -> None:
    matrix = getattr(sp, f"{fmt}_{make}")(adjacency())
    ours = dgl_flash.graph(matrix)
    if make == "matrix":
        assert edges(ours) == edges(dgl.from_scipy(matrix).formats(["coo", "csr", "csc"]))
    assert sorted(zip(*edges(ours), strict=True)) == [(0, 1), (2, 0), (2, 3), (3, 3)]


def test_scipy_repeated_and_zero_entries_are_edges() -> None:
    entries = ([0.0, 1.0, 2.0], ([0, 1, 1], [1, 0, 0]))
    assert edges(dgl_flash.graph(sp.coo_array(entries, shape=(2, 2)))) == ([0, 1, 1], [1, 0, 0])


@pytest.mark.parametrize("make", [sp.csr_array, sp.csc_array, sp.coo_array])
def test_rectangles_are_bipartite_when_asked(make: Any) -> None:
    matrix = make(adjacency()[:3])
    with pytest.raises(ValueError, match=r"got shape \(3, 4\); pass num_src_nodes=3, num_dst"):
        dgl_flash.graph(matrix)
    graph = dgl_flash.graph(matrix, num_src_nodes=3, num_dst_nodes=4)
    assert (graph.num_src_nodes(), graph.num_dst_nodes()) == (3, 4)
    assert sorted(zip(*edges(graph), strict=True)) == [(0, 1), (2, 0), (2, 3)]


@pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_torch_sparse(layout: torch.layout) -> None:
    matrix = torch.from_numpy(adjacency()).to_sparse(layout=layout)
    graph = dgl_flash.graph(matrix)
    assert graph.num_nodes() == 4
    assert sorted(zip(*edges(graph), strict=True)) == [(0, 1), (2, 0), (2, 3), (3, 3)]


def test_torch_sparse_uncoalesced() -> None:
    matrix = torch.sparse_coo_tensor(
        torch.tensor([SRC, DST]), torch.ones(7), (5, 5), check_invariants=True
    )
    assert edges(dgl_flash.graph(matrix)) == (SRC, DST)


def labelled(kind: type) -> nx.Graph:
    graph = kind()
    graph.add_nodes_from([30, 10, 20, 40])
    graph.add_edges_from([(20, 10), (10, 30), (30, 30), (20, 30)])
    if graph.is_multigraph():
        graph.add_edges_from([(20, 10), (20, 10), (30, 30)])
    return graph


@pytest.mark.parametrize("kind", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_networkx_as_dgl(kind: type) -> None:
    ours, theirs = dgl_flash.graph(labelled(kind)), dgl.from_networkx(labelled(kind))
    assert edges(ours) == edges(theirs)
    assert ours.num_nodes() == theirs.num_nodes() == 4
    assert dgl_flash.graph(kind()).num_nodes() == 0


def test_the_callers_arrays_are_left_alone() -> None:
    src, dst = torch.tensor(SRC), torch.tensor(DST)
    graph = dgl_flash.graph((src, dst))
    src.zero_()
    dst.zero_()
    assert edges(graph) == (SRC, DST)
    indptr, indices, eids = (torch.tensor(p, dtype=torch.int32) for p in (INDPTR, INDICES, EIDS))
    compressed = dgl_flash.graph(("csc", (indptr, indices, eids)))
    before = edges(dgl_flash.graph(("csc", (INDPTR, INDICES, EIDS))))
    indices.zero_()
    assert edges(compressed) == before


@pytest.mark.gpu
def test_edges_on_the_gpu_stay_there() -> None:
    graph = dgl_flash.graph((torch.tensor(SRC).cuda(), torch.tensor(DST).cuda()))
    assert graph.device.type == "cuda"
    assert edges(graph) == (SRC, DST)
    assert dgl_flash.graph((SRC, DST), device="cuda").in_degrees().is_cuda
