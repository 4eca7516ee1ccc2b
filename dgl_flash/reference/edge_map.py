"""Rows of edges from the rows of their ends, one gather after the other."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.rows import accumulation_dtype, gather_rows, per_row

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def edge_map(
    struct: GraphStructure,
    op: str,
    feat_dst: Tensor,
    other: Tensor | None,
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    mean: bool = False,
    on_edges: bool = False,
) -> Tensor:
    """Combine the row of the destination with one of the source or edge.

    Parameters
    ----------
    struct, op, feat_dst, other, src_scale, dst_scale, mean, on_edges
        As in :func:`dgl_flash.cpu.edge_map`.

    Returns
    -------
    Tensor
        (E, ...) in edge-id order, dtype of ``feat_dst``.
    """
    dtype = accumulation_dtype(feat_dst.dtype)
    src, dst = struct.edges()
    out = gather_rows(feat_dst.to(dtype), dst)
    if other is not None:
        second = other.to(dtype) if on_edges else gather_rows(other.to(dtype), src)
        parts = math.prod(other.shape[1:])
        second = second.reshape(struct.num_edges, parts, 1)
        by_part = out.reshape(struct.num_edges, parts, math.prod(out.shape[1:]) // max(parts, 1))
        out = (by_part + second if op == "add" else by_part * second).reshape(out.shape)
    if src_scale is not None:
        out = out * per_row(gather_rows(src_scale.to(dtype), src), out)
    if dst_scale is not None:
        out = out * per_row(gather_rows(dst_scale.to(dtype), dst), out)
    if mean:
        degrees = struct.in_degrees().clamp(min=1).to(dtype)
        out = out / per_row(gather_rows(degrees, dst), out)
    return out.to(feat_dst.dtype)
