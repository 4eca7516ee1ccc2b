"""The end that all kinds of attention share: from scores to the weighted sum."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.edge_softmax import edge_softmax
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.reference.spmm import spmm

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

Attended = Tensor | tuple[Tensor, Tensor]


def per_head(edge: Tensor, like: Tensor) -> Tensor:
    """View numbers of edges, (E,), (E, 1), (E, H) or these with further ones, as (E, 1 or H)."""
    return edge.reshape(edge.shape[0], math.prod(edge.shape[1:])).to(like.dtype)


def attend(
    struct: GraphStructure,
    scores: Tensor,
    values: Tensor,
    *,
    edge_weight: Tensor | None = None,
    keep: Tensor | None = None,
    return_attention: bool = False,
) -> Attended:
    r"""Sum the sources' rows, weighted by the softmax of scores.

    .. math::
        \alpha = \mathrm{softmax}_{in(v)}(s) \cdot k \cdot w, \qquad
        out_{v,h} = \sum_{e = (u \to v)} \alpha_{e,h} \, x_{u,h}

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of the features.
    scores : Tensor
        :math:`s`, (E, H) in edge-id order, in the dtype of the arithmetic.
    values : Tensor
        :math:`x`, (N_src, H, D).
    edge_weight : Tensor, optional
        :math:`w`, (E,), (E, 1) or (E, H).
    keep : Tensor, optional
        :math:`k`, (E, H): 0 where dropout drops, else 1 / (1 - p).
    return_attention : bool
        Also return :math:`\alpha`.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        (N_dst, H, D) and, if asked for, (E, H, 1), in the dtype of ``values``.
    """
    attention = edge_softmax(struct, scores)
    for factor in (keep, edge_weight):
        if factor is not None:
            attention = attention * per_head(factor, attention)
    wide = accumulation_dtype(values.dtype)
    out = spmm(struct, values.to(wide), attention).to(values.dtype)
    return (out, attention.to(values.dtype).unsqueeze(-1)) if return_attention else out
