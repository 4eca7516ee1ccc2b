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
    given = lhs if lhs is not None else rhs
    assert given is not None
    messages = messages_of(struct, op, lhs, rhs)
    if reduce_op in ("max", "min"):
        return extremes(struct, messages, reduce_op)[0].to(given.dtype)
    out = sum_to_rows(messages, struct.edges()[1], struct.num_dst)
    if reduce_op == "mean":
        degrees = struct.in_degrees().clamp(min=1)
        out = out / per_row(degrees.to(messages.dtype), out)
    return out.to(given.dtype)


def messages_of(struct: GraphStructure, op: str, lhs: Tensor | None, rhs: Tensor | None) -> Tensor:
    """Make the messages, (E, ...) in edge-id order and in the dtype of the arithmetic."""
    given = lhs if lhs is not None else rhs
    assert given is not None
    dtype = accumulation_dtype(given.dtype)
    left = None if lhs is None else gather_rows(lhs.to(dtype), struct.edges()[0])
    right = None if rhs is None else rhs.to(dtype)
    return combine(op, left, right)


def extremes(struct: GraphStructure, messages: Tensor, reduce_op: str) -> tuple[Tensor, Tensor]:
    """Largest or smallest message of each row, and the position it came from.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    messages : Tensor
        (E, ...), edge-id order.
    reduce_op : {"max", "min"}
        Which.

    Returns
    -------
    out, winner : Tensor
        (N_dst, ...); the winner is ``num_edges`` where there is none.
    """
    adj = struct.in_adj
    nobody = adj.num_edges
    shape = (struct.num_dst, *messages.shape[1:])
    winner = torch.full(shape, nobody, device=messages.device, dtype=torch.int64)
    if nobody == 0:
        nowhere = messages.new_zeros(0, dtype=torch.int64)
        return sum_to_rows(messages, nowhere, struct.num_dst), winner
    in_order = messages if adj.eids is None else messages[adj.eids.long()]
    # As in DGL, no comparison with NaN holds: it is passed over where there are other messages.
    in_order = in_order.masked_fill(
        in_order.isnan(), -torch.inf if reduce_op == "max" else torch.inf
    )
    rows = per_row(adj.rows().long(), in_order).expand_as(in_order)
    positions = per_row(torch.arange(adj.num_edges, device=in_order.device), in_order)
    with torch.no_grad():
        found = in_order.new_zeros(shape)
        found.scatter_reduce_(0, rows, in_order, f"a{reduce_op}", include_self=False)
        wins = (in_order == found.gather(0, rows)) & ~in_order.isinf()
        winner.scatter_reduce_(0, rows, torch.where(wins, positions, nobody), "amin")
        exists = winner < nobody
    out = in_order.gather(0, winner.clamp(max=nobody - 1))
    return torch.where(exists, out, 0), winner
