"""Weighted sum or mean of the sources' features over the in-edges of each destination."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.reference.bags import sum_by_bags
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
        (E,) or (E, H) in edge-id order, or any shape that broadcasts against (E, ...) once trailing
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
    dtype = accumulation_dtype(feat.dtype)
    values = feat.to(dtype)
    weight = None if edge_weight is None else per_row(edge_weight.to(dtype), values)
    if src_scale is not None:
        values = values * per_row(src_scale.to(dtype), values)
    out = _sum(struct, values, weight)
    if reduce == "mean":
        out = out / per_row(struct.in_degrees().clamp(min=1).to(dtype), out)
    if dst_scale is not None:
        out = out * per_row(dst_scale.to(dtype), out)
    return out.to(feat.dtype)


def _sum(struct: GraphStructure, feat: Tensor, weight: Tensor | None) -> Tensor:
    heads = 1 if weight is None else math.prod(weight.shape[1:])
    per_head = weight is None or heads == 1 or heads == weight.shape[1] == feat.shape[1]
    if feat.dtype == torch.float32 and per_head and struct.num_edges > 0 and feat.numel() > 0:
        by_head = feat.reshape(feat.shape[0], heads, -1)
        weight = None if weight is None else weight.reshape(-1, heads)
        return sum_by_bags(struct, by_head, weight).reshape(-1, *feat.shape[1:])
    src, dst = struct.edges()
    messages = gather_rows(feat, src)
    if weight is not None:
        messages = messages * weight
    return sum_to_rows(messages, dst, struct.num_dst)
