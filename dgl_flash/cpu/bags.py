"""Sums of rows as embedding bags, for which torch has a fast float32 kernel.

It adds a bag up from front to back, which would lose digits in rows of hundreds of edges. Such a
row is several bags, one after the other, whose sums are added up.
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
    """The rows of an adjacency as bags, in the order of the edges.

    Attributes
    ----------
    offsets : Tensor
        Shape ``(B + 1,)``, the edges of each bag.
    firsts : Tensor or None
        Shape ``(num_rows,)``, the first bag of each row; None where every row is one bag.
    others : Tensor or None
        Shape ``(B - num_rows,)``, the bags that are the first of no row.
    owners : Tensor or None
        Shape ``(B - num_rows,)``, the row of each of these.
    """

    offsets: Tensor
    firsts: Tensor | None = None
    others: Tensor | None = None
    owners: Tensor | None = None

    def sum(self, columns: Tensor | None, rows: Tensor, weight: Tensor | None) -> Tensor:
        """Sum ``rows[columns]``, given in the order of the adjacency, over each of its rows.

        ``columns`` is None where ``rows`` have that order themselves.
        """
        if columns is None:
            columns = torch.arange(rows.shape[0], dtype=self.offsets.dtype)
        found = sum_bags(columns, rows, self.offsets, weight)
        if self.firsts is None or self.others is None or self.owners is None:
            return found
        sums = found.index_select(0, self.firsts)
        return sums.index_add_(0, self.owners, found.index_select(0, self.others))


def sum_bags(columns: Tensor, rows: Tensor, offsets: Tensor, weight: Tensor | None) -> Tensor:
    """Sum ``rows[columns]`` over each bag."""
    # Its fast kernel is for packed rows; the gradient of a plain sum is one number, expanded.
    rows = rows.contiguous()
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
    is_long = lengths > LONG_ROW
    if not is_long.any():
        return Bags(adj.indptr)
    num_bags = torch.where(is_long, (lengths + PIECE - 1) // PIECE, 1)
    firsts = num_bags.cumsum(0) - num_bags
    owners = torch.arange(adj.num_rows).repeat_interleave(num_bags)
    nth = torch.arange(owners.numel()) - firsts.index_select(0, owners)
    begins = adj.indptr.index_select(0, owners) + nth * PIECE
    offsets = torch.cat([begins, begins.new_tensor([adj.num_edges])]).to(adj.index_dtype)
    others = nth.nonzero().flatten()
    return Bags(offsets, firsts, others, owners.index_select(0, others))
