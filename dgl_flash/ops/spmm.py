"""Weighted sums over neighbour rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import Scratch, empty
from dgl_flash.ops import check
from dgl_flash.ops.choose import spmm_layout
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.structure import structure
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

REDUCERS = ("sum", "mean")
KERNEL = RowKernel("spmm.cu", "spmm", spmm_layout)


@dataclass(frozen=True)
class Scaling:
    """Constant factors of the sum: one a source, one a destination, and the mean's 1 / degree."""

    src: Tensor | None = None
    dst: Tensor | None = None
    mean: bool = False

    def reverse(self, struct: GraphStructure, dtype: torch.dtype) -> Scaling:
        """The factors seen from the reverse graph, where a mean is a factor of the source."""
        dst = self.dst
        if self.mean:
            per_degree = struct.degree_scale("dst", -1, dtype)
            dst = per_degree if dst is None else dst * per_degree
        return Scaling(src=dst, dst=self.src)


def num_heads_of(edge_weight: Tensor | None) -> int:
    """Parts of a row that have a weight of their own: weights are (E,) or (E, H)."""
    return 1 if edge_weight is None or edge_weight.dim() == 1 else edge_weight.shape[1]


def _forward(
    struct: GraphStructure,
    feat: Tensor,
    edge_weight: Tensor | None,
    scaling: Scaling,
    layout: Layout | None = None,
) -> Tensor:
    """Sum rows (N, *) with edge weights (E,) or (E, H)."""
    adj = struct.in_adj
    num_heads, width = num_heads_of(edge_weight), math.prod(feat.shape[1:])
    dtype = feat.dtype
    out = empty((struct.num_dst, *feat.shape[1:]), dtype, feat.device)
    if out.numel() == 0:
        return out
    rows = KERNEL.on(
        adj,
        dtype,
        num_heads,
        width // num_heads,
        layout,
        WEIGHT=0 if edge_weight is None else edge_weight.dim(),
        PERMUTED=edge_weight is not None and adj.eids is not None,
        SRC_SCALE=scaling.src is not None,
        DST_SCALE=scaling.dst is not None,
        MEAN=scaling.mean,
    )
    pieces = Scratch(accumulator(dtype), feat.device, rows.num_chunks * width)
    (part_sum,) = pieces.addresses
    rows((feat, edge_weight, scaling.src, scaling.dst, adj.eids), (out, part_sum))
    rows.merge("merge_sum", dtype, inputs=(part_sum,), outputs=(out,))
    return out


def _packed_forward(
    struct: GraphStructure, feat: Tensor, edge_weight: Tensor | None, scaling: Scaling
) -> Tensor:
    weight = None if edge_weight is None else packed(edge_weight)
    return _forward(struct, packed(feat), weight, scaling)


def weighted_sum(
    struct: GraphStructure, feat: Tensor, edge_weight: Tensor | None, scaling: Scaling
) -> Tensor:
    """Sum on the kernel, through autograd only where it looks: rarely in a backward."""
    run = SpMMFunction.apply if torch.is_grad_enabled() else _packed_forward
    return run(struct, feat, edge_weight, scaling)


class SpMMFunction(Function):
    """Linear in both operands; its gradients are this op and :class:`UDotVFunction` again."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat: Tensor,
        edge_weight: Tensor | None,
        scaling: Scaling,
    ) -> Tensor:
        """Run the kernel on (N, *) rows."""
        ctx.struct, ctx.scaling = struct, scaling
        # The features are needed for the weights' gradient only.
        kept = feat if edge_weight is not None and ctx.needs_input_grad[2] else None
        ctx.save_for_backward(kept, edge_weight)
        return _packed_forward(struct, feat, edge_weight, scaling)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Gather over the reverse adjacency; dot products for the weights."""
        from dgl_flash.ops.sddmm import dot_products

        feat, edge_weight = ctx.saved_tensors
        struct, scaling = ctx.struct, ctx.scaling
        grad_feat = grad_weight = None
        if ctx.needs_input_grad[1]:
            scaled = scaling.reverse(struct, accumulator(grad_out.dtype))
            grad_feat = weighted_sum(struct.reverse(), grad_out, edge_weight, scaled)
        if edge_weight is not None and ctx.needs_input_grad[2]:
            num_heads = num_heads_of(edge_weight)
            grad_weight = dot_products(struct, feat, grad_out, scaling, num_heads)
            grad_weight = grad_weight.reshape(edge_weight.shape)
        return (
            None,  # struct
            grad_feat,  # feat
            grad_weight,  # edge_weight
            None,  # scaling
        )


