"""Messages on every edge, reduced at the destinations, one step after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.reference.gsddmm import combine
from dgl_flash.reference.rows import accumulation_dtype, gather_rows, per_row, sum_to_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def gspmm(
    struct: GraphStructure, op: str, reduce_op: str, lhs: Tensor | None, rhs: Tensor | None
) -> Tensor:
    """Reduce the messages ``lhs[u] op rhs[e]`` over the in-edges of each destination.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    op : {"add", "sub", "mul", "div", "copy_lhs", "copy_rhs"}
        How a message is made.
    reduce_op : {"sum", "mean", "max", "min"}
        How messages are reduced. Of equal messages the first of the row is the largest, and the
        smallest; rows without edges and infinite results are zero.
    lhs, rhs : Tensor or None
        (N_src, ...) and (E, ...), whose further dimensions broadcast as in NumPy.

    Returns
    -------
    Tensor
        (N_dst, ...), dtype of the operands.
    """
    src, dst = struct.edges()
    given = lhs if lhs is not None else rhs
    assert given is not None
    dtype = accumulation_dtype(given.dtype)
    left = None if lhs is None else gather_rows(lhs.to(dtype), src)
    right = None if rhs is None else rhs.to(dtype)
    messages = combine(op, left, right)
    if reduce_op in ("max", "min"):
        return _extremes(struct, messages, reduce_op).to(given.dtype)
    out = sum_to_rows(messages, dst, struct.num_dst)
    if reduce_op == "mean":
        out = out / per_row(struct.in_degrees().clamp(min=1).to(dtype), out)
    return out.to(given.dtype)


def _extremes(struct: GraphStructure, messages: Tensor, reduce_op: str) -> Tensor:
    adj = struct.in_adj
    if adj.num_edges == 0:
        return sum_to_rows(messages, messages.new_zeros(0, dtype=torch.int64), struct.num_dst)
    in_order = messages if adj.eids is None else messages[adj.eids.long()]
    # As in DGL, no comparison with NaN holds: it is passed over where there are other messages.
    in_order = in_order.masked_fill(
        in_order.isnan(), -torch.inf if reduce_op == "max" else torch.inf
    )
    rows = per_row(adj.rows().long(), in_order).expand_as(in_order)
    positions = per_row(torch.arange(adj.num_edges, device=in_order.device), in_order)
    with torch.no_grad():
        shape = (struct.num_dst, *in_order.shape[1:])
        found = in_order.new_zeros(shape)
        found.scatter_reduce_(0, rows, in_order, f"a{reduce_op}", include_self=False)
        wins = in_order == found.gather(0, rows)
        nobody = adj.num_edges
        claims = torch.where(wins, positions, nobody)
        winner = torch.full(shape, nobody, device=in_order.device, dtype=torch.int64)
        winner.scatter_reduce_(0, rows, claims, "amin")
        exists = winner < nobody
    out = in_order.gather(0, winner.clamp(max=nobody - 1))
    return torch.where(exists & ~out.isinf(), out, 0)
