"""Attention of GATv2: score, softmax and weighted sum."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from dgl_flash.reference.attention import Attended, attend, per_head
from dgl_flash.reference.edgewise import edgewise
from dgl_flash.reference.rows import accumulation_dtype

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def gatv2(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    *,
    edge_bias: Tensor | None = None,
    edge_weight: Tensor | None = None,
    keep: Tensor | None = None,
    return_attention: bool = False,
) -> Attended:
    r"""Attend from every destination to its sources.

    .. math::
        s_{e,h} = \sum_d a_{h,d} \, \mathrm{LeakyReLU}(x_{u,h,d} + y_{v,h,d}) + b_{e,h}

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of the features.
    feat_src, feat_dst : Tensor
        (N_src, H, D) and (N_dst, H, D), any floating dtype.
    attn : Tensor
        (H, D).
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
    operands = feat_src.to(dtype), feat_dst.to(dtype), attn.to(dtype)
    scores = gatv2_scores(struct, *operands, negative_slope)
    if edge_bias is not None:
        scores = scores + per_head(edge_bias, scores)
    return attend(
        struct,
        scores,
        feat_src,
        edge_weight=edge_weight,
        keep=keep,
        return_attention=return_attention,
    )


def gatv2_scores(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float,
) -> Tensor:
    """Scores (E, H) in edge-id order; arguments as in :func:`gatv2`."""
    score = partial(_score, negative_slope=negative_slope)
    return edgewise(score, struct, feat_src, feat_dst, attn)


def _score(feat_src: Tensor, feat_dst: Tensor, attn: Tensor, negative_slope: float) -> Tensor:
    return (F.leaky_relu(feat_src + feat_dst, negative_slope) * attn).sum(dim=-1)
