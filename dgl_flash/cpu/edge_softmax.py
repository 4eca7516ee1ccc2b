"""Softmax over the in-edges of each destination."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import edge_chunks
from dgl_flash.cpu.extreme_rows import extreme_rows
from dgl_flash.cpu.spmm import sum_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def edge_softmax(struct: GraphStructure, scores: Tensor) -> Tensor:
    r"""Normalise edge scores per destination.

    .. math::
        out_e = \frac{\exp z_e}{\sum_{e' \in in(v)} \exp z_{e'}}, \quad e = (u \to v)

    Scores that are large, infinite or NaN have the maximum of their row subtracted first. Others
    do not need that.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    scores : Tensor
        :math:`z`, (E, H) in edge-id order, float32 or float64.

    Returns
    -------
    Tensor
        (E, H) in edge-id order.
    """
    if scores.numel() == 0:
        return scores.clone()
    _, dst = struct.edges()
    out = torch.empty_like(scores, memory_format=torch.contiguous_format)
    if _have_sums(scores):
        torch.exp(scores, out=out)
    else:
        adj = struct.in_adj
        row_max, _ = extreme_rows(adj.indptr, adj.eids, scores, "max", False)
        for at in _chunks(scores):
            torch.sub(scores[at], row_max.index_select(0, dst[at]), out=out[at]).exp_()
    row_sum = sum_rows(struct, out, None, on_edges=True)
    for at in _chunks(out):
        out[at] /= row_sum.index_select(0, dst[at])
    return out


def edge_softmax_backward(struct: GraphStructure, out: Tensor, grad_out: Tensor) -> Tensor:
    """Gradient (E, H) of the scores, from the softmax and the gradient of that."""
    _, dst = struct.edges()
    grad_score = out * grad_out
    inner = sum_rows(struct, grad_score, None, on_edges=True)
    for at in _chunks(out):
        grad_score[at].addcmul_(out[at], inner.index_select(0, dst[at]), value=-1)
    return grad_score


def _chunks(scores: Tensor) -> Iterator[slice]:
    num_edges, num_heads = scores.shape
    return edge_chunks(num_edges, num_heads, scores.element_size())


def _have_sums(scores: Tensor) -> bool:
    """Whether no exponential is close to the limits of the dtype, even if 2^31 are added up."""
    limit = 2 / 3 * math.log(torch.finfo(scores.dtype).max)
    lowest, highest = (bound.item() for bound in torch.aminmax(scores))
    return lowest >= -limit and highest <= limit  # both false for NaN
