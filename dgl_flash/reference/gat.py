"""Attention of GAT: scores are sums of numbers of the two ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from dgl_flash.reference.attention import Attended, attend, per_head
from dgl_flash.reference.rows import accumulation_dtype, gather_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def gat(
    struct: GraphStructure,
    feat_src: Tensor,
    el: Tensor,
    er: Tensor,
    negative_slope: float = 0.2,
    *,
    edge_bias: Tensor | None = None,
    edge_weight: Tensor | None = None,
    keep: Tensor | None = None,
    return_attention: bool = False,
) -> Attended:
    r"""Attend from every destination to its sources.

    .. math::
        s_{e,h} = \mathrm{LeakyReLU}(l_{u,h} + r_{v,h} + b_{e,h})

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of the features.
    feat_src : Tensor
        (N_src, H, D), any floating dtype.
    el, er : Tensor
        :math:`l` (N_src, H) and :math:`r` (N_dst, H).
    negative_slope : float
        Slope of the leaky ReLU below 0.
    edge_bias : Tensor, optional
        :math:`b`, (E,), (E, 1) or (E, H).
    edge_weight, keep, return_attention
        As in :func:`dgl_flash.reference.attention.attend`.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        (N_dst, H, D) and, if asked for, (E, H, 1) in edge-id order, after dropout.
    """
    dtype = accumulation_dtype(feat_src.dtype)
    src, dst = struct.edges()
    scores = gather_rows(el.to(dtype), src) + gather_rows(er.to(dtype), dst)
    if edge_bias is not None:
        scores = scores + per_head(edge_bias, scores)
    return attend(
        struct,
        F.leaky_relu(scores, negative_slope),
        feat_src,
        edge_weight=edge_weight,
        keep=keep,
        return_attention=return_attention,
    )
