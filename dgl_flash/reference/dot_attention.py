"""Attention by dot products of queries and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.attention import Attended, attend, per_head
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.reference.sddmm import u_dot_v

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def dot_attention(
    struct: GraphStructure,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    *,
    edge_bias: Tensor | None = None,
    bias_op: str = "add",
    edge_weight: Tensor | None = None,
    keep: Tensor | None = None,
    return_attention: bool = False,
) -> Attended:
    r"""Attend from every destination to its sources.

    .. math::
        s_{e,h} = c \, \langle q_{v,h}, k_{u,h} \rangle + b_{e,h} \quad \text{or} \quad
        s_{e,h} = c \, \langle q_{v,h}, k_{u,h} \rangle \, b_{e,h}

    Parameters
    ----------
    struct : GraphStructure
        The graph, on the device of the features.
    q, k, v : Tensor
        (N_dst, H, D), (N_src, H, D) and (N_src, H, D_v), any floating dtype.
    scale : float, optional
        :math:`c`, by default 1 / sqrt(D).
    edge_bias : Tensor, optional
        :math:`b`, (E,), (E, 1) or (E, H).
    bias_op : {"add", "mul"}
        Whether it is added or multiplied.
    edge_weight, keep, return_attention
        As in :func:`dgl_flash.reference.attention.attend`.

    Returns
    -------
    Tensor or (Tensor, Tensor)
        (N_dst, H, D_v) and, if asked for, (E, H, 1) in edge-id order, after dropout.
    """
    dtype = accumulation_dtype(q.dtype)
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else scale
    scores = u_dot_v(struct, k.to(dtype), q.to(dtype)) * scale
    if edge_bias is not None:
        bias = per_head(edge_bias, scores)
        scores = scores * bias if bias_op == "mul" else scores + bias
    return attend(
        struct,
        scores,
        v,
        edge_weight=edge_weight,
        keep=keep,
        return_attention=return_attention,
    )
