"""Rows of edges, made from the rows of their ends."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import edge_chunks, gather_rows
from dgl_flash.reference.rows import accumulation_dtype, per_row

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def scaled(struct: GraphStructure, rows: Tensor, dst_scale: Tensor | None, mean: bool) -> Tensor:
    """Apply the factors of the destinations."""
    if mean:
        rows = rows / per_row(struct.in_degrees().clamp(min=1).to(rows.dtype), rows)
    if dst_scale is not None:
        rows = rows * per_row(dst_scale.to(rows.dtype), rows)
    return rows


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
    r"""Combine the row of the destination with a row of the source or of the edge.

    .. math::
        out_e = y_v \quad (copy), \qquad out_e = y_v + z \quad (add), \qquad
        out_e = a_u \, b_v \, y_v \, z \quad (mul)

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    op : {"copy", "add", "mul"}
        How.
    feat_dst : Tensor
        :math:`y`, (N_dst, \*).
    other : Tensor or None
        :math:`z`: (N_src, \*); or with ``on_edges`` (E,), (E, H) for the H parts of a row, or
        (E, F) for each of its numbers.
    src_scale, dst_scale, mean, on_edges
        As in :func:`dgl_flash.cpu.sum_rows`.

    Returns
    -------
    Tensor
        (E, \*) in edge-id order, dtype of ``feat_dst``.
    """
    shape = (struct.num_edges, *feat_dst.shape[1:])
    width = math.prod(feat_dst.shape[1:])
    out = feat_dst.new_empty(shape)  # no view of anything: layers write over it
    if out.numel() == 0:
        return out
    dtype = accumulation_dtype(feat_dst.dtype)
    # The gradient of a plain sum is one number, expanded: torch is slow at picking rows of that.
    kept = scaled(struct, feat_dst.reshape(-1, width).to(dtype), dst_scale, mean).contiguous()
    if other is not None:
        other = other.reshape(other.shape[0], -1).to(dtype)
        if src_scale is not None:
            other = other * src_scale.to(dtype).unsqueeze(1)
        if not on_edges:
            other = other.contiguous()
    src, dst = struct.edges()
    by_edge = out.view(-1, width)
    in_place = kept.dtype == out.dtype
    for at in edge_chunks(struct.num_edges, width, kept.element_size()):
        rows = torch.index_select(kept, 0, dst[at], out=by_edge[at] if in_place else None)
        if other is not None:
            second = other[at] if on_edges else gather_rows(other, src[at])
            by_part = rows.view(rows.shape[0], second.shape[1], -1)
            combine = by_part.add_ if op == "add" else by_part.mul_
            combine(second.unsqueeze(-1))
        if not in_place:
            by_edge[at] = rows
    return out
