"""Dot products of the two ends of every edge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.edgewise import edgewise
from dgl_flash.reference.rows import accumulation_dtype

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


def _dot(feat_src: Tensor, feat_dst: Tensor) -> Tensor:
    return (feat_src * feat_dst).sum(dim=-1)
