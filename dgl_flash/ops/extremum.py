"""The maximum and minimum of messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash import cpu, reference
from dgl_flash.ops.broadcast import fit, spread
from dgl_flash.reference.gsddmm import combine
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def extremum(
    struct: GraphStructure, op: str, reduce_op: str, lhs: Tensor | None, rhs: Tensor | None
) -> Tensor:
    """Reduce messages to the largest or smallest; arguments as in ``reference.gspmm``.

    On a CPU the winning edges are found first and without derivatives. What they carry is read
    again, a row a destination, and that is all that autograd sees.
    """
    sides = [side for side in (lhs, rhs) if side is not None]
    if len(sides) == 2:
        lhs, rhs, shape = fit(op, *sides)
    else:
        shape = tuple(sides[0].shape[1:])
    is_empty = struct.num_edges == 0 or struct.num_dst == 0 or math.prod(shape) == 0
    # Transforms of torch.func see through what is plain torch only.
    transformed = torch._C._are_functorch_transforms_active()
    if struct.device.type != "cpu" or is_tracing() or is_empty or transformed:
        return reference.gspmm(struct, op, reduce_op, lhs, rhs)
    dtype, width = sides[0].dtype, math.prod(shape)
    left, right = (
        None
        if side is None
        else spread(side, shape).reshape(-1, width).to(accumulation_dtype(dtype))
        for side in (lhs, rhs)
    )
    found = _on_cpu(struct, op, reduce_op, left, right)
    found = found.reshape(struct.num_dst, *shape).to(dtype)
    # Torch lets nobody write over a view that was made without gradients.
    return found if torch.is_grad_enabled() else found.detach()


def _on_cpu(
    struct: GraphStructure, op: str, reduce_op: str, left: Tensor | None, right: Tensor | None
) -> Tensor:
    adj = struct.in_adj
    with torch.no_grad():
        columns = adj.indices if right is None else adj.eids
        rows = _messages(struct, op, left, right).detach()
    wants_grad = torch.is_grad_enabled() and any(
        side is not None and side.requires_grad for side in (left, right)
    )
    values, winners = cpu.extreme_rows(adj, columns, rows, reduce_op, wants_grad)
    if values.isnan().any():
        # As in DGL, no comparison with NaN holds: it is passed over where there are others.
        rows = rows.masked_fill(rows.isnan(), -torch.inf if reduce_op == "max" else torch.inf)
        values, winners = cpu.extreme_rows(adj, columns, rows, reduce_op, wants_grad)
    is_lost = values.isinf()
    if winners is None:
        return values.masked_fill_(is_lost, 0)
    is_lost |= winners == adj.num_edges
    winners = winners.clamp_(max=adj.num_edges - 1)
    won_left = None if left is None else left.gather(0, _look_up(adj.indices, winners))
    won_right = None if right is None else right.gather(0, _look_up(adj.eids, winners))
    if won_left is not None and won_right is not None:
        # Where none has won nothing may arrive, not even the derivative of a quotient.
        won_left, won_right = won_left.masked_fill(is_lost, 0), won_right.masked_fill(is_lost, 1)
    return combine(op, won_left, won_right).masked_fill(is_lost, 0)


def _messages(struct: GraphStructure, op: str, left: Tensor | None, right: Tensor | None) -> Tensor:
    if left is None or right is None:
        return combine(op, left, right)
    return combine(op, left.index_select(0, struct.edges()[0]), right)


def _look_up(ids: Tensor | None, positions: Tensor) -> Tensor:
    if ids is None:
        return positions.long()
    return ids.index_select(0, positions.flatten()).view_as(positions).long()