def _fold(struct: GraphStructure, edge_weight: Tensor) -> Tensor:
    """View weights as (E,), or as (E, H) where they differ between the parts of a row."""
    num_heads = math.prod(edge_weight.shape[1:])
    shape = (struct.num_edges,) if num_heads == 1 else (struct.num_edges, num_heads)
    return edge_weight.reshape(shape)


def _check_weight(struct: GraphStructure, feat: Tensor, edge_weight: Tensor) -> None:
    check.tensor("spmm", "edge_weight", edge_weight)
    check.same_as("spmm", "edge_weight", edge_weight, "feat", feat)
    got = tuple(edge_weight.shape)
    sizes = list(got[1:])
    while sizes and sizes[-1] == 1:
        sizes.pop()
    fits = got[:1] == (struct.num_edges,) and list(feat.shape[1 : 1 + len(sizes)]) == sizes
    if not fits:
        raise ValueError(
            f"spmm: expected `edge_weight` of shape (E,) = ({struct.num_edges},), or with one "
            f"number a head for `feat` {tuple(feat.shape)}, got {got}; reshape it so that its "
            f"sizes after E are the first sizes of a feature row"
        )


def _check_scale(name: str, scale: Tensor | None, feat: Tensor, size: int) -> Tensor | None:
    if scale is None:
        return None
    check.tensor("spmm", name, scale)
    check.shape("spmm", name, scale, (size,), "(N,)")
    if scale.device != feat.device:
        raise ValueError(
            f"spmm: expected `{name}` on {feat.device} like `feat`, got {scale.device}; "
            f"pass {name}.to('{feat.device}')"
        )
    if scale.requires_grad:
        raise ValueError(
            f"spmm: expected `{name}` to be a constant, got a tensor that requires a gradient; "
            f"multiply the features by it instead, or pass {name}.detach()"
        )
    return scale.to(accumulator(feat.dtype)).contiguous()


def spmm(
    graph: Any,
    feat: Tensor,
    edge_weight: Tensor | None = None,
    *,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
) -> Tensor:
    r"""Aggregate neighbour features with optional edge weights and node factors.

    .. math::
        z_v = b_v \; R_{e=(u \to v)} \; a_u \, w_e \, x_u, \qquad R = \text{sum or mean}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    feat : torch.Tensor
        :math:`x`, shape (N_src, \*), float64, float32, float16 or bfloat16.
    edge_weight : torch.Tensor, optional
        :math:`w` in edge-id order: shape (E,) or (E, 1), or (E, H) for features (N_src, H, \*).
        It may require a gradient.
    reduce : {"sum", "mean"}
        The mean divides by max(in-degree, 1).
    src_scale, dst_scale : torch.Tensor, optional
        :math:`a` (N_src,) and :math:`b` (N_dst,), constants, e.g. the normalisation of a GCN.

    Returns
    -------
    torch.Tensor
        Shape (N_dst, \*), dtype of ``feat``; zero for destinations without in-edges.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, an operand no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit, or ``reduce`` is unknown.

    Notes
    -----
    Fused path: on CUDA one kernel reads each source row once per edge, with all factors applied on
    the way, sums in float32 (float64 for float64) and writes each row once; its gradients are the
    same kernel on the reverse adjacency and one kernel of dot products, so derivatives of any order
    are fused too. No atomics: bit-equal from run to run. The CPU takes the reference path.
    """
    struct = structure(graph, check.device(feat), op="spmm")
    feat, edge_weight = check.autocast(feat, edge_weight)
    check.tensor("spmm", "feat", feat)
    if feat.dim() == 0 or feat.shape[0] != struct.num_src:
        raise ValueError(
            f"spmm: expected `feat` of shape (N_src, *) = ({struct.num_src}, *), "
            f"got {tuple(feat.shape)}; one row a source node is needed"
        )
    if edge_weight is not None:
        _check_weight(struct, feat, edge_weight)
    if reduce not in REDUCERS:
        raise ValueError(f"spmm: expected `reduce` to be one of {REDUCERS}, got {reduce!r}")
    src_scale = _check_scale("src_scale", src_scale, feat, struct.num_src)
    dst_scale = _check_scale("dst_scale", dst_scale, feat, struct.num_dst)
    weight = None if edge_weight is None else _fold(struct, edge_weight)
    scaling = Scaling(src_scale, dst_scale, mean=reduce == "mean")
    if is_tracing():
        from dgl_flash.ops import traced

        return traced.spmm(struct, feat, weight, scaling)
    if not use_kernel("spmm", feat.device, kernels=("spmm",)):
        return reference.spmm(
            struct, feat, edge_weight, reduce=reduce, src_scale=src_scale, dst_scale=dst_scale
        )
    return weighted_sum(struct, feat, weight, scaling)
