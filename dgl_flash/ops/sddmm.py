"""Dot products between the two ends of every edge, or between an edge and its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import cpu, reference
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import empty
from dgl_flash.ops import gradients
from dgl_flash.ops.choose import sddmm_layout
from dgl_flash.ops.dispatch import kernels_run
from dgl_flash.ops.gradients import EAGER, NO_SCALING, Scaling, row_width
from dgl_flash.ops.rows import RowKernel, packed

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

KERNEL = RowKernel("sddmm.cu", "sddmm", sddmm_layout)


def _launch(
    struct: GraphStructure,
    feat: Tensor,
    feat_dst: Tensor,
    num_heads: int,
    scaling: Scaling,
    on_edges: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    adj = struct.in_adj
    dtype = feat.dtype
    out = empty((struct.num_edges, num_heads), dtype, feat.device)
    if out.numel() == 0:
        return out
    head_dim = row_width(feat_dst) // num_heads
    if head_dim == 0:
        return out.zero_()  # sums of nothing
    rows = KERNEL.on(
        adj,
        dtype,
        num_heads,
        head_dim,
        layout,
        EDGE_ROWS=on_edges,
        PERMUTED=adj.eids is not None,
        SRC_SCALE=scaling.src is not None,
        DST_SCALE=scaling.dst is not None,
        MEAN=scaling.mean,
    )
    rows((feat, feat_dst, scaling.src, scaling.dst, adj.eids), (out,))
    return out


def _forward(
    struct: GraphStructure,
    feat: Tensor,
    feat_dst: Tensor,
    num_heads: int,
    scaling: Scaling,
    on_edges: bool = False,
) -> Tensor:
    """Multiply on whatever the features lie on."""
    if kernels_run(feat.device):
        second = packed(feat_dst, feat.dtype)
        return _launch(struct, packed(feat), second, num_heads, scaling, on_edges)
    run = cpu.dot_rows if feat.device.type == "cpu" else reference.dot_rows
    return run(
        struct,
        feat,
        feat_dst,
        num_heads,
        src_scale=scaling.src,
        dst_scale=scaling.dst,
        mean=scaling.mean,
        on_edges=on_edges,
    )


def dot_products(
    struct: GraphStructure,
    feat: Tensor,
    feat_dst: Tensor,
    num_heads: int,
    scaling: Scaling = NO_SCALING,
    on_edges: bool = False,
) -> Tensor:
    """Dot products, through autograd only where it looks; arguments as in ``cpu.dot_rows``."""
    run = SDDMMFunction.apply if torch.is_grad_enabled() else _forward
    return run(struct, feat, feat_dst, num_heads, scaling, on_edges)


class SDDMMFunction(Function):
    """Bilinear; its gradients are weighted sums, or rows of edges."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat: Tensor,
        feat_dst: Tensor,
        num_heads: int,
        scaling: Scaling,
        on_edges: bool,
    ) -> Tensor:
        """Multiply rows of ``num_heads`` parts."""
        ctx.struct, ctx.on_edges = struct, on_edges
        # Each operand is needed for the gradient of the other one only.
        needs_dst, needs_feat = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        kept = feat if needs_feat else None, feat_dst if needs_dst else None
        gradients.save(ctx, scaling, *kept)
        return _forward(struct, feat, feat_dst, num_heads, scaling, on_edges)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Sum the other operand's rows, weighted by the gradient of each edge."""
        feat, feat_dst = gradients.saved(ctx)
        needed = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        grad_feat, grad_dst = gradients.of_dot(
            EAGER, ctx.struct, feat, feat_dst, ctx.scaling, ctx.on_edges, grad_out, needed
        )
        return (
            None,  # struct
            grad_feat,  # feat
            grad_dst,  # feat_dst
            None,  # num_heads
            None,  # scaling
            None,  # on_edges
        )
