"""GATv2 attention: scores, softmax and weighted sum in one pass over the edges."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from dgl_flash import cpu, reference
from dgl_flash.kernels.launch import Argument
from dgl_flash.ops import check
from dgl_flash.ops.attention import Attended, Attention, attend
from dgl_flash.ops.attention_kernels import Kernels, Operands
from dgl_flash.ops.choose_attention import gatv2_layout
from dgl_flash.ops.edge_terms import edge_terms
from dgl_flash.ops.rows import RowLaunch
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.traced import is_tracing


def _merge_dst(
    rows: RowLaunch,
    operands: Operands,
    slope: float,
    *,
    pieces: tuple[int, int],
    outputs: tuple[Argument, ...],
) -> None:
    _, feat_dst, attn = operands
    inputs = feat_dst, attn, slope, *pieces
    rows.merge("merge_gatv2_dst", attn.dtype, inputs=inputs, outputs=outputs)


def _scores(
    struct: GraphStructure, operands: Operands, slope: float, bias: Tensor | None, multiply: bool
) -> Tensor:
    on_cpu = operands[0].device.type == "cpu" and not is_tracing()
    score = cpu.gatv2_scores if on_cpu else reference.gatv2_scores
    feat_src, feat_dst, attn = operands
    scores = score(struct, feat_src, feat_dst, attn, slope)
    return scores if bias is None else scores + bias


def _flags(operands: Operands) -> dict[str, int]:
    return {"BY_BLOCK": int(operands[2].dim() == 3)}


KERNELS = Kernels(
    name="gatv2",
    choose_layout=gatv2_layout,
    values=0,
    dst=1,
    src=(0,),
    scores_read_values=True,
    vector=2,
    flags=_flags,
    merge_dst=_merge_dst,
)
KIND = Attention(KERNELS, _scores, reference.gatv2)


def _check(struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, attn: Tensor) -> None:
    check.tensor("gatv2", "feat_src", feat_src)
    check.tensor("gatv2", "feat_dst", feat_dst)
    check.tensor("gatv2", "attn", attn)
    check.same_as("gatv2", "feat_dst", feat_dst, "feat_src", feat_src)
    check.same_as("gatv2", "attn", attn, "feat_src", feat_src)
    check.shape("gatv2", "feat_src", feat_src, (struct.num_src, None, None), "(N_src, H, D)")
    heads_and_width = tuple(feat_src.shape[1:])
    check.shape("gatv2", "attn", attn, heads_and_width, "(H, D)")
    check.shape("gatv2", "feat_dst", feat_dst, (struct.num_dst, *heads_and_width), "(N_dst, H, D)")


def gatv2(
    graph: Any,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    *,
    edge_bias: Tensor | None = None,
    edge_weight: Tensor | None = None,
    attn_drop: float = 0.0,
    return_attention: bool = False,
) -> Attended:
    r"""Attend over in-edges with GATv2 scores.

    .. math::
        s_{eh} &= \sum_d a_{hd} \, \mathrm{LeakyReLU}(x_{uhd} + y_{vhd}) + b_{eh},
        \quad e = (u \to v) \\
        \alpha_{eh} &= \mathrm{softmax}_e(s_{eh}) \, k_{eh} \, w_{eh}, \qquad
        z_{vh} = \sum_{e \in \mathrm{in}(v)} \alpha_{eh} \, x_{uh}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    feat_src : torch.Tensor
        :math:`x`, shape (N_src, H, D), float64, float32, float16 or bfloat16.
    feat_dst : torch.Tensor
        :math:`y`, shape (N_dst, H, D), dtype and device of ``feat_src``.
    attn : torch.Tensor
        :math:`a`, shape (H, D).
    negative_slope : float
        Slope of the leaky ReLU for negative input.
    edge_bias : torch.Tensor, optional
        :math:`b` in edge-id order, shape (E,), (E, 1) or (E, H). It may require a gradient.
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
        When ``graph`` is no graph, a feature no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit, or ``attn_drop`` is no probability.

    Notes
    -----
    **Fused path.** On CUDA one kernel reads each source row once per edge, keeps an online softmax
    and saves one log-sum-exp a row and head; the backward recomputes the attention in two passes,
    by destination and by source, without atomics, bit-equal from run to run. All options are fused,
    dropout as in :func:`gat`. It takes any H and 1 <= D <= 512 in all four dtypes (arithmetic in
    float32, or float64; in 16 bits, where D > 16, tensor cores add up products that are exact).
    Wider heads, and the CPU, compute the scores by chunks of edges and go on with
    ``edge_softmax`` and ``spmm``, with (E, H) numbers in between. Second-order gradients take plain
    torch, with memory that grows with E x H x D.

    References
    ----------
    S. Brody, U. Alon, E. Yahav: How Attentive are Graph Attention Networks? ICLR 2022.
    """
    struct = structure(graph, check.device(feat_src), op="gatv2")
    feat_src, feat_dst, attn, edge_bias, edge_weight = check.autocast(
        feat_src, feat_dst, attn, edge_bias, edge_weight
    )
    _check(struct, feat_src, feat_dst, attn)
    terms = edge_terms(
        "gatv2",
        struct,
        feat_src,
        edge_bias=edge_bias,
        edge_weight=edge_weight,
        attn_drop=attn_drop,
    )
    operands = feat_src, feat_dst, attn
    return attend(KIND, struct, operands, float(negative_slope), terms, return_attention)
