"""Weighted sum or mean of the sources' features over the in-edges of each destination."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.rows import accumulation_dtype, gather_rows, per_row, sum_to_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def spmm(
    struct: GraphStructure,
    feat: Tensor,
    edge_weight: Tensor | None = None,
    *,
    reduce: str = "sum",
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
) -> Tensor:
    r"""Aggregate features along the edges.

    .. math::
        out_v = b_v \, R_{e = (u \to v)} \; a_u \, w_e \, x_u

    with :math:`R` the sum or the mean, :math:`a` the source and :math:`b` the destination scale.
    A row without edges is zero.

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of ``feat``.
    feat : Tensor
        (N_src, ...), any floating dtype.
    edge_weight : Tensor, optional
        (E,) in edge-id order, or any shape that broadcasts against (E, ...) once trailing
        dimensions of 1 are added.
    reduce : {"sum", "mean"}
        ``mean`` divides by the number of in-edges, whatever their weights.
    src_scale, dst_scale : Tensor, optional
        (N_src,) and (N_dst,).

    Returns
    -------
    Tensor
        (N_dst, ...), dtype of ``feat``.
    """
    weight = None
    if edge_weight is not None:
        weight = per_row(edge_weight, feat).expand(-1, *feat.shape[1:])
    return sum_rows(
        struct,
        feat,
        weight,
        src_scale=src_scale,
        dst_scale=dst_scale,
        mean=reduce == "mean",
    )


def sum_rows(
    struct: GraphStructure,
    feat: Tensor,
    weight: Tensor | None,
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    mean: bool = False,
    on_edges: bool = False,
) -> Tensor:
    """Sum the rows of the sources, or of the edges, over the in-edges of each destination.

    Parameters
    ----------
    struct, feat, weight, src_scale, dst_scale, mean, on_edges
        As in :func:`dgl_flash.cpu.sum_rows`.

    Returns
    -------
    Tensor
        (N_dst, ...), dtype of ``feat``.
    """
    dtype = accumulation_dtype(feat.dtype)
    values = feat.to(dtype)
    if src_scale is not None:
        values = values * per_row(src_scale.to(dtype), values)
    src, dst = struct.edges()
    terms = values if on_edges else gather_rows(values, src)
    if weight is not None:
        parts = math.prod(weight.shape[1:])
        width = math.prod(terms.shape[1:])
        by_part = terms.reshape(struct.num_edges, parts, width // max(parts, 1))
        factors = weight.to(dtype).reshape(struct.num_edges, parts, 1)
        terms = (by_part * factors).reshape(terms.shape)
    out = sum_to_rows(terms, dst, struct.num_dst)
    if mean:
        out = out / per_row(struct.in_degrees().clamp(min=1).to(dtype), out)
    if dst_scale is not None:
        out = out * per_row(dst_scale.to(dtype), out)
    return out.to(feat.dtype)
