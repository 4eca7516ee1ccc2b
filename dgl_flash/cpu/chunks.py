"""Walking edges a piece at a time, so that what is gathered stays in the cache."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK_BYTES = (
    1 << 23
)  # of one gathered operand; below, starting threads costs more than caches save


def edges_per_chunk(width: int, itemsize: int) -> int:
    """Edges whose rows of ``width`` numbers fill a chunk."""
    return max(CHUNK_BYTES // max(width * itemsize, 1), 1)


def edge_chunks(num_edges: int, width: int, itemsize: int) -> Iterator[slice]:
    """Cut the edges into chunks."""
    step = edges_per_chunk(width, itemsize)
    return (slice(begin, begin + step) for begin in range(0, num_edges, step))


def row_chunks(indptr: Tensor, width: int, itemsize: int) -> Iterator[tuple[slice, slice]]:
    """Cut the rows so that the edges of each piece fill about a chunk.

    Yields
    ------
    rows, positions : slice
        Whole rows; a row longer than a chunk is a piece of its own.
    """
    num_rows = indptr.numel() - 1
    num_edges = int(indptr[-1])
    step = edges_per_chunk(width, itemsize)
    targets = torch.arange(step, num_edges + step, step, dtype=indptr.dtype)
    cuts = torch.searchsorted(indptr, targets, right=True) - 1
    # A long row makes no progress at its own target: it ends at the next row.
    ends = torch.unique(torch.cat([cuts, cuts + 1, cuts.new_tensor([num_rows])]).clamp(1, num_rows))
    begin = 0
    for end in ends.tolist():
        positions = slice(int(indptr[begin]), int(indptr[end]))
        if positions.stop - positions.start >= step // 2 or end == num_rows:
            yield slice(begin, end), positions
            begin = end
