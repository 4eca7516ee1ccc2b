"""Rows of edges, made from the rows of their ends or of the edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import cpu, reference
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import empty
from dgl_flash.ops import gradients
from dgl_flash.ops.choose import edge_map_layout
from dgl_flash.ops.dispatch import kernels_run
from dgl_flash.ops.gradients import EAGER, Scaling, num_parts, row_width
from dgl_flash.ops.rows import RowKernel, packed

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

KERNEL = RowKernel("edge_map.cu", "edge_map", edge_map_layout)
MAP_OP = {"copy": 0, "add": 1, "mul": 2}


def _launch(
    struct: GraphStructure,
    op: str,
    feat_dst: Tensor,
    other: Tensor | None,
    scaling: Scaling,
    on_edges: bool,
    layout: Layout | None = None,
) -> Tensor:
    adj = struct.in_adj
    width = row_width(feat_dst)
    out = empty((struct.num_edges, *feat_dst.shape[1:]), feat_dst.dtype, feat_dst.device)
    if out.numel() == 0:
        return out
    parts = num_parts(other)
    if other is None:
        operand = 0
    elif not on_edges or parts == width > 1:
        operand = 3
    else:
        operand = 1 if parts == 1 else 2
    num_heads = parts if operand == 2 else 1
    rows = KERNEL.on(
        adj,
        feat_dst.dtype,
        num_heads,
        width // num_heads,
        layout,
        MAP_OP=MAP_OP[op],
        OPERAND=operand,
        EDGE_ROWS=on_edges and other is not None,
        PERMUTED=adj.eids is not None,
        SRC_SCALE=scaling.src is not None,
        DST_SCALE=scaling.dst is not None,
        MEAN=scaling.mean,
    )
    rows((other, feat_dst, scaling.src, scaling.dst, adj.eids), (out,))
    return out


def _forward(
    struct: GraphStructure,
    op: str,
    feat_dst: Tensor,
    other: Tensor | None,
    scaling: Scaling,
    on_edges: bool = False,
) -> Tensor:
    """Combine on whatever the features lie on."""
    if kernels_run(feat_dst.device):
        second = None if other is None else packed(other, feat_dst.dtype)
        return _launch(struct, op, packed(feat_dst), second, scaling, on_edges)
    run = cpu.edge_map if feat_dst.device.type == "cpu" else reference.edge_map
    return run(
        struct,
        op,
        feat_dst,
        other,
        src_scale=scaling.src,
        dst_scale=scaling.dst,
        mean=scaling.mean,
        on_edges=on_edges,
    )


def edge_map(
    struct: GraphStructure,
    op: str,
    feat_dst: Tensor,
    other: Tensor | None,
    scaling: Scaling,
    on_edges: bool = False,
) -> Tensor:
    """Combine rows, through autograd only where it looks; arguments as in ``cpu.edge_map``."""
    run = EdgeMapFunction.apply if torch.is_grad_enabled() else _forward
    return run(struct, op, feat_dst, other, scaling, on_edges)


class EdgeMapFunction(Function):
    """Linear in each operand; its gradients are sums, dot products and this op again."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        op: str,
        feat_dst: Tensor,
        other: Tensor | None,
        scaling: Scaling,
        on_edges: bool,
    ) -> Tensor:
        """Combine rows of (N_dst, *)."""
        ctx.struct, ctx.op, ctx.on_edges = struct, op, on_edges
        ctx.shapes = feat_dst.shape, gradients.shape_of(other)
        product = op == "mul"
        gradients.save(
            ctx,
            scaling,
            feat_dst if product and ctx.needs_input_grad[3] else None,
            other if product and ctx.needs_input_grad[2] else None,
        )
        return _forward(struct, op, feat_dst, other, scaling, on_edges)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Sum over the edges of either end."""
        feat_dst, other = gradients.saved(ctx)
        needed = ctx.needs_input_grad[2], ctx.needs_input_grad[3]
        grad_dst, grad_other = gradients.of_map(
            EAGER,
            ctx.struct,
            ctx.op,
            feat_dst,
            other,
            ctx.shapes,
            ctx.scaling,
            ctx.on_edges,
            grad_out,
            needed,
        )
        return (
            None,  # struct
            None,  # op
            grad_dst,  # feat_dst
            grad_other,  # other
            None,  # scaling
            None,  # on_edges
        )
