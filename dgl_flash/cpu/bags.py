"""Sums of rows as embedding bags, for which torch has a fast float32 kernel.

It adds a bag up from front to back, which would lose digits in rows of hundreds of edges. Of such
a row only the first piece is its bag; the others are bags behind those of all rows, and are added
to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency

LONG_ROW = 512  # edges
PIECE = 128


class Bags(NamedTuple):
    """The rows of an adjacency as bags.

    Attributes
    ----------
    order : Tensor or None
        Shape ``(E,)``, position in the adjacency of each edge; None where nothing moved.
    offsets : Tensor
        Shape ``(B + 1,)``, the edges of each bag; the first bags are those of the rows.
    owners : Tensor
        Shape ``(B - num_rows,)``, the row of each further piece.
    """

    order: Tensor | None
    offsets: Tensor
    owners: Tensor

    def sum(self, columns: Tensor | None, rows: Tensor, weight: Tensor | None) -> Tensor:
        """Sum ``rows[columns]``, given in the order of the adjacency, over each of its rows.

        ``columns`` is None where ``rows`` have that order themselves.
        """
        if self.order is not None:
            columns = self.order if columns is None else columns.index_select(0, self.order)
            weight = None if weight is None else weight.index_select(0, self.order)
        elif columns is None:
            columns = torch.arange(rows.shape[0], dtype=self.offsets.dtype)
        found = sum_bags(columns, rows, self.offsets, weight)
        num_rows = found.shape[0] - self.owners.numel()
        return found[:num_rows].index_add_(0, self.owners, found[num_rows:])


def sum_bags(columns: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None) -> Tensor:
    """Sum ``rows[columns]`` over each bag."""
    return F.embedding_bag(
        columns, rows, offsets, mode="sum", include_last_offset=True, per_sample_weights=weight
    )


def bags(adj: Adjacency) -> Bags:
    """The rows of an adjacency as bags, kept with it."""
    if "bags" not in adj.launches:
        adj.launches["bags"] = _cut(adj)
    return adj.launches["bags"]


def _cut(adj: Adjacency) -> Bags:
    lengths = adj.degrees().long()
    long_rows = (lengths > LONG_ROW).nonzero().flatten()
    if long_rows.numel() == 0:
        return Bags(None, adj.indptr, adj.indptr[:0])
    rows = adj.rows().long()
    rank = torch.arange(adj.num_edges) - adj.indptr.index_select(0, rows)
    moves = (lengths.index_select(0, rows) > LONG_ROW) & (rank >= PIECE)
    order = torch.cat([(~moves).nonzero().flatten(), moves.nonzero().flatten()])

    firsts = lengths.clone()
    firsts[long_rows] = PIECE
    rest = lengths[long_rows] - PIECE
    num_pieces = (rest + PIECE - 1) // PIECE
    owners = long_rows.repeat_interleave(num_pieces)
    nth = torch.arange(owners.numel()) - (num_pieces.cumsum(0) - num_pieces).repeat_interleave(
        num_pieces
    )
    begins = firsts.sum() + (rest.cumsum(0) - rest).repeat_interleave(num_pieces) + nth * PIECE
    offsets = torch.cat([firsts.cumsum(0) - firsts, begins, begins.new_tensor([adj.num_edges])])
    return Bags(order.to(adj.index_dtype), offsets.to(adj.index_dtype), owners)
