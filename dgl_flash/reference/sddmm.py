"""Dot products of the two ends of every edge."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.edgewise import edgewise
from dgl_flash.reference.rows import accumulation_dtype, gather_rows, per_row

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def u_dot_v(struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor) -> Tensor:
    r"""Dot source with destination features, head by head.

    .. math::
        out_{e,h} = \sum_d x_{u,h,d} \, y_{v,h,d} \qquad e = (u \to v)

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of the features.
    feat_src, feat_dst : Tensor
        (N_src, H, D) and (N_dst, H, D), any floating dtype.

    Returns
    -------
    Tensor
        (E, H) in edge-id order, dtype of ``feat_src``.
    """
    dtype = accumulation_dtype(feat_src.dtype)
    return edgewise(_dot, struct, feat_src.to(dtype), feat_dst.to(dtype)).to(feat_src.dtype)


def dot_rows(
    struct: GraphStructure,
    feat: Tensor,
    feat_dst: Tensor,
    num_heads: int,
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    mean: bool = False,
    on_edges: bool = False,
) -> Tensor:
    """Multiply the row of a source, or of an edge, with the row of the destination, and sum.

    Parameters
    ----------
    struct, feat, feat_dst, num_heads, src_scale, dst_scale, mean, on_edges
        As in :func:`dgl_flash.cpu.dot_rows`.

    Returns
    -------
    Tensor
        (E, H) in edge-id order, dtype of ``feat``.
    """
    dtype = accumulation_dtype(feat.dtype)
    head_dim = math.prod(feat_dst.shape[1:]) // max(num_heads, 1)
    left, right = (
        side.to(dtype).reshape(side.shape[0], num_heads, head_dim) for side in (feat, feat_dst)
    )
    if src_scale is not None:
        left = left * per_row(src_scale.to(dtype), left)
    if dst_scale is not None:
        right = right * per_row(dst_scale.to(dtype), right)
    if mean:
        right = right / per_row(struct.in_degrees().clamp(min=1).to(dtype), right)
    if on_edges:
        _, dst = struct.edges()
        out = _dot(left, gather_rows(right, dst))
    else:
        out = edgewise(_dot, struct, left, right)
    return out.to(feat.dtype)


def _dot(feat_src: Tensor, feat_dst: Tensor) -> Tensor:
    return (feat_src * feat_dst).sum(dim=-1)
