"""Maxima and minima with the edges that won them, and what winners let through, in plain torch."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.reference.gspmm import extremes, messages_of
from dgl_flash.reference.rows import accumulation_dtype, sum_to_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def extremum(
    struct: GraphStructure,
    op: str,
    reduce_op: str,
    lhs: Tensor | None,
    rhs: Tensor | None,
    num_bytes: int,
) -> tuple[Tensor, Tensor]:
    """Reduce messages to the largest or smallest, and keep which edges these came from.

    Parameters
    ----------
    struct, op, reduce_op, lhs, rhs
        As in ``reference.gspmm``; max or min.
    num_bytes : int
        Bytes of a place in a row.

    Returns
    -------
    out : Tensor
        (N_dst, ...), dtype of the operands.
    winners : Tensor
        (num_bytes, N_dst, F), uint8: the bytes of each winner's place in its row, the lowest first;
        255 throughout where there is none.
    """
    messages = messages_of(struct, op, lhs, rhs)
    out, winner = extremes(struct, messages, reduce_op)
    adj = struct.in_adj
    width = math.prod(out.shape[1:])
    begins = adj.indptr[:-1].long().unsqueeze(1)
    winner = winner.reshape(struct.num_dst, width)
    place = torch.where(winner < adj.num_edges, winner - begins, -1)
    planes = [(place >> (8 * byte)) & 255 for byte in range(num_bytes)]
    winners = torch.stack(planes).to(torch.uint8) if planes else place.new_zeros((0, *place.shape))
    given = lhs if lhs is not None else rhs
    assert given is not None
    return out.to(given.dtype), winners.to(torch.uint8)


def _positions(struct: GraphStructure, winners: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the winners, and whether there are any."""
    weights = 256 ** torch.arange(winners.shape[0], device=winners.device)
    place = (winners.long() * weights.view(-1, 1, 1)).sum(0)
    exists = place != 256 ** winners.shape[0] - 1
    begins = struct.in_adj.indptr[:-1].long().unsqueeze(1)
    return torch.where(exists, begins + place, 0), exists


def _ids(struct: GraphStructure, positions: Tensor, on_edges: bool) -> Tensor:
    ids = struct.in_adj.eids if on_edges else struct.in_adj.indices
    return positions if ids is None else ids.long()[positions]


def pick_won(struct: GraphStructure, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
    """Read what the winners' sources, or the winners themselves, have.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    winners : Tensor
        (B, N_dst, F), as :func:`extremum` keeps them.
    values : Tensor
        (N_src, P), or (E, P) with ``on_edges``; each of the P numbers belongs to F / P elements.
    on_edges : bool
        Whether the values belong to edges.

    Returns
    -------
    Tensor
        (N_dst, F), 0 where nobody has won.
    """
    width = winners.shape[2]
    positions, exists = _positions(struct, winners)
    if positions.numel() == 0 or struct.num_edges == 0:
        return values.new_zeros((struct.num_dst, width))
    parts = torch.arange(width, device=values.device) // max(width // values.shape[1], 1)
    picked = values[_ids(struct, positions, on_edges), parts.expand_as(positions)]
    return torch.where(exists, picked, 0)


def put_won(
    struct: GraphStructure, winners: Tensor, grad: Tensor, on_edges: bool, num_parts: int
) -> Tensor:
    """Give each winner what belongs to the elements it has won: the transpose of `pick_won`.

    Parameters
    ----------
    struct, winners, on_edges
        As in :func:`pick_won`.
    grad : Tensor
        (N_dst, F)
    num_parts : int
        P, numbers of a source or edge.

    Returns
    -------
    Tensor
        (N_src, P) or (E, P).
    """
    num_rows = struct.num_edges if on_edges else struct.num_src
    width = winners.shape[2]
    dtype = accumulation_dtype(grad.dtype)
    if grad.numel() == 0 or struct.num_edges == 0:
        return grad.new_zeros((num_rows, num_parts))
    positions, exists = _positions(struct, winners)
    parts = torch.arange(width, device=grad.device) // max(width // num_parts, 1)
    cells = _ids(struct, positions, on_edges) * num_parts + parts
    kept = torch.where(exists, grad.to(dtype), 0)
    flat = sum_to_rows(kept.flatten(), cells.flatten(), num_rows * num_parts)
    return flat.reshape(num_rows, num_parts).to(grad.dtype)
