"""Attention of GATv2: score, softmax and weighted sum."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from dgl_flash.reference.edge_softmax import edge_softmax
from dgl_flash.reference.edgewise import edgewise
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.reference.spmm import spmm

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def gatv2(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    *,
    attn_drop: float = 0.0,
    return_attention: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attend from every destination to its sources.

    .. math::
        s_{e,h} = \sum_d a_{h,d} \, \mathrm{LeakyReLU}(x_{u,h,d} + y_{v,h,d}), \qquad
        \alpha = \mathrm{dropout}(\mathrm{softmax}_{in(v)}(s)), \qquad
        out_{v,h} = \sum_{e = (u \to v)} \alpha_{e,h} \, x_{u,h}

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
    attn_drop : float
        Probability with which an attention weight is dropped; the others grow by 1 / (1 - p).
    return_attention : bool
        Also return the attention weights.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        (N_dst, H, D) and, if asked for, (E, H, 1) in edge-id order, after dropout.
    """
    dtype = accumulation_dtype(feat_src.dtype)
    values = feat_src.to(dtype)
    scores = gatv2_scores(struct, values, feat_dst.to(dtype), attn.to(dtype), negative_slope)
    attention = F.dropout(edge_softmax(struct, scores), attn_drop)
    out = spmm(struct, values, attention).to(feat_src.dtype)
    if return_attention:
        return out, attention.to(feat_src.dtype).unsqueeze(-1)
    return out


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
