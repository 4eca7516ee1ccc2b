"""Maxima and minima as ``torch.compile`` sees them; derivatives as in ``winners``.

Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from dgl_flash import reference
from dgl_flash.ops import gradients
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.extremum import run_forward
from dgl_flash.ops.tracing import (
    NO_EDGE_GRADIENTS,
    NUM_EDGE_ARGUMENTS,
    declare,
    save,
    saved,
    split,
)
from dgl_flash.ops.winners import Moves, of_extremum, pick_forward, put_forward
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.places import bytes_of_place
from dgl_flash.structure.traced import EdgeTensors, edge_tensors, find


class _Traced:
    """The moves as ops on the tensors of the edges."""

    @staticmethod
    def put(
        edges: EdgeTensors, winners: Tensor, grad: Tensor, on_edges: bool, num_parts: int
    ) -> Tensor:
        return _put(*edges, winners, grad, on_edges, num_parts)

    @staticmethod
    def pick(edges: EdgeTensors, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
        return _pick(*edges, winners, values, on_edges)


TRACED: Moves = _Traced()


def extremum(
    struct: GraphStructure,
    message: str,
    reduce_op: str,
    feat: Tensor,
    numbers: Tensor | None,
    on_edges: bool,
) -> Tensor:
    """Reduce rows, or their sums or products with numbers of edges."""
    num_bytes = bytes_of_place(struct.bound_in_degree())
    operands = (message, reduce_op, feat, numbers, on_edges, num_bytes)
    out, _ = _extremum(*edge_tensors(struct), *operands)
    return out


@declare(
    "extremum",
    "str message, str reduce_op, Tensor feat, Tensor? numbers, bool on_edges, int num_bytes)"
    " -> (Tensor, Tensor)",
)
def _extremum(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (message, reduce_op, feat, numbers, on_edges, num_bytes) = split(arguments)
    struct = find(edges)
    if use_kernel("gspmm", feat.device, kernels=("extremum",)):
        return run_forward(struct, message, reduce_op, feat, numbers, on_edges, num_bytes)
    if message == "copy":
        if on_edges:
            return reference.extremum(struct, "copy_rhs", reduce_op, None, feat, num_bytes)
        return reference.extremum(struct, "copy_lhs", reduce_op, feat, None, num_bytes)
    assert numbers is not None
    width = math.prod(feat.shape[1:])
    flat = numbers.reshape(numbers.shape[0], gradients.row_width(numbers))
    full = flat.repeat_interleave(width // max(flat.shape[1], 1), dim=1)
    rows = feat.reshape(feat.shape[0], width)
    out, winners = reference.extremum(struct, message, reduce_op, rows, full, num_bytes)
    return out.reshape(struct.num_dst, *feat.shape[1:]), winners


@_extremum.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (_, _, feat, _, _, num_bytes) = split(arguments)
    out = feat.new_empty((edges.num_dst, *feat.shape[1:]))
    width = math.prod(feat.shape[1:])
    return out, feat.new_empty((num_bytes, edges.num_dst, width), dtype=torch.uint8)


def _needed(ctx: Any, *places: int) -> tuple[bool, bool]:
    first, second = (ctx.needs_input_grad[NUM_EDGE_ARGUMENTS + place] for place in places)
    return first, second


def _extremum_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, (ctx.message, _, feat, numbers, ctx.on_edges, _) = split(inputs)
    needs_feat, needs_numbers = _needed(ctx, 2, 3)
    is_product = ctx.message == "mul"
    ctx.shapes = feat.shape, gradients.shape_of(numbers)
    ctx.mark_non_differentiable(output[1])
    kept = (
        feat if is_product and needs_numbers else None,
        numbers if is_product and needs_feat else None,
    )
    save(ctx, edges, output[1], *kept)


def _extremum_backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Any, ...]:
    edges, (winners, *operands) = saved(ctx)
    grads = of_extremum(
        TRACED,
        edges,
        ctx.message,
        ctx.on_edges,
        winners,
        tuple(operands),
        ctx.shapes,
        grad_out,
        _needed(ctx, 2, 3),
    )
    return *NO_EDGE_GRADIENTS, None, None, *grads, None, None


_extremum.register_autograd(_extremum_backward, setup_context=_extremum_setup)


@declare("put_won", "Tensor winners, Tensor grad, bool on_edges, SymInt num_parts) -> Tensor")
def _put(*arguments: Any) -> Tensor:
    edges, (winners, grad, on_edges, num_parts) = split(arguments)
    return put_forward(find(edges), winners, grad, on_edges, num_parts)


@_put.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (_, grad, on_edges, num_parts) = split(arguments)
    num_rows = edges.indices.shape[0] if on_edges else edges.num_src
    return grad.new_empty((num_rows, num_parts))


def _put_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (winners, _, ctx.on_edges, _) = split(inputs)
    save(ctx, edges, winners)


def _put_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (winners,) = saved(ctx)
    picked = TRACED.pick(edges, winners, grad_out, ctx.on_edges)
    return *NO_EDGE_GRADIENTS, None, picked, None, None


_put.register_autograd(_put_backward, setup_context=_put_setup)


@declare("pick_won", "Tensor winners, Tensor values, bool on_edges) -> Tensor")
def _pick(*arguments: Any) -> Tensor:
    edges, (winners, values, on_edges) = split(arguments)
    return pick_forward(find(edges), winners, values, on_edges)


@_pick.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (winners, values, _) = split(arguments)
    return values.new_empty((edges.num_dst, winners.shape[2]))


def _pick_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (winners, values, ctx.on_edges) = split(inputs)
    ctx.num_parts = values.shape[1]
    save(ctx, edges, winners)


def _pick_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (winners,) = saved(ctx)
    put = TRACED.put(edges, winners, grad_out, ctx.on_edges, ctx.num_parts)
    return *NO_EDGE_GRADIENTS, None, put, None


_pick.register_autograd(_pick_backward, setup_context=_pick_setup)
