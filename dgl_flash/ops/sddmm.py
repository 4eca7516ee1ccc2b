"""Dot products between the two ends of every edge."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import empty
from dgl_flash.ops import check
from dgl_flash.ops.choose import sddmm_layout
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.ops.spmm import Scaling, weighted_sum
from dgl_flash.structure import structure
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

KERNEL = RowKernel("sddmm.cu", "sddmm", sddmm_layout)


def _forward(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    scaling: Scaling,
    num_heads: int,
    layout: Layout | None = None,
) -> Tensor:
    """Dot products (E, H) of the H parts of rows (N, *)."""
    adj = struct.in_adj
    dtype = feat_src.dtype
    out = empty((struct.num_edges, num_heads), dtype, feat_src.device)
    if out.numel() == 0:
        return out
    head_dim = math.prod(feat_src.shape[1:]) // num_heads
    if head_dim == 0:
        return out.zero_()  # sums of nothing
    rows = KERNEL.on(
        adj,
        dtype,
        num_heads,
        head_dim,
        layout,
        PERMUTED=adj.eids is not None,
        SRC_SCALE=scaling.src is not None,
        DST_SCALE=scaling.dst is not None,
        MEAN=scaling.mean,
    )
    rows((feat_src, feat_dst, scaling.src, scaling.dst, adj.eids), (out,))
    return out


def _packed_forward(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, scaling: Scaling, num_heads: int
) -> Tensor:
    return _forward(struct, packed(feat_src), packed(feat_dst), scaling, num_heads)


def dot_products(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, scaling: Scaling, num_heads: int
) -> Tensor:
    """Dot products on the kernel, for autograd only where it looks."""
    run = UDotVFunction.apply if torch.is_grad_enabled() else _packed_forward
    return run(struct, feat_src, feat_dst, scaling, num_heads)


class UDotVFunction(Function):
    """Bilinear; its gradients are weighted sums in both directions."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat_src: Tensor,
        feat_dst: Tensor,
        scaling: Scaling,
        num_heads: int,
    ) -> Tensor:
        """Run the kernel on (N, *) rows of ``num_heads`` parts."""
        ctx.save_for_backward(feat_src, feat_dst)
        ctx.struct, ctx.scaling = struct, scaling
        return _packed_forward(struct, feat_src, feat_dst, scaling, num_heads)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Sum the other end's rows, weighted by the gradient of each edge."""
        feat_src, feat_dst = ctx.saved_tensors
        struct, scaling = ctx.struct, ctx.scaling
        grad_src = grad_dst = None
        if ctx.needs_input_grad[1]:
            scaled = scaling.reverse(struct, accumulator(grad_out.dtype))
            grad_src = weighted_sum(struct.reverse(), feat_dst, grad_out, scaled)
        if ctx.needs_input_grad[2]:
            grad_dst = weighted_sum(struct, feat_src, grad_out, scaling)
        return (
            None,  # struct
            grad_src,  # feat_src
            grad_dst,  # feat_dst
            None,  # scaling
            None,  # num_heads
        )


def u_dot_v(graph: Any, feat_src: Tensor, feat_dst: Tensor) -> Tensor:
    r"""Multiply the features of an edge's ends and sum over the last dimension.

    .. math::
        s_{eh} = \sum_d x_{uhd} \, y_{vhd}, \qquad e = (u \to v)

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    feat_src : torch.Tensor
        :math:`x`, shape (N_src, H, D), float64, float32, float16 or bfloat16.
    feat_dst : torch.Tensor
        :math:`y`, shape (N_dst, H, D), dtype and device of ``feat_src``.

    Returns
    -------
    torch.Tensor
        Shape (E, H), edge-id order.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, an operand no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit.

    Notes
    -----
    Fused path: on CUDA one kernel keeps the destination row and reads each source row once per
    edge, summing in float32 (float64 for float64); gradients of any order are fused too. The CPU
    takes the reference path.
    """
    struct = structure(graph, check.device(feat_src), op="u_dot_v")
    feat_src, feat_dst = check.autocast(feat_src, feat_dst)
    check.tensor("u_dot_v", "feat_src", feat_src)
    check.tensor("u_dot_v", "feat_dst", feat_dst)
    check.same_as("u_dot_v", "feat_dst", feat_dst, "feat_src", feat_src)
    check.shape("u_dot_v", "feat_src", feat_src, (struct.num_src, None, None), "(N_src, H, D)")
    wanted = (struct.num_dst, *feat_src.shape[1:])
    check.shape("u_dot_v", "feat_dst", feat_dst, wanted, "(N_dst, H, D)")
    if is_tracing():
        from dgl_flash.ops import traced

        return traced.u_dot_v(struct, feat_src, feat_dst)
    if not use_kernel("u_dot_v", feat_src.device, kernels=("sddmm",)):
        return reference.u_dot_v(struct, feat_src, feat_dst)
    return dot_products(struct, feat_src, feat_dst, Scaling(), feat_src.shape[1])
