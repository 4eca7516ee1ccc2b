"""Sums of rows as embedding bags, for which torch has a fast float32 kernel.

It adds a bag up from front to back, which would lose digits in rows of hundreds of edges. Such a
row is several bags, whose sums are added up. The first bag of each row is summed right into the
result; the others, which are few, by themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_flash.cpu.chunks import row_pieces
from dgl_flash.cpu.csr import csr_product

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency

LONG_ROW = 512  # edges
PIECE = 128


class Bags(NamedTuple):
    """Bags of edges.

    Attributes
    ----------
    columns : Tensor
        The rows to sum, one bag after the other.
    offsets : Tensor
        Shape ``(B + 1,)``, where the bags begin, and the end.
    positions : Tensor or None
        Where the edges stand in the adjacency; None where they have its order.
    """

    columns: Tensor
    offsets: Tensor
    positions: Tensor | None = None

    def sum(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """Sum over each bag; (E,) or (E, H) weights are in the order of the adjacency."""
        if weight is not None and self.positions is not None:
            weight = weight.index_select(0, self.positions)
        if weight is None or weight.dim() == 1:
            return sum_bags(self.columns, rows, self.offsets, weight)
        return self._sum_by_head(rows.contiguous(), weight)

    def _sum_by_head(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Each part of a row with its own weights, a piece of the edges at a time."""
        num_heads = weight.shape[1]
        parts = rows.view(rows.shape[0] * num_heads, -1)
        fits = parts.shape[0] <= torch.iinfo(self.columns.dtype).max
        dtype = self.columns.dtype if fits else torch.int64
        out = rows.new_empty((self.offsets.numel() - 1, num_heads, parts.shape[1]))
        for piece in row_pieces(self.offsets, rows.shape[1], rows.element_size()):
            offsets = piece.offsets.to(dtype)
            columns = self.columns[piece.positions].to(dtype) * num_heads
            weights = weight[piece.positions].t().contiguous()
            for head in range(num_heads):
                sums = sum_bags(columns + head, parts, offsets, weights[head])
                if piece.goes_on:
                    sums[0] += out[piece.rows.start, head]
                out[piece.rows, head] = sums
        return out.flatten(1)


class RowBags(NamedTuple):
    """The rows of an adjacency as bags.

    Attributes
    ----------
    firsts : Bags
        One for each row.
    others : Bags or None
        More of the same rows.
    owners : Tensor or None
        The row of each of these.
    """

    firsts: Bags
    others: Bags | None = None
    owners: Tensor | None = None

    def sum(self, rows: Tensor, weight: Tensor | None) -> Tensor:
        """Sum over each row of the adjacency; (E,) or (E, H) weights are in its order."""
        found = self.firsts.sum(rows, weight)
        if self.others is not None and self.owners is not None:
            found.index_add_(0, self.owners, self.others.sum(rows, weight))
        return found


def sum_bags(columns: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None) -> Tensor:
    """Sum ``rows[columns]`` over each bag."""
    if rows.dtype != torch.float32:
        return csr_product(columns, rows, offsets, weight)
    # Its fast kernel is for packed rows; the gradient of a plain sum is one number, expanded.
    rows = rows.contiguous()
    return F.embedding_bag(
        columns, rows, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


def bags(adj: Adjacency, on_edges: bool) -> RowBags:
    """The rows of an adjacency as bags of its columns, or of its edges; kept with it."""
    key = "bags", on_edges
    if key not in adj.launches:
        adj.launches[key] = _cut(adj, on_edges)
    return adj.launches[key]


def _cut(adj: Adjacency, on_edges: bool) -> RowBags:
    columns = adj.eids if on_edges else adj.indices
    if columns is None:
        columns = torch.arange(adj.num_edges, dtype=adj.index_dtype)
    lengths = adj.degrees().long()
    kept = torch.where(lengths > LONG_ROW, lengths.clamp(max=PIECE), lengths)
    rest = lengths - kept
    if not rest.any():
        return RowBags(Bags(columns, adj.indptr))

    def take(begins: Tensor, counts: Tensor) -> Bags:
        """Bags of ``counts`` edges from each position of ``begins``."""
        offsets = _running_sum(counts)
        shift = (begins - offsets[:-1]).repeat_interleave(counts)
        positions = shift.add_(torch.arange(shift.numel())).to(adj.index_dtype)
        picked = columns.index_select(0, positions)
        return Bags(picked, offsets.to(adj.index_dtype), positions)

    pieces = (rest + PIECE - 1) // PIECE
    owners = torch.arange(adj.num_rows).repeat_interleave(pieces)
    nth = torch.arange(owners.numel()) - _running_sum(pieces)[:-1].index_select(0, owners)
    done = nth * PIECE
    begins = adj.indptr.long()[:-1]
    others = take(
        (begins + kept).index_select(0, owners) + done,
        (rest.index_select(0, owners) - done).clamp(max=PIECE),
    )
    return RowBags(take(begins, kept), others, owners)


def _running_sum(counts: Tensor) -> Tensor:
    """(n + 1,), from 0 to the total."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
