"""GAT attention: scores from numbers of the two ends, softmax and weighted sum in one pass."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from dgl_flash import reference
from dgl_flash.ops import check
from dgl_flash.ops.attention import Attended, Attention, attend
from dgl_flash.ops.attention_kernels import Kernels, Operands, merge_centered
from dgl_flash.ops.choose_attention import gat_layout
from dgl_flash.ops.edge_terms import edge_terms
from dgl_flash.ops.gsddmm import gsddmm
from dgl_flash.structure import GraphStructure, structure


def _merge_dst(rows: Any, operands: Operands, number: float, **arguments: Any) -> None:
    merge_centered(rows, operands, 1.0, head_dim=1, **arguments)


def _scores(
    struct: GraphStructure, operands: Operands, slope: float, bias: Tensor | None, multiply: bool
) -> Tensor:
    sums = gsddmm(struct, "add", operands[1], operands[2])
    return F.leaky_relu(sums if bias is None else sums + bias, slope)


KERNELS = Kernels(
    name="gat", choose_layout=gat_layout, values=0, dst=2, src=(0, 1), merge_dst=_merge_dst
)
KIND = Attention(KERNELS, _scores, reference.gat)


def _check(struct: GraphStructure, feat_src: Tensor, el: Tensor, er: Tensor) -> None:
    check.tensor("gat", "feat_src", feat_src)
    check.shape("gat", "feat_src", feat_src, (struct.num_src, None, None), "(N_src, H, D)")
    num_heads = feat_src.shape[1]
    for name, value, size, spelled in (
        ("el", el, struct.num_src, "(N_src, H)"),
        ("er", er, struct.num_dst, "(N_dst, H)"),
    ):
        check.tensor("gat", name, value)
        check.same_as("gat", name, value, "feat_src", feat_src)
        check.shape("gat", name, value, (size, num_heads), spelled)


def gat(
    graph: Any,
    feat_src: Tensor,
    el: Tensor,
    er: Tensor,
    negative_slope: float = 0.2,
    *,
    edge_bias: Tensor | None = None,
    edge_weight: Tensor | None = None,
    attn_drop: float = 0.0,
    return_attention: bool = False,
) -> Attended:
    r"""Attend over in-edges with GAT scores.

    .. math::
        s_{eh} &= \mathrm{LeakyReLU}(l_{uh} + r_{vh} + b_{eh}), \quad e = (u \to v) \\
        \alpha_{eh} &= \mathrm{softmax}_e(s_{eh}) \, k_{eh} \, w_{eh}, \qquad
        z_{vh} = \sum_{e \in \mathrm{in}(v)} \alpha_{eh} \, x_{uh}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    feat_src : torch.Tensor
        :math:`x`, shape (N_src, H, D), float64, float32, float16 or bfloat16.
    el, er : torch.Tensor
        :math:`l` (N_src, H) and :math:`r` (N_dst, H), dtype and device of ``feat_src``.
    negative_slope : float
        Slope of the leaky ReLU for negative input.
    edge_bias : torch.Tensor, optional
        :math:`b` in edge-id order, shape (E,), (E, 1) or (E, H), added inside the leaky ReLU, as
        the scores of edge features are. It may require a gradient.
    edge_weight : torch.Tensor, optional
        :math:`w`, the same shapes, a factor after the softmax. It may require a gradient.
    attn_drop : float
        Probability of dropping an attention value (:math:`k` is 0 or 1 / (1 - p)); pass 0 outside
        training.
    return_attention : bool
        Also return :math:`\alpha`.

    Returns
    -------
    torch.Tensor
        :math:`z`, shape (N_dst, H, D); zero for destinations without in-edges.
    torch.Tensor
        :math:`\alpha`, (E, H, 1) in edge-id order, differentiable, only with ``return_attention``.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, an operand no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit, or ``attn_drop`` is no probability.

    Notes
    -----
    **Fused path.** On CUDA one kernel reads one source row and one number a head for each edge,
    keeps an online softmax and saves one log-sum-exp a row and head; the backward takes two passes
    without atomics, bit-equal from run to run. All options are fused: dropout is drawn inside the
    kernels from a seed of torch's generator, edge id and head, and the attention is written by one
    more kernel when it is asked for. Any H and 1 <= D <= 512 in all four dtypes; wider heads, and
    the CPU, go through the ops for scores, softmax and sum, with (E, H) numbers in between.
    Second-order gradients take plain torch.

    References
    ----------
    P. Veličković et al.: Graph Attention Networks. ICLR 2018.
    """
    struct = structure(graph, check.device(feat_src), op="gat")
    feat_src, el, er, edge_bias, edge_weight = check.autocast(
        feat_src, el, er, edge_bias, edge_weight
    )
    _check(struct, feat_src, el, er)
    terms = edge_terms(
        "gat",
        struct,
        feat_src,
        edge_bias=edge_bias,
        edge_weight=edge_weight,
        attn_drop=attn_drop,
    )
    operands = feat_src, el, er
    return attend(KIND, struct, operands, float(negative_slope), terms, return_attention)
