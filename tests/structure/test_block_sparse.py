"""Windows of rows and their tiles hold every edge once, whatever the graph."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import pytest
import torch

from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.block_sparse import WORD, BlockSparse, block_sparse
from dgl_flash.structure.windows import group_columns, window_statistics
from tests.graphs import zoo
from tests.shared_data import shared_folder
from tests.sync import no_device_sync

ZOO = zoo()
SHAPES = [(16, 32, 1), (64, 64, 2), (3, 96, 2), (128, 32, 4)]


def relation(name: str, device: torch.device) -> GraphStructure:
    graph = ZOO[name](torch.int64)
    return structure(graph, device, etype=graph.canonical_etypes[0])


def edges_of(adjacency: Adjacency) -> Counter[tuple[int, int, int]]:
    """Row, column and edge id of each edge."""
    ids = torch.arange(adjacency.num_edges) if adjacency.eids is None else adjacency.eids
    columns = (adjacency.rows().tolist(), adjacency.indices.tolist(), ids.tolist())
    return Counter(zip(*columns, strict=True))


def tiled_edges(found: BlockSparse) -> Counter[tuple[int, int, int]]:
    """The same of the bits, each looked up as a kernel would."""
    shifts = torch.arange(WORD, device=found.bits.device)
    bits = (found.bits.long().unsqueeze(-1) >> shifts & 1).flatten(2)  # (tiles, height, width)
    windows = torch.repeat_interleave(found.tile_ptr.long().diff())  # (tiles,)
    tile, row, column = bits.nonzero().unbind(1)
    before = (bits.cumsum(2) - bits)[tile, row, column]
    ids = found.eids[found.edge_ptr.long()[tile * found.height + row] + before]
    columns = (
        (windows[tile] * found.height + row).tolist(),
        found.columns[tile, column].tolist(),
        ids.tolist(),
    )
    return Counter(zip(*columns, strict=True))


@pytest.mark.parametrize(("height", "width", "fewest"), SHAPES)
@pytest.mark.parametrize("name", ZOO)
def test_every_edge_is_in_a_tile_or_a_stray(name, height, width, fewest, device):
    struct = relation(name, device)
    for adjacency in (struct.in_adj, struct.out_adj):
        found = block_sparse(adjacency, height, width, fewest)
        tiled, strays = tiled_edges(found), edges_of(found.strays)
        assert tiled + strays == edges_of(adjacency)
        assert tiled.total() == found.num_tiled
        assert found.num_windows == -(-adjacency.num_rows // height)
        check_columns(found, fewest, tiled)


def check_columns(found: BlockSparse, fewest: int, tiled: Counter[tuple[int, int, int]]) -> None:
    """Dense ones only, ascending, no tile without one; strays are in the others, or repeat."""
    edges = Counter((row // found.height, column) for row, column, _ in tiled)
    listed = set()
    for window, (first, last) in enumerate(
        zip(found.tile_ptr[:-1], found.tile_ptr[1:], strict=True)
    ):
        columns = found.columns[int(first) : int(last)].flatten().tolist()
        named = [column for column in columns if column >= 0]
        assert named == sorted(set(named)) and columns[: len(named)] == named
        assert len(columns) - len(named) < found.width
        listed |= {(window, column) for column in named}
    assert listed == set(edges)
    assert all(count >= fewest for count in edges.values())
    entries = {(row, column) for row, column, _ in tiled}
    for row, column, _ in edges_of(found.strays):
        assert (row // found.height, column) not in listed or (row, column) in entries


def test_strays_keep_the_order_of_the_edges(device):
    adjacency = relation("permuted_edges", device).in_adj
    assert adjacency.eids is not None
    strays = block_sparse(adjacency, 4, 32, 100).strays
    assert torch.equal(strays.indptr, adjacency.indptr)
    assert torch.equal(strays.indices, adjacency.indices)
    assert strays.eids is not None and torch.equal(strays.eids, adjacency.eids)


def cliques(device: torch.device) -> Adjacency:
    """Two of 32 nodes, and edges from node 0 to all; the last edge twice."""
    inside = torch.ones(32, 32).nonzero().t()
    far = torch.stack([torch.arange(32, 64), torch.zeros(32, dtype=torch.int64)])
    src, dst = torch.cat([inside, inside + 32, far.flip(0), far[:, -1:].flip(0)], dim=1)
    return GraphStructure.from_coo(src, dst, 64, 64).to(device).in_adj


def test_statistics(device):
    adjacency = cliques(device)
    found = window_statistics(adjacency, 32)
    assert (found.num_edges, found.num_repeated) == (2 * 1024 + 33, 1)
    assert found.columns_by_edges == (*[0] * 32, 65)  # column 0 in both windows
    assert found.edges_per_column == 32
    assert found.share(4) == (65 * 32) / (2 * 1024 + 33)
    assert found.density(4) == 1
    whole = window_statistics(adjacency, 64)
    assert whole.columns_by_edges == (*[0] * 32, 63, *[0] * 31, 1)
    assert whole.dense_columns(33) == 1
    assert whole.dense_edges(33) == 64
    assert whole.density(33) == 1
    assert window_statistics(adjacency, 64) is whole


def test_statistics_of_nothing(device):
    for name in ("empty", "no_nodes"):
        found = window_statistics(relation(name, device).in_adj, 16)
        assert (found.num_edges, found.num_columns, found.edges_per_column) == (0, 0, 0)
        assert found.share(1) == found.density(1) == 0


@pytest.mark.parametrize("name", ZOO)
def test_statistics_are_those_of_the_tiles(name, device):
    adjacency = relation(name, device).in_adj
    for height, fewest in [(16, 1), (64, 3)]:
        figures = window_statistics(adjacency, height)
        tiles = block_sparse(adjacency, height, 32, fewest)
        assert figures.dense_edges(fewest) == tiles.num_tiled
        assert figures.dense_columns(fewest) == int((tiles.columns >= 0).sum())


# Edges per column of windows of 64 rows; share and density of columns of at least 4.
PUBLISHED = {
    "tu_collab": (23.3, 0.99, 0.42),
    "web_cnr2000": (4.7, 0.79, 0.19),
    "mesh_copter2": (2.0, 0.30, 0.07),
    "ppi_small": (1.8, 0.29, 0.08),
    "amazon_computers": (1.25, 0.08, 0.09),
    "ogbn_arxiv": (1.0, 0.0, None),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_real_graphs_share_what_was_counted(name, monkeypatch):
    folder = shared_folder("data")
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"no {name}.npz in {folder}")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    import load_graph

    graph: Any = load_graph.load(name)
    src, dst = torch.from_numpy(graph["src"]), torch.from_numpy(graph["dst"])
    struct = GraphStructure.from_coo(src, dst, graph["num_nodes"], graph["num_nodes"])
    found = window_statistics(struct.in_adj, 64)
    per_column, share, density = PUBLISHED[name]
    assert found.edges_per_column == pytest.approx(per_column, abs=0.051)
    assert found.share(4) == pytest.approx(share, abs=0.0051)
    assert density is None or found.density(4) == pytest.approx(density, abs=0.0051)


def test_groups_hold_rows_in_order(device):
    adjacency = relation("power_law", device).in_adj
    groups = group_columns(adjacency, 16)
    assert torch.equal(groups.order.sort().values, torch.arange(adjacency.num_edges, device=device))
    same = groups.group[1:] == groups.group[:-1]
    assert (groups.rows[1:] >= groups.rows[:-1])[same].all()
    key = groups.windows * adjacency.num_cols + groups.columns
    assert (key[1:] > key[:-1]).all()


def test_is_kept_with_the_rows(device):
    adjacency = cliques(device)
    found = block_sparse(adjacency)
    assert block_sparse(adjacency) is found
    assert block_sparse(adjacency, fewest=5) is not found
    held = {tensor.data_ptr() for tensor in adjacency.tensors()}
    assert {tensor.data_ptr() for tensor in found.tensors() if tensor.numel()} <= held


@pytest.mark.parametrize("wrong", [{"width": 48}, {"height": 0}, {"fewest": 0}, {"width": 0}])
def test_shapes_that_no_tile_has(wrong):
    with pytest.raises(ValueError, match="multiple of 32, got"):
        block_sparse(cliques(torch.device("cpu")), **wrong)


@pytest.mark.gpu
def test_what_is_kept_is_not_read_again():
    adjacency = cliques(torch.device("cuda"))
    block_sparse(adjacency)
    window_statistics(adjacency)
    with no_device_sync():
        assert block_sparse(adjacency).num_tiles > 0
        assert window_statistics(adjacency).edges_per_column > 1
