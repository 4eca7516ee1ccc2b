"""Softmax of edge scores over the in-edges of each destination."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor
from torch.autograd import Function

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
    return _Softmax.apply(scores, dst, struct.num_dst).to(logits.dtype)


class _Softmax(Function):
    """Saves its result only; the gradient is a formula of it, which can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, dst: Tensor, num_rows: int) -> Tensor:
        # The maximum only keeps exp() in range; the result does not depend on it.
        row_max = max_to_rows(scores, dst, num_rows)
        weights = (scores - gather_rows(row_max, dst)).exp_()
        row_sum = sum_to_rows(weights, dst, num_rows)
        out = weights / gather_rows(row_sum, dst)
        ctx.save_for_backward(out, dst)
        ctx.num_rows = num_rows
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        out, dst = ctx.saved_tensors
        weighted = out * grad_out
        inner = gather_rows(sum_to_rows(weighted, dst, ctx.num_rows), dst)
        return weighted - out * inner, None, None
