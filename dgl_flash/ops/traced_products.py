"""The three products as ``torch.compile`` sees them; derivatives as in ``gradients``.

Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.ops import gradients
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_map import _forward as map_forward
from dgl_flash.ops.gradients import Products, Scaling
from dgl_flash.ops.sddmm import _forward as dot_forward
from dgl_flash.ops.spmm import _forward as sum_forward
from dgl_flash.ops.tracing import (
    NO_EDGE_GRADIENTS,
    NUM_EDGE_ARGUMENTS,
    declare,
    save,
    saved,
    split,
)
from dgl_flash.structure.traced import EdgeTensors, _degree_scale, find

SCALING = "Tensor? src_scale, Tensor? dst_scale, bool mean, bool on_edges"


class _Traced:
    """The products as ops on the tensors of the edges."""

    @staticmethod
    def sum(
        edges: EdgeTensors,
        feat: Tensor,
        weight: Tensor | None,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        return _sum(*edges, feat, weight, *_flat(scaling), on_edges)

    @staticmethod
    def dot(
        edges: EdgeTensors,
        feat: Tensor,
        feat_dst: Tensor,
        num_heads: int,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        return _dot(*edges, feat, feat_dst, num_heads, *_flat(scaling), on_edges)

    @staticmethod
    def map(
        edges: EdgeTensors,
        op: str,
        feat_dst: Tensor,
        other: Tensor | None,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        return _map(*edges, op, feat_dst, other, *_flat(scaling), on_edges)

    @staticmethod
    def reverse(edges: EdgeTensors, scaling: Scaling, dtype: torch.dtype) -> Scaling:
        dst = scaling.dst
        if scaling.mean:
            per_degree = _degree_scale(*edges, "dst", -1.0, dtype)
            dst = per_degree if dst is None else dst * per_degree
        return Scaling(src=dst, dst=scaling.src)


TRACED: Products = _Traced()


def _flat(scaling: Scaling) -> tuple[Tensor | None, Tensor | None, bool]:
    return scaling.src, scaling.dst, scaling.mean


def _needed(ctx: Any, *places: int) -> tuple[bool, bool]:
    first, second = (ctx.needs_input_grad[NUM_EDGE_ARGUMENTS + place] for place in places)
    return first, second


@declare("spmm", f"Tensor feat, Tensor? weight, {SCALING}) -> Tensor")
def _sum(*arguments: Any) -> Tensor:
    edges, (feat, weight, *scaling, on_edges) = split(arguments)
    use_kernel("spmm", feat.device, kernels=("spmm",))
    return sum_forward(find(edges), feat, weight, Scaling(*scaling), on_edges)


@_sum.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (feat, *_) = split(arguments)
    return feat.new_empty((edges.num_dst, *feat.shape[1:]))


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (feat, weight, src_scale, dst_scale, ctx.mean, ctx.on_edges) = split(inputs)
    needs_weight, needs_feat = _needed(ctx, 0, 1)  # each for the gradient of the other one
    ctx.weight_shape = gradients.shape_of(weight)
    kept = feat if weight is not None and needs_feat else None, weight if needs_weight else None
    save(ctx, edges, *kept, src_scale, dst_scale)


def _sum_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (feat, weight, src_scale, dst_scale) = saved(ctx)
    scaling = Scaling(src_scale, dst_scale, ctx.mean)
    needed = _needed(ctx, 0, 1)
    grads = gradients.of_sum(
        TRACED, edges, feat, weight, ctx.weight_shape, scaling, ctx.on_edges, grad_out, needed
    )
    return *NO_EDGE_GRADIENTS, *grads, None, None, None, None


_sum.register_autograd(_sum_backward, setup_context=_sum_setup)


@declare("sddmm", f"Tensor feat, Tensor feat_dst, SymInt num_heads, {SCALING}) -> Tensor")
def _dot(*arguments: Any) -> Tensor:
    edges, (feat, feat_dst, num_heads, *scaling, on_edges) = split(arguments)
    use_kernel("sddmm", feat.device, kernels=("sddmm",))
    return dot_forward(find(edges), feat, feat_dst, num_heads, Scaling(*scaling), on_edges)


@_dot.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (feat, _, num_heads, *_) = split(arguments)
    return feat.new_empty((edges.indices.shape[0], num_heads))


def _dot_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (feat, feat_dst, _, src_scale, dst_scale, ctx.mean, ctx.on_edges) = split(inputs)
    needs_dst, needs_feat = _needed(ctx, 0, 1)  # each for the gradient of the other one
    kept = feat if needs_feat else None, feat_dst if needs_dst else None
    save(ctx, edges, *kept, src_scale, dst_scale)


def _dot_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (feat, feat_dst, src_scale, dst_scale) = saved(ctx)
    scaling = Scaling(src_scale, dst_scale, ctx.mean)
    needed = _needed(ctx, 0, 1)
    grads = gradients.of_dot(TRACED, edges, feat, feat_dst, scaling, ctx.on_edges, grad_out, needed)
    return *NO_EDGE_GRADIENTS, *grads, None, None, None, None, None


_dot.register_autograd(_dot_backward, setup_context=_dot_setup)


@declare("edge_map", f"str op, Tensor feat_dst, Tensor? other, {SCALING}) -> Tensor")
def _map(*arguments: Any) -> Tensor:
    edges, (op, feat_dst, other, *scaling, on_edges) = split(arguments)
    use_kernel("edge_map", feat_dst.device, kernels=("edge_map",))
    return map_forward(find(edges), op, feat_dst, other, Scaling(*scaling), on_edges)


@_map.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (_, feat_dst, *_) = split(arguments)
    return feat_dst.new_empty((edges.indices.shape[0], *feat_dst.shape[1:]))


def _map_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (ctx.op, feat_dst, other, src_scale, dst_scale, ctx.mean, ctx.on_edges) = split(inputs)
    ctx.shapes = feat_dst.shape, gradients.shape_of(other)
    needs_dst, needs_other = _needed(ctx, 1, 2)
    kept = feat_dst if ctx.op == "mul" and needs_other else None
    second = other if ctx.op == "mul" and needs_dst else None
    save(ctx, edges, kept, second, src_scale, dst_scale)


def _map_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (feat_dst, other, src_scale, dst_scale) = saved(ctx)
    grads = gradients.of_map(
        TRACED,
        edges,
        ctx.op,
        feat_dst,
        other,
        ctx.shapes,
        Scaling(src_scale, dst_scale, ctx.mean),
        ctx.on_edges,
        grad_out,
        _needed(ctx, 1, 2),
    )
    return *NO_EDGE_GRADIENTS, None, *grads, None, None, None, None


_map.register_autograd(_map_backward, setup_context=_map_setup)
