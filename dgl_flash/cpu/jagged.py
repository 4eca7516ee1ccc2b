"""Rows of a graph edge by edge: first that of each row, then the second of those that have one.

Rows of like length stand together. So each step reads and combines as many rows as there are left,
without padding and without a loop over the edges of one row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency

# Edges. The last steps have few rows left and cost what others cost.
PIECE = 32


class Steps(NamedTuple):
    """Runs of consecutive edges, longest first.

    Attributes
    ----------
    targets : Tensor
        (B,) int64, where the result of each run belongs.
    counts : list of int
        Runs with more than k edges, for each k.
    begins : list of int
        Where each step begins in the tensors below.
    sources, edges : Tensor
        Source and id of each edge, step by step.
    """

    targets: Tensor
    counts: list[int]
    begins: list[int]
    sources: Tensor
    edges: Tensor


class Jagged(NamedTuple):
    """The rows of an adjacency as steps.

    Attributes
    ----------
    empty_rows : Tensor
        Rows without edges, int64.
    short : Steps
        The rows of at most ``PIECE`` edges. Their targets are rows.
    pieces : Steps or None
        All others in pieces of as many edges. Their targets are pieces, in the order of the edges.
    indptr : Tensor or None
        Where the pieces of each long row begin, and the end.
    long_rows : Tensor or None
        Which rows these are, int64.
    """

    empty_rows: Tensor
    short: Steps
    pieces: Steps | None = None
    indptr: Tensor | None = None
    long_rows: Tensor | None = None


def jagged(adj: Adjacency) -> Jagged:
    """The rows of an adjacency as steps; kept with it."""
    if "jagged" not in adj.launches:
        # What is kept will be used in training too.
        with torch.inference_mode(False), torch.no_grad():
            adj.launches["jagged"] = _cut(adj)
    found: Jagged = adj.launches["jagged"]
    return found


def _cut(adj: Adjacency) -> Jagged:
    lengths, begins = adj.degrees().long(), adj.indptr[:-1].long()
    empty_rows = torch.nonzero(lengths == 0).flatten()
    rows = torch.nonzero((lengths > 0) & (lengths <= PIECE)).flatten()
    short = _steps(adj, rows, begins[rows], lengths[rows])
    long_rows = torch.nonzero(lengths > PIECE).flatten()
    if long_rows.numel() == 0:
        return Jagged(empty_rows, short)
    lengths = lengths[long_rows]
    counts = (lengths + PIECE - 1) // PIECE
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    pieces = torch.arange(int(indptr[-1]))
    done = (pieces - indptr[:-1].repeat_interleave(counts)) * PIECE
    piece_begins = begins[long_rows].repeat_interleave(counts) + done
    piece_lengths = (lengths.repeat_interleave(counts) - done).clamp(max=PIECE)
    steps = _steps(adj, pieces, piece_begins, piece_lengths)
    return Jagged(empty_rows, short, steps, indptr.to(adj.index_dtype), long_rows)


def _steps(adj: Adjacency, targets: Tensor, begins: Tensor, lengths: Tensor) -> Steps:
    """Steps through runs of at least one edge."""
    order = lengths.argsort(descending=True, stable=True)
    firsts = begins[order].to(adj.index_dtype)
    # How many runs are longer than 0, 1, ...
    counts = torch.bincount(lengths, minlength=2).flip(0).cumsum(0).flip(0)[1:].tolist()
    positions = torch.cat([firsts[:count] + step for step, count in enumerate(counts)])
    starts = [sum(counts[:step]) for step in range(len(counts))]
    edges = positions if adj.eids is None else adj.eids[positions]
    return Steps(targets[order], counts, starts, adj.indices[positions], edges)
