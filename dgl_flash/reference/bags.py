"""The weighted sum over in-edges as embedding bags, for which torch has a fast float32 kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from dgl_flash.reference.sddmm import u_dot_v

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def sum_by_bags(struct: GraphStructure, feat: Tensor, weight: Tensor | None) -> Tensor:
    r"""Sum over the in-edges with memory for nodes only.

    .. math::
        out_{v,h} = \sum_{e = (u \to v)} w_{e,h} \, x_{u,h}

    Gradients are sums of the same kind over the reversed graph and dot products over the edges,
    so that they can be differentiated again.

    Parameters
    ----------
    struct : GraphStructure
        The graph; it has edges.
    feat : Tensor
        (N_src, H, D), float32, not empty.
    weight : Tensor or None
        (E, H) in edge-id order, float32; without weights H is 1.

    Returns
    -------
    Tensor
        (N_dst, H, D)
    """
    return _BagSum.apply(struct, feat, weight)


class _BagSum(Function):
    @staticmethod
    def forward(ctx: Any, struct: GraphStructure, feat: Tensor, weight: Tensor | None) -> Tensor:
        ctx.struct = struct
        needs_feat = weight is not None and ctx.needs_input_grad[2]
        ctx.save_for_backward(feat if needs_feat else None, weight)
        adjacency = struct.in_adj
        if weight is not None and adjacency.eids is not None:
            weight = weight.index_select(0, adjacency.eids)
        sums = [
            F.embedding_bag(
                adjacency.indices,
                feat[:, head],
                adjacency.indptr,
                mode="sum",
                include_last_offset=True,
                per_sample_weights=None if weight is None else weight[:, head].contiguous(),
            )
            for head in range(feat.shape[1])
        ]
        return torch.stack(sums, dim=1) if len(sums) > 1 else sums[0].unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        feat, weight = ctx.saved_tensors
        grad_feat = grad_weight = None
        if ctx.needs_input_grad[1]:
            grad_feat = sum_by_bags(ctx.struct.reverse(), grad_out, weight)
        if ctx.needs_input_grad[2]:
            grad_weight = u_dot_v(ctx.struct, feat, grad_out)
        return None, grad_feat, grad_weight
