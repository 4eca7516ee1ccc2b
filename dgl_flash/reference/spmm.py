"""Weighted sum or mean of the sources' features over the in-edges of each destination."""

from __future__ import annotations

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
    src, dst = struct.edges()
    values = feat.to(dtype)
    if src_scale is not None:
        values = values * per_row(src_scale.to(dtype), values)
    messages = gather_rows(values, src)
    if edge_weight is not None:
        messages = messages * per_row(edge_weight.to(dtype), messages)
    out = sum_to_rows(messages, dst, struct.num_dst)
    if reduce == "mean":
        out = out / per_row(struct.in_degrees().clamp(min=1).to(dtype), out)
    if dst_scale is not None:
        out = out * per_row(dst_scale.to(dtype), out)
    return out.to(feat.dtype)
