"""Softmax of edge scores over the in-edges of each destination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.rows import accumulation_dtype, gather_rows, max_to_rows, sum_to_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def edge_softmax(struct: GraphStructure, logits: Tensor) -> Tensor:
    r"""Normalise edge scores per destination.

    .. math::
        out_e = \frac{\exp(z_e - m_v)}{\sum_{e' \in in(v)} \exp(z_{e'} - m_v)},
        \qquad m_v = \max_{e' \in in(v)} z_{e'}, \quad e = (u \to v)

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of ``logits``.
    logits : Tensor
        (E, ...) in edge-id order, any floating dtype.

    Returns
    -------
    Tensor
        (E, ...) in edge-id order, dtype of ``logits``.
    """
    scores = logits.to(accumulation_dtype(logits.dtype))
    _, dst = struct.edges()
    # The maximum only keeps exp() in range; the result does not depend on it, nor its gradient.
    row_max = max_to_rows(scores.detach(), dst, struct.num_dst)
    weights = (scores - gather_rows(row_max, dst)).exp()
    row_sum = sum_to_rows(weights, dst, struct.num_dst)
    return (weights / gather_rows(row_sum, dst)).to(logits.dtype)
