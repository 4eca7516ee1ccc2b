"""The maximum and minimum of messages."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import cpu, reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import Scratch, empty, empty_bytes
from dgl_flash.ops import gradients
from dgl_flash.ops.broadcast import as_weight, fit, spread
from dgl_flash.ops.choose_extremum import extremum_layout, message_layout
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.gradients import num_parts, row_width
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.ops.winners import EAGER, of_extremum
from dgl_flash.structure.places import bytes_of_place
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

KERNEL = RowKernel("extremum.cu", "extremum", extremum_layout)
MESSAGES = RowKernel("extremum.cu", "extremum", message_layout)
_KINDS = {"copy": 0, "add": 1, "mul": 2}
_MERGES = {"max": "merge_largest", "min": "merge_smallest"}


def launch(
    struct: GraphStructure,
    message: str,
    reduce_op: str,
    feat: Tensor,
    numbers: Tensor | None,
    on_edges: bool,
    num_bytes: int,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor]:
    """Run the kernel.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    message : {"copy", "add", "mul"}
        How a message is made of a row and a number of the edge.
    reduce_op : {"max", "min"}
        Which.
    feat, numbers : Tensor, Tensor or None
        (N_src, *) or with ``on_edges`` (E, *); and (E,), (E, H) or (E, F).
    on_edges : bool
        Whether the rows belong to edges.
    num_bytes : int
        Bytes of a place that are kept of each winner.
    layout : Layout, optional
        Another lane layout than the chosen one.

    Returns
    -------
    out, winners : Tensor
        (N_dst, *), and (num_bytes, N_dst, F), uint8.
    """
    adj = struct.in_adj
    width, parts, dtype = row_width(feat), num_parts(numbers), feat.dtype
    out = empty((struct.num_dst, *feat.shape[1:]), dtype, feat.device)
    winners = empty_bytes((num_bytes, struct.num_dst, width), feat.device)
    if out.numel() == 0:
        return out, winners
    kernel, kind, num_heads = KERNEL, 0, 1
    if numbers is not None and parts == width > 1:
        kernel, kind = MESSAGES, 3
    elif numbers is not None:
        kernel, kind, num_heads = MESSAGES, 1 if parts == 1 else 2, parts
    rows = kernel.on(
        adj,
        dtype,
        num_heads,
        width // num_heads,
        layout,
        WEIGHT=kind,
        EDGE_ROWS=on_edges,
        PERMUTED=adj.eids is not None and (on_edges or kind > 0),
        MESSAGE=_KINDS[message],
        MOST=reduce_op == "max",
        WINNER_BYTES=num_bytes,
    )
    size = rows.num_chunks * width
    pieces = Scratch(accumulator(dtype), feat.device, size, size)
    part_best, part_place = pieces.addresses
    rows((feat, numbers, adj.eids), (out, winners, part_best, part_place))
    rows.merge(
        _MERGES[reduce_op],
        dtype,
        inputs=(part_best, part_place, struct.num_dst, num_bytes),
        outputs=(out, winners),
        source="merge_statistics.cu",
    )
    return out, winners


def run_forward(
    struct: GraphStructure,
    message: str,
    reduce_op: str,
    feat: Tensor,
    numbers: Tensor | None,
    on_edges: bool,
    num_bytes: int,
) -> tuple[Tensor, Tensor]:
    """:func:`launch` of operands as they come."""
    numbers = None if numbers is None else packed(numbers, feat.dtype)
    return launch(struct, message, reduce_op, packed(feat), numbers, on_edges, num_bytes)


class ExtremumFunction(Function):
    """Saves a byte or two of each winner, and the operands of a product."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        message: str,
        reduce_op: str,
        feat: Tensor,
        numbers: Tensor | None,
        on_edges: bool,
    ) -> Tensor:
        """Reduce (N, *) or (E, *) rows."""
        num_bytes = bytes_of_place(struct.in_adj.max_degree)
        out, winners = run_forward(struct, message, reduce_op, feat, numbers, on_edges, num_bytes)
        ctx.struct, ctx.message, ctx.on_edges = struct, message, on_edges
        ctx.shapes = feat.shape, gradients.shape_of(numbers)
        # Each operand is needed for the gradient of the other one only.
        kept = (
            feat if message == "mul" and ctx.needs_input_grad[4] else None,
            numbers if message == "mul" and ctx.needs_input_grad[3] else None,
        )
        ctx.save_for_backward(winners, *kept)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Give each winner its gradient."""
        winners, *operands = ctx.saved_tensors
        grad_feat, grad_numbers = of_extremum(
            EAGER,
            ctx.struct,
            ctx.message,
            ctx.on_edges,
            winners,
            tuple(operands),
            ctx.shapes,
            grad_out,
            (ctx.needs_input_grad[3], ctx.needs_input_grad[4]),
        )
        return (
            None,  # struct
            None,  # message
            None,  # reduce_op
            grad_feat,  # feat
            grad_numbers,  # numbers
            None,  # on_edges
        )


def _reciprocal(values: Tensor) -> Tensor:
    """``1 / values``, with the derivative 0 at 0, whence nothing comes back."""
    is_zero = values == 0
    inverse = 1.0 / values.masked_fill(is_zero, 1)
    return torch.where(is_zero, values.detach().reciprocal(), inverse).to(values.dtype)


def _fused(
    struct: GraphStructure, op: str, reduce_op: str, lhs: Tensor | None, rhs: Tensor | None
) -> Tensor:
    """On a GPU: a sign or a reciprocal first, as in DGL, then a copy, a sum or a product."""
    numbers, on_edges, message = None, lhs is None, "copy"
    feat = rhs if lhs is None else lhs
    assert feat is not None
    if lhs is not None and rhs is not None:
        lhs, rhs, shape = fit(op, lhs, rhs)
        if op == "sub":
            rhs = -rhs
        elif op == "div":
            rhs = _reciprocal(rhs)
        message = "add" if op in ("add", "sub") else "mul"
        feat, numbers = spread(lhs, shape), as_weight(rhs, shape)
    if is_tracing():
        from dgl_flash.ops import traced_extremum

        return traced_extremum.extremum(struct, message, reduce_op, feat, numbers, on_edges)
    operands = (feat, numbers)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in operands):
        return ExtremumFunction.apply(struct, message, reduce_op, feat, numbers, on_edges)
    return run_forward(struct, message, reduce_op, feat, numbers, on_edges, 0)[0]


def extremum(
    struct: GraphStructure, op: str, reduce_op: str, lhs: Tensor | None, rhs: Tensor | None
) -> Tensor:
    """Reduce messages to the largest or smallest; arguments as in ``reference.gspmm``."""
    # Transforms of torch.func see through what is plain torch only.
    transformed = torch._C._are_functorch_transforms_active()
    if is_tracing():
        on_cuda = struct.device.type == "cuda"
        run = _fused if on_cuda else reference.gspmm
        return run(struct, op, reduce_op, lhs, rhs)
    blockers = ("torch.func transforms it",) if transformed else ()
    if use_kernel("gspmm", struct.device, kernels=("extremum",), blockers=blockers):
        return _fused(struct, op, reduce_op, lhs, rhs)
    sides = [side for side in (lhs, rhs) if side is not None]
    shape = fit(op, *sides).shape if len(sides) == 2 else tuple(sides[0].shape[1:])
    is_empty = struct.num_edges == 0 or struct.num_dst == 0 or math.prod(shape) == 0
    if struct.device.type != "cpu" or transformed or is_empty:
        return reference.gspmm(struct, op, reduce_op, lhs, rhs)
    if len(sides) == 2:
        lhs, rhs, _ = fit(op, *sides)
    return cpu.extremum(struct, op, reduce_op, lhs, rhs)
