"""Block-sparse rows: dense columns of row windows in tiles, with bitmaps; all else in CSR.

A window of ``height`` rows has the columns that many of its rows share, its *dense* ones, in tiles
of ``width``; a bitmap says which entries of a tile are edges. Edges in other columns, the *strays*,
and all but one of several edges between two nodes stay in compressed rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.windows import ColumnGroups, group_columns

WORD = 32  # bits


@dataclass(frozen=True)
class BlockSparse:
    """An adjacency whose dense columns are in tiles.

    Attributes
    ----------
    height, width : int
        Rows of a window, columns of a tile.
    tile_ptr : Tensor
        Shape ``(num_windows + 1,)``: window ``w`` owns tiles ``tile_ptr[w] .. tile_ptr[w + 1]``.
    columns : Tensor
        Shape ``(num_tiles, width)``, ascending in a window; -1 fills its last tile.
    bits : Tensor
        Shape ``(num_tiles, height, width / 32)``, int32: bit ``b`` of word ``k`` of a row tells
        whether it has an edge to column ``32 k + b`` of the tile.
    strays : Adjacency
        The other edges: as many rows, `eids` are those of all edges.
    edge_ptr : Tensor
        Shape ``(num_tiles * height + 1,)``: where the edges of each row of each tile begin.
    eids : Tensor
        Shape ``(num_tiled,)``: ids of the edges in tiles, by tile, then row, then column. The edge
        of a bit is found by counting the bits before it.
    """

    height: int
    width: int
    tile_ptr: Tensor
    columns: Tensor
    bits: Tensor
    strays: Adjacency
    edge_ptr: Tensor
    eids: Tensor

    @property
    def num_windows(self) -> int:
        """Windows, the last of which may reach beyond the rows."""
        return self.tile_ptr.numel() - 1

    @property
    def num_tiles(self) -> int:
        """Tiles of all windows."""
        return self.columns.shape[0]

    @property
    def num_tiled(self) -> int:
        """Edges in tiles."""
        return self.eids.numel()

    @property
    def density(self) -> float:
        """Share of the entries of tiles that are edges."""
        entries = self.num_tiles * self.height * self.width
        return self.num_tiled / entries if entries else 0.0

    def tensors(self) -> Iterator[Tensor]:
        """Visit the tensors held."""
        yield from (self.tile_ptr, self.columns, self.bits, self.edge_ptr, self.eids)
        yield from self.strays.tensors()


def block_sparse(
    adjacency: Adjacency, height: int = 64, width: int = 64, fewest: int = 4
) -> BlockSparse:
    """Put the dense columns of an adjacency into tiles, kept with it.

    Parameters
    ----------
    adjacency : Adjacency
        The rows, on any device. The first call waits for it a few times, to learn sizes.
    height : int
        Rows of a window.
    width : int
        Columns of a tile, a multiple of 32.
    fewest : int
        Edges that a column needs within a window to be dense.

    Returns
    -------
    BlockSparse
        On the device of `adjacency`.
    """
    if width % WORD or min(height, width, fewest) < 1:
        raise ValueError(
            "block_sparse: expected `height` and `fewest` of at least 1 and `width` a multiple of "
            f"{WORD}, got {height}, {fewest} and {width}"
        )
    key = ("block_sparse", height, width, fewest)
    if key not in adjacency.windows:
        with torch.inference_mode(False), torch.no_grad():
            adjacency.windows[key] = _build(adjacency, height, width, fewest)
        if adjacency.fence is not None:
            adjacency.fence.mark()
    found: BlockSparse = adjacency.windows[key]
    return found


def _build(adjacency: Adjacency, height: int, width: int, fewest: int) -> BlockSparse:
    groups = group_columns(adjacency, height)
    num_windows = -(-adjacency.num_rows // height)
    tile_ptr, columns, slots = _lay_out(groups, num_windows, width, fewest)
    # In the order of groups: the slot of a column, for each edge that a bit can stand for.
    slot_of_edge = slots.index_select(0, groups.group)
    tiled = ((slot_of_edge >= 0) & ~groups.repeated).nonzero().flatten()
    slot, row = slot_of_edge[tiled], groups.rows[tiled] % height
    positions = groups.order[tiled]
    row_of_tile = torch.div(slot, width, rounding_mode="floor") * height + row
    entry = row_of_tile * width + slot % width
    entry, by_entry = torch.sort(entry)
    num_tiles = columns.numel() // width
    words = torch.zeros(num_tiles * height * width // WORD, dtype=torch.int64, device=entry.device)
    # Each entry comes once, so that the sum of its bits is their union.
    words.index_add_(
        0, entry // WORD, torch.bitwise_left_shift(torch.ones_like(entry), entry % WORD)
    )
    row_bounds = torch.arange(num_tiles * height + 1, device=entry.device) * width
    positions = positions[by_entry]
    return BlockSparse(
        height=height,
        width=width,
        tile_ptr=tile_ptr.to(adjacency.index_dtype),
        columns=columns.to(adjacency.index_dtype).view(num_tiles, width),
        # The highest bit of an int32 is its sign.
        bits=torch.where(words >= 2**31, words - 2**32, words)
        .to(torch.int32)
        .view(num_tiles, height, width // WORD),
        strays=_without(adjacency, positions),
        edge_ptr=torch.searchsorted(entry, row_bounds).to(adjacency.index_dtype),
        eids=_edge_ids(adjacency, positions),
    )


def _lay_out(
    groups: ColumnGroups, num_windows: int, width: int, fewest: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Tiles of each window, the columns in them, and the slot of each group among those, or -1."""
    dense = (groups.sizes >= fewest).nonzero().flatten()
    windows = groups.windows[dense]
    device = windows.device
    first = torch.searchsorted(windows, torch.arange(num_windows + 1, device=device))
    tile_ptr = pad(((first.diff() + (width - 1)) // width).cumsum(0), (1, 0))
    rank = torch.arange(dense.numel(), device=device) - first[windows]
    slot = tile_ptr[windows] * width + rank
    columns = torch.full((int(tile_ptr[-1]) * width,), -1, dtype=torch.int64, device=device)
    columns[slot] = groups.columns[dense]
    slots = torch.full((groups.num_groups,), -1, dtype=torch.int64, device=device)
    slots[dense] = slot
    return tile_ptr, columns, slots


def _without(adjacency: Adjacency, positions: Tensor) -> Adjacency:
    """The same rows without the edges at some positions."""
    kept = torch.ones(adjacency.num_edges, dtype=torch.bool, device=adjacency.device)
    kept[positions] = False
    before = pad(kept.cumsum(0), (1, 0))
    rest = kept.nonzero().flatten()
    return Adjacency(
        before[adjacency.indptr.long()],
        adjacency.indices[rest],
        _edge_ids(adjacency, rest),
        adjacency.num_cols,
    )


def _edge_ids(adjacency: Adjacency, positions: Tensor) -> Tensor:
    if adjacency.eids is None:
        return positions.to(adjacency.index_dtype)
    return adjacency.eids[positions]
