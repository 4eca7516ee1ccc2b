"""Walking edges a piece at a time, so that what is gathered stays in the cache."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

# Of one gathered operand; below, starting threads costs more than caches save.
CHUNK_BYTES = 1 << 23
# Sums go from front to back and lose digits on the way: pieces of narrow rows end sooner.
LONGEST_PIECE = 1 << 14


def edges_per_chunk(width: int, itemsize: int) -> int:
    """Edges whose rows of ``width`` numbers fill a chunk."""
    return max(CHUNK_BYTES // max(width * itemsize, 1), 1)


def edge_chunks(num_edges: int, width: int, itemsize: int) -> Iterator[slice]:
    """Cut the edges into chunks."""
    step = edges_per_chunk(width, itemsize)
    return (slice(begin, begin + step) for begin in range(0, num_edges, step))


class RowPiece(NamedTuple):
    """Consecutive edges of compressed rows.

    Attributes
    ----------
    positions, rows : slice
        The edges, and the rows they belong to.
    offsets : Tensor
        Where each of these rows begins in the piece, and the end.
    goes_on : bool
        Whether the first of these rows began in the piece before.
    """

    positions: slice
    rows: slice
    offsets: Tensor
    goes_on: bool


def row_pieces(indptr: Tensor, width: int, itemsize: int) -> Iterator[RowPiece]:
    """Cut the edges into chunks that together have all rows."""
    num_rows, num_edges = indptr.numel() - 1, int(indptr[-1])
    step = min(edges_per_chunk(width, itemsize), LONGEST_PIECE)
    cuts = torch.tensor(range(step, num_edges, step), dtype=indptr.dtype)
    stops = torch.searchsorted(indptr, cuts)  # rows from there on begin at the cut or behind it
    is_inside = indptr[stops] > cuts
    begin, first, goes_on = 0, 0, False
    bounds = zip(cuts.tolist(), stops.tolist(), is_inside.tolist(), strict=True)
    for end, stop, inside in itertools.chain(bounds, [(num_edges, num_rows, False)]):
        offsets = indptr[first : stop + 1].clamp(begin, end).sub_(begin)
        yield RowPiece(slice(begin, end), slice(first, stop), offsets, goes_on)
        begin, first, goes_on = end, stop - inside, inside


def gather_rows(rows: Tensor, ids: Tensor) -> Tensor:
    """Rows by id, (K, F): a new tensor."""
    if rows.dtype != torch.float32:
        return rows.index_select(0, ids)
    # Sums of one row each: unlike index_select, this kernel asks the memory for rows in advance.
    offsets = torch.arange(ids.numel(), dtype=ids.dtype)
    return torch.embedding_bag(rows, ids, offsets, scale_grad_by_freq=False, mode=0)[0]
