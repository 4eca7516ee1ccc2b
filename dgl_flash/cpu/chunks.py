"""Walking edges a piece at a time, so that what is gathered stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

# Of one gathered operand; below, starting threads costs more than caches save.
CHUNK_BYTES = 1 << 22
# Narrow rows end a piece sooner: it is added up from front to back, and digits get lost.
LONGEST_PIECE = 1 << 14


def edges_per_chunk(width: int, itemsize: int) -> int:
    """Edges whose rows of ``width`` numbers fill a chunk."""
    return max(CHUNK_BYTES // max(width * itemsize, 1), 1)


def edge_chunks(num_edges: int, width: int, itemsize: int) -> Iterator[slice]:
    """Cut the edges into chunks."""
    step = edges_per_chunk(width, itemsize)
    return (slice(begin, begin + step) for begin in range(0, num_edges, step))


def row_pieces(
    indptr: Tensor, width: int, itemsize: int
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Cut the edges of compressed rows into chunks.

    Yields
    ------
    positions, rows : slice
        Edges of the piece, and rows that they belong to. The first and the last row may have more
        edges in the pieces before and after.
    offsets : Tensor
        Where each of these rows begins in the piece, and the end.
    """
    num_edges = int(indptr[-1])
    step = min(edges_per_chunk(width, itemsize), LONGEST_PIECE)
    begins = torch.arange(0, num_edges, step, dtype=indptr.dtype)
    ends = (begins + step).clamp_(max=num_edges)
    first = torch.searchsorted(indptr, begins, right=True) - 1
    stop = torch.searchsorted(indptr, ends)
    bounds = torch.stack([begins.long(), ends.long(), first, stop], dim=1)
    for begin, end, first_row, stop_row in bounds.tolist():
        offsets = indptr[first_row : stop_row + 1].clamp(begin, end).sub_(begin)
        yield slice(begin, end), slice(first_row, stop_row), offsets


def gather_rows(rows: Tensor, ids: Tensor) -> Tensor:
    """Rows by id, (K, F): a new tensor."""
    if rows.dtype != torch.float32:
        return rows.index_select(0, ids)
    # Sums of one row each: unlike index_select, this kernel asks the memory for rows in advance.
    return F.embedding_bag(ids, rows, torch.arange(ids.numel(), dtype=ids.dtype), mode="sum")
