"""Weighted sums over neighbour rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import cpu, reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import Scratch, empty
from dgl_flash.ops import check, gradients
from dgl_flash.ops.choose import (
    elementwise_layout,
    scaled_layout,
    spmm_layout,
    weighted_layout,
)
from dgl_flash.ops.dispatch import kernels_run, use_kernel
from dgl_flash.ops.gradients import EAGER, NO_SCALING, Scaling, num_parts, row_width
from dgl_flash.ops.products import products_of
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.ops.spmm_cusparse import cusparse_sum, uses_cusparse
from dgl_flash.structure import structure
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

REDUCERS = ("sum", "mean")
KERNEL = RowKernel("spmm.cu", "spmm", spmm_layout)
# The same kernel with factors of sources, of edges or their heads, or of each element: two rows.
SCALED = RowKernel("spmm.cu", "spmm", scaled_layout)
WEIGHTED = RowKernel("spmm.cu", "spmm", weighted_layout)
ELEMENTWISE = RowKernel("spmm.cu", "spmm", elementwise_layout)


def _launch(
    struct: GraphStructure,
    feat: Tensor,
    edge_weight: Tensor | None,
    scaling: Scaling,
    on_edges: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    adj = struct.in_adj
    width, parts, dtype = row_width(feat), num_parts(edge_weight), feat.dtype
    out = empty((struct.num_dst, *feat.shape[1:]), dtype, feat.device)
    if out.numel() == 0:
        return out
    scaled = scaling.mean or scaling.src is not None or scaling.dst is not None
    plain = layout is None and not on_edges
    if plain and uses_cusparse(adj, dtype, width, edge_weight, scaled=scaled):
        return cusparse_sum(adj, feat, edge_weight, out)
    if edge_weight is None:
        kernel, kind, num_heads = KERNEL if scaling.src is None else SCALED, 0, 1
    elif parts == width > 1:
        kernel, kind, num_heads = ELEMENTWISE, 3, 1
    else:
        kernel, kind, num_heads = WEIGHTED, 1 if parts == 1 else 2, parts
    rows = kernel.on(
        adj,
        dtype,
        num_heads,
        width // num_heads,
        layout,
        WEIGHT=kind,
        EDGE_ROWS=on_edges,
        PERMUTED=adj.eids is not None and (on_edges or edge_weight is not None),
        SRC_SCALE=scaling.src is not None,
        DST_SCALE=scaling.dst is not None,
        MEAN=scaling.mean,
    )
    pieces = Scratch(accumulator(dtype), feat.device, rows.num_chunks * width)
    (part_sum,) = pieces.addresses
    rows((feat, edge_weight, scaling.src, scaling.dst, adj.eids), (out, part_sum))
    rows.merge("merge_sum", dtype, inputs=(part_sum,), outputs=(out,))
    return out


def _forward(
    struct: GraphStructure,
    feat: Tensor,
    edge_weight: Tensor | None,
    scaling: Scaling,
    on_edges: bool = False,
) -> Tensor:
    """Sum on whatever the features lie on."""
    if kernels_run(feat.device):
        weight = None if edge_weight is None else packed(edge_weight, feat.dtype)
        return _launch(struct, packed(feat), weight, scaling, on_edges)
    run = cpu.sum_rows if feat.device.type == "cpu" else reference.sum_rows
    out = run(
        struct,
        feat,
        edge_weight,
        src_scale=scaling.src,
        dst_scale=scaling.dst,
        mean=scaling.mean,
        on_edges=on_edges,
    )
    # Perhaps a part of a longer tensor, or another shape of one: torch lets nobody write over a
    # view that was made here, and layers do.
    return out.detach()


def weighted_sum(
    struct: GraphStructure,
    feat: Tensor,
    edge_weight: Tensor | None,
    scaling: Scaling = NO_SCALING,
    on_edges: bool = False,
) -> Tensor:
    """Sum rows, through autograd only where it looks; arguments as in ``cpu.sum_rows``."""
    run = SpMMFunction.apply if torch.is_grad_enabled() else _forward
    return run(struct, feat, edge_weight, scaling, on_edges)


class SpMMFunction(Function):
    """Linear in both operands; its gradients are this op, dot products and rows of edges."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat: Tensor,
        edge_weight: Tensor | None,
        scaling: Scaling,
        on_edges: bool,
    ) -> Tensor:
        """Sum (N, *) or (E, *) rows."""
        ctx.struct, ctx.on_edges = struct, on_edges
        ctx.weight_shape = gradients.shape_of(edge_weight)
        # Each operand is needed for the gradient of the other one only.
        needs_feat = edge_weight is not None and ctx.needs_input_grad[2]
        weight = edge_weight if ctx.needs_input_grad[1] else None
        gradients.save(ctx, scaling, feat if needs_feat else None, weight)
        return _forward(struct, feat, edge_weight, scaling, on_edges)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Gather over the reverse adjacency; dot products for the weights."""
        feat, edge_weight = gradients.saved(ctx)
        needed = ctx.needs_input_grad[1], ctx.needs_input_grad[2]
        grad_feat, grad_weight = gradients.of_sum(
            EAGER,
            ctx.struct,
            feat,
            edge_weight,
            ctx.weight_shape,
            ctx.scaling,
            ctx.on_edges,
            grad_out,
            needed,
        )
        return (
            None,  # struct
            grad_feat,  # feat
            grad_weight,  # edge_weight
            None,  # scaling
            None,  # on_edges
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
    **Fused path.** On CUDA one kernel reads each source row once per edge, with all factors applied
    on the way, sums in float32 (float64 for float64) and writes each row once; its gradients are
    the same kernel on the reverse adjacency and one kernel of dot products, so derivatives of any
    order are fused too. No atomics: bit-equal from run to run. On the CPU plain torch
    (``dgl_flash.cpu``) computes the same.
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
    if not is_tracing():
        use_kernel("spmm", feat.device, kernels=("spmm",))
    products, edges = products_of(struct)
    return products.sum(edges, feat, weight, scaling)
