"""Dot-product attention over in-edges: scores, softmax and weighted sum in one pass."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from dgl_flash import reference
from dgl_flash.ops import check
from dgl_flash.ops.attention import Attended, Attention, attend
from dgl_flash.ops.attention_kernels import Kernels, Operands, merge_centered
from dgl_flash.ops.choose_attention import dot_attention_layout
from dgl_flash.ops.edge_terms import edge_terms
from dgl_flash.ops.gsddmm import gsddmm
from dgl_flash.structure import GraphStructure, structure

BIAS_OPS = ("add", "mul")


def _merge_dst(rows: Any, operands: Operands, number: float, **arguments: Any) -> None:
    merge_centered(rows, operands, number, head_dim=rows.head_dim, **arguments)


def _flags(operands: Operands) -> dict[str, int]:
    """Whether keys are values, so that one row an edge is enough."""
    _, k, v = operands
    return {"SAME_ROWS": int(k.data_ptr() == v.data_ptr())}


def _scores(
    struct: GraphStructure, operands: Operands, scale: float, bias: Tensor | None, multiply: bool
) -> Tensor:
    q, k, _ = operands
    scores = gsddmm(struct, "dot", k, q * scale).squeeze(-1)
    if bias is None:
        return scores
    return scores * bias if multiply else scores + bias


KERNELS = Kernels(
    name="dot_attention",
    choose_layout=dot_attention_layout,
    values=2,
    dst=0,
    src=(1, 2),
    flags=_flags,
    merge_dst=_merge_dst,
)
KIND = Attention(KERNELS, _scores, reference.dot_attention)


def _check(struct: GraphStructure, q: Tensor, k: Tensor, v: Tensor, bias_op: str) -> None:
    check.tensor("dot_attention", "q", q)
    check.shape("dot_attention", "q", q, (struct.num_dst, None, None), "(N_dst, H, D)")
    num_heads, head_dim = q.shape[1:]
    for name, value, width, spelled in (
        ("k", k, head_dim, "(N_src, H, D)"),
        ("v", v, None, "(N_src, H, D_v)"),
    ):
        check.tensor("dot_attention", name, value)
        check.same_as("dot_attention", name, value, "q", q)
        check.shape("dot_attention", name, value, (struct.num_src, num_heads, width), spelled)
    if bias_op not in BIAS_OPS:
        raise ValueError(
            f"dot_attention: expected `bias_op` to be one of {BIAS_OPS}, got {bias_op!r}"
        )


def _widen(head_dim: int, *operands: Tensor) -> tuple[Tensor, ...]:
    """Fill heads with zeros up to a width: no dot product changes."""
    return tuple(
        t if t.shape[-1] == head_dim else F.pad(t, (0, head_dim - t.shape[-1])) for t in operands
    )


def dot_attention(
    graph: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float | None = None,
    *,
    edge_bias: Tensor | None = None,
    bias_op: str = "add",
    edge_weight: Tensor | None = None,
    attn_drop: float = 0.0,
    return_attention: bool = False,
) -> Attended:
    r"""Attend over in-edges with scaled dot products, as a graph transformer does.

    .. math::
        s_{eh} &= c \, \langle q_{vh}, k_{uh} \rangle + b_{eh} \quad \text{or} \quad
        c \, \langle q_{vh}, k_{uh} \rangle \, b_{eh}, \qquad e = (u \to v) \\
        \alpha_{eh} &= \mathrm{softmax}_e(s_{eh}) \, m_{eh} \, w_{eh}, \qquad
        z_{vh} = \sum_{e \in \mathrm{in}(v)} \alpha_{eh} \, v_{uh}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    q, k, v : torch.Tensor
        Queries (N_dst, H, D), keys (N_src, H, D) and values (N_src, H, D_v), one of float64,
        float32, float16 and bfloat16. Where keys and values are one tensor, an edge reads one row.
    scale : float, optional
        :math:`c`, by default :math:`1 / \sqrt{D}`.
    edge_bias : torch.Tensor, optional
        :math:`b` in edge-id order, shape (E,), (E, 1) or (E, H). It may require a gradient.
    bias_op : {"add", "mul"}
        Whether it is added to the scores or multiplies them.
    edge_weight : torch.Tensor, optional
        :math:`w`, the same shapes, a factor after the softmax. It may require a gradient.
    attn_drop : float
        Probability of dropping an attention value (:math:`m` is 0 or 1 / (1 - p)); pass 0 outside
        training.
    return_attention : bool
        Also return :math:`\alpha`.

    Returns
    -------
    torch.Tensor
        :math:`z`, shape (N_dst, H, D_v); zero for destinations without in-edges.
    torch.Tensor
        :math:`\alpha`, (E, H, 1) in edge-id order, differentiable, only with ``return_attention``.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, an operand no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit, ``bias_op`` is unknown or ``attn_drop`` no probability.

    Notes
    -----
    **Fused path.** On CUDA one kernel reads a key and a value row an edge, keeps an online softmax
    and saves one log-sum-exp a row and head; the backward recomputes the attention in two passes,
    by destination and by source, without atomics, bit-equal from run to run. All options are fused,
    dropout as in :func:`gat`. Any H and D, D_v <= 512 in all four dtypes, in 16 bits with the dot
    products of heads wider than 16 on tensor cores; the narrower of two different widths is filled
    up with zeros in a copy. Wider heads, and the CPU, go through the ops
    for dot products, softmax and sum, with (E, H) numbers in between. Second-order gradients take
    plain torch, with memory that grows with E x H x D.

    References
    ----------
    V. P. Dwivedi, X. Bresson: A Generalization of Transformer Networks to Graphs. AAAI 2021
    Workshop on Deep Learning on Graphs.
    """
    struct = structure(graph, check.device(q), op="dot_attention")
    q, k, v, edge_bias, edge_weight = check.autocast(q, k, v, edge_bias, edge_weight)
    _check(struct, q, k, v, bias_op)
    terms = edge_terms(
        "dot_attention",
        struct,
        q,
        edge_bias=edge_bias,
        edge_weight=edge_weight,
        attn_drop=attn_drop,
        multiply=bias_op == "mul",
    )
    scale = max(q.shape[-1], 1) ** -0.5 if scale is None else float(scale)
    width = v.shape[-1]
    operands = _widen(max(q.shape[-1], width), q, k, v)
    found = attend(KIND, struct, operands, scale, terms, return_attention)
    out, *attention = found if isinstance(found, tuple) else (found,)
    out = out if out.shape[-1] == width else out[..., :width]
    return (out, attention[0]) if attention else out
