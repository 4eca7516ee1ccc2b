"""The maximum and minimum of messages, with derivatives of any order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import edge_chunks
from dgl_flash.cpu.fold import Messages, fold
from dgl_flash.reference.gsddmm import combine
from dgl_flash.reference.rows import accumulation_dtype

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

Operands = tuple[Tensor | None, Tensor | None]
COPIES = ("copy_lhs", "copy_rhs")
Shapes = tuple[torch.Size | None, torch.Size | None]


def extremum(
    struct: GraphStructure, op: str, reduce_op: str, lhs: Tensor | None, rhs: Tensor | None
) -> Tensor:
    r"""Reduce the messages ``lhs[u] op rhs[e]`` of each destination to the largest or smallest.

    The first of equal messages wins, and gets the whole gradient. NaN loses to everything. Rows
    without edges and infinite results are 0, and pass no gradient.

    Parameters
    ----------
    struct : GraphStructure
        The graph, with at least one edge.
    op : {"add", "sub", "mul", "div", "copy_lhs", "copy_rhs"}
        How a message is made.
    reduce_op : {"max", "min"}
        Which.
    lhs, rhs : Tensor or None
        (N_src, \*) and (E, \*) in edge-id order, of equally many dimensions; what follows the first
        broadcasts as in NumPy, to at least one number.

    Returns
    -------
    Tensor
        (N_dst, \*), dtype of the operands.
    """
    lhs, rhs = None if op == "copy_rhs" else lhs, None if op == "copy_lhs" else rhs
    read = [side for side in (lhs, rhs) if side is not None]
    if torch.is_grad_enabled() and any(side.requires_grad for side in read):
        found: Tensor = ExtremumFunction.apply(struct, op, reduce_op, lhs, rhs)
        return found
    return _forward(struct, op, reduce_op, lhs, rhs, wants_winners=False)[0]


class ExtremumFunction(torch.autograd.Function):
    """Keeps who has won; of the operands only what products and quotients need."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        op: str,
        reduce_op: str,
        lhs: Tensor | None,
        rhs: Tensor | None,
    ) -> Tensor:
        """Reduce messages."""
        out, winners = _forward(struct, op, reduce_op, lhs, rhs, wants_winners=True)
        ctx.struct, ctx.op = struct, op
        ctx.shapes = tuple(None if side is None else side.shape for side in (lhs, rhs))
        kept = (lhs, rhs) if op in ("mul", "div") else (None, None)
        ctx.save_for_backward(winners, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Give each winner its gradient."""
        winners, *operands = ctx.saved_tensors
        wanted = ctx.needs_input_grad[3:5]
        differentiate = _differentiably if torch.is_grad_enabled() else _backward
        grads = differentiate(ctx.struct, ctx.op, winners, operands, ctx.shapes, grad_out, wanted)
        return (
            None,  # struct
            None,  # op
            None,  # reduce_op
            *grads,  # lhs, rhs
        )


def _forward(
    struct: GraphStructure,
    op: str,
    reduce_op: str,
    lhs: Tensor | None,
    rhs: Tensor | None,
    wants_winners: bool,
) -> tuple[Tensor, Tensor | None]:
    """Reduce, and name who has won: (N_dst, F) sources of copied rows, or else edges."""
    read = [side for side in (lhs, rhs) if side is not None]
    shape = tuple(torch.broadcast_shapes(*(side.shape[1:] for side in read)))
    dtype = read[0].dtype
    lhs, rhs = (None if side is None else side.contiguous() for side in (lhs, rhs))
    with torch.no_grad():
        values, ids = fold(struct, Messages(op, shape, lhs, rhs), reduce_op, wants_winners)
    # Detached, since torch lets nobody write over a view that was made without gradients.
    return values.to(dtype).view(struct.num_dst, *shape).detach(), ids


class _Side:
    """The operand that lies at rows of given ids, as the features of a result read it."""

    def __init__(self, shape: torch.Size, result: torch.Size):
        self.shape, self.num_rows, self.width = shape, shape[0], math.prod(shape[1:])
        columns = torch.arange(self.width).view(shape[1:]).expand(result[1:]).flatten()
        self.columns = None if columns.numel() == self.width else columns

    def _places(self, ids: Tensor) -> Tensor:
        assert self.columns is not None
        return (ids if self.width == 1 else ids * self.width + self.columns).flatten()

    def read(self, values: Tensor, ids: Tensor) -> Tensor:
        """One number for each id; any number for that of nobody."""
        ids = ids.clamp(max=self.num_rows - 1)
        if self.columns is None:
            return values.reshape(-1, self.width).gather(0, ids)
        return values.flatten().gather(0, self._places(ids)).view_as(ids)

    def zeros(self, like: Tensor) -> Tensor:
        """What :meth:`add` adds to: one more row than the operand has, for nobody."""
        return like.new_zeros((self.num_rows + 1, self.width))

    def add(self, sums: Tensor, ids: Tensor, grad: Tensor) -> None:
        """Add one number for each id."""
        if self.columns is None:
            sums.scatter_add_(0, ids, grad)
        else:
            sums.view(-1).scatter_add_(0, self._places(ids), grad.flatten())


def _senders(struct: GraphStructure, op: str, winners: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of both operands that have won, int64; for nobody the number of rows."""
    ids = winners.long()
    if op in COPIES:
        return ids, ids
    source_of, _ = struct.edges()
    is_lost = ids == struct.num_edges
    sources = source_of.take(ids.clamp(max=struct.num_edges - 1))
    return sources.masked_fill_(is_lost, struct.num_src), ids


def _backward(
    struct: GraphStructure,
    op: str,
    winners: Tensor,
    operands: Operands,
    shapes: Shapes,
    grad_out: Tensor,
    wanted: tuple[bool, bool],
) -> Operands:
    """Add the gradient of each result to the operands of the message that has won."""
    sides = [None if shape is None else _Side(shape, grad_out.shape) for shape in shapes]
    rows = grad_out.reshape(winners.shape)
    dtype = accumulation_dtype(grad_out.dtype)
    like = rows.new_empty(0, dtype=dtype)
    sums = [
        side.zeros(like) if side is not None and want else None
        for side, want in zip(sides, wanted, strict=True)
    ]
    for at in edge_chunks(rows.shape[0], rows.shape[1], like.element_size()):
        ids, grad = _senders(struct, op, winners[at]), rows[at].to(dtype)
        left, right = (
            None if side is None or given is None else side.read(given, which).to(dtype)
            for side, given, which in zip(sides, operands, ids, strict=True)
        )
        for number, (side, total) in enumerate(zip(sides, sums, strict=True)):
            if side is not None and total is not None:
                side.add(total, ids[number], _derivative(op, number, left, right, grad))
    grad_lhs, grad_rhs = (
        None
        if side is None or total is None
        else total[: side.num_rows].view(side.shape).to(grad_out.dtype)
        for side, total in zip(sides, sums, strict=True)
    )
    return grad_lhs, grad_rhs


def _derivative(
    op: str, number: int, left: Tensor | None, right: Tensor | None, grad: Tensor
) -> Tensor:
    """The gradient of the first or second operand of a message."""
    if left is None or right is None:
        return -grad if (op, number) == ("sub", 1) else grad
    if op == "mul":
        return grad * (left if number else right)
    quotient = grad / right
    return quotient.mul_(left).div_(right).neg_() if number else quotient


def _differentiably(
    struct: GraphStructure,
    op: str,
    winners: Tensor,
    operands: Operands,
    shapes: Shapes,
    grad_out: Tensor,
    wanted: tuple[bool, bool],
) -> Operands:
    """Read the messages that have won again, and let autograd differentiate that."""
    aliases: list[Tensor | None] = []
    read: list[Tensor | None] = []
    is_lost = winners == (struct.num_src if op == "copy_lhs" else struct.num_edges)
    ids = _senders(struct, op, winners)
    for given, shape, which, harmless in zip(operands, shapes, ids, (0, 1), strict=True):
        if shape is None:
            aliases.append(None)
            read.append(None)
            continue
        # An alias, so that one tensor on both sides gets the gradient of each. Where the values do
        # not matter they were not kept.
        values = grad_out.new_zeros(()).expand(shape).requires_grad_()
        alias = values if given is None else given.view_as(given)
        picked = _Side(shape, grad_out.shape).read(alias, which)
        # Where nobody has won nothing may arrive, not even the derivative of a quotient.
        picked = picked.to(accumulation_dtype(grad_out.dtype)).masked_fill(is_lost, harmless)
        aliases.append(alias)
        read.append(picked)
    out = combine(op, *read).masked_fill(is_lost, 0).to(grad_out.dtype).view(grad_out.shape)
    chosen = [
        alias for alias, want in zip(aliases, wanted, strict=True) if alias is not None and want
    ]
    found = iter(torch.autograd.grad(out, chosen, grad_out, create_graph=True))
    grad_lhs, grad_rhs = (next(found) if want else None for want in wanted)
    return grad_lhs, grad_rhs
