"""GATv2 attention: scores, softmax and weighted sum in one pass over the edges."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import Scratch, empty
from dgl_flash.ops import check
from dgl_flash.ops.choose import gatv2_layout
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_softmax import edge_softmax
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.ops.spmm import spmm
from dgl_flash.structure import structure
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dgl_flash.structure import GraphStructure

MAX_HEAD_DIM = 512
FEW_SHARES_BYTES = 2**22
FORWARD = RowKernel("gatv2.cu", "gatv2_forward", partial(gatv2_layout, "forward"))
BACKWARD_DST = RowKernel(
    "gatv2.cu", "gatv2_backward_dst", partial(gatv2_layout, "backward_dst"), shares=True
)
BACKWARD_SRC = RowKernel(
    "gatv2.cu", "gatv2_backward_src", partial(gatv2_layout, "backward_src"), shares=True
)


def _forward(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor]:
    """Output, and the log-sum-exp of each row and head."""
    num_heads, head_dim = attn.shape
    dtype, device = feat_src.dtype, feat_src.device
    rows = FORWARD.on(struct.in_adj, dtype, num_heads, head_dim, layout)
    out = empty((struct.num_dst, num_heads, head_dim), dtype, device)
    lse = empty((struct.num_dst, num_heads), accumulator(dtype), device)
    width, states = num_heads * head_dim, num_heads * 2
    pieces = Scratch(lse.dtype, device, rows.num_chunks * width, rows.num_chunks * states)
    part_sum, part_state = pieces.addresses
    rows((feat_src, feat_dst, attn, negative_slope), (out, lse, part_sum, part_state))
    rows.merge("merge_softmax", dtype, inputs=(part_sum, part_state), outputs=(out, lse))
    return out, lse


def _backward(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    lse: Tensor,
    grad_out: Tensor,
    negative_slope: float,
    wanted: Sequence[bool] = (True, True, True),
    layouts: tuple[Layout | None, Layout | None] = (None, None),
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Gradients of feat_src (if it or attn is wanted), feat_dst and attn (if wanted).

    The pass by destination leaves two numbers a row and head for the pass by source. Both leave
    shares of the gradient of attn, one a block.
    """
    num_heads, head_dim = attn.shape
    dtype, device = feat_src.dtype, feat_src.device
    width, states = num_heads * head_dim, num_heads * 2
    by_dst = BACKWARD_DST.on(struct.in_adj, dtype, num_heads, head_dim, layouts[0])
    by_src = None
    if wanted[0] or wanted[2]:
        by_src = BACKWARD_SRC.on(struct.out_adj, dtype, num_heads, head_dim, layouts[1])
    share_bytes = width * lse.dtype.itemsize
    dst_shares = by_dst.grid[0] + by_dst.num_long
    src_shares = by_src.grid[0] if by_src else 0
    # Few shares of the first pass wait for the end; many are merged at once, to make room.
    few = (dst_shares + src_shares) * share_bytes <= FEW_SHARES_BYTES
    kept = dst_shares if few else 1
    scratch = Scratch(
        lse.dtype,
        device,
        struct.num_dst * states,
        max(dst_shares, kept + src_shares) * width,
        # Pieces of one pass, then of the other.
        max(by_dst.num_chunks * 2, by_src.num_chunks if by_src else 0) * width,
        by_dst.num_chunks * states,
    )
    row_state, part_attn, part_sums, part_totals = scratch.addresses
    operands = feat_src, feat_dst, attn, grad_out

    grad_dst = empty((struct.num_dst, num_heads, head_dim), dtype, device)
    by_dst(
        (*operands, lse, negative_slope),
        (grad_dst, row_state, part_sums, part_totals, part_attn),
    )
    by_dst.merge(
        "merge_gatv2_dst",
        dtype,
        inputs=(feat_dst, attn, negative_slope, part_sums, part_totals),
        outputs=(grad_dst, row_state, part_attn + by_dst.grid[0] * share_bytes),
    )
    if by_src is None:
        return None, grad_dst, None
    if not few:
        by_dst.merge_shares(lse.dtype, part_attn, dst_shares, part_attn)
    grad_src = empty((struct.num_src, num_heads, head_dim), dtype, device)
    by_src(
        (*operands, lse, row_state, negative_slope),
        (grad_src, part_sums, part_attn + kept * share_bytes),
    )
    by_src.merge("merge_sum", dtype, inputs=(part_sums,), outputs=(grad_src,))
    if not wanted[2]:
        return grad_src, grad_dst, None
    grad_attn = empty((num_heads, head_dim), dtype, device)
    by_src.merge_shares(dtype, part_attn, kept + src_shares, grad_attn)
    return grad_src, grad_dst, grad_attn


class GATv2Function(Function):
    """Saves the inputs and one log-sum-exp a row and head."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat_src: Tensor,
        feat_dst: Tensor,
        attn: Tensor,
        negative_slope: float,
    ) -> Tensor:
        """Run the fused forward."""
        operands = packed(feat_src), packed(feat_dst), packed(attn)
        out, lse = _forward(struct, *operands, negative_slope)
        ctx.save_for_backward(feat_src, feat_dst, attn, lse)
        ctx.struct, ctx.negative_slope = struct, negative_slope
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Run both fused passes, or differentiate the reference when a graph of it is wanted."""
        feat_src, feat_dst, attn, lse = ctx.saved_tensors
        if torch.is_grad_enabled():
            return _differentiable_backward(ctx, feat_src, feat_dst, attn, grad_out)
        wanted = ctx.needs_input_grad[1:4]
        operands = packed(feat_src), packed(feat_dst), packed(attn), lse, packed(grad_out)
        grad_src, grad_dst, grad_attn = _backward(ctx.struct, *operands, ctx.negative_slope, wanted)
        return (
            None,  # struct
            grad_src if wanted[0] else None,  # feat_src
            grad_dst if wanted[1] else None,  # feat_dst
            grad_attn,  # attn
            None,  # negative_slope
        )


def _differentiable_backward(
    ctx: Any, feat_src: Tensor, feat_dst: Tensor, attn: Tensor, grad_out: Tensor
) -> tuple[Any, ...]:
    wanted = ctx.needs_input_grad[1:4]
    # Aliases, so that one tensor passed as both sides still gets two gradients.
    inputs = [tensor.view_as(tensor) for tensor in (feat_src, feat_dst, attn)]
    src, dst, vector = inputs
    out = reference.gatv2(ctx.struct, src, dst, vector, ctx.negative_slope)
    chosen = [tensor for tensor, want in zip(inputs, wanted, strict=True) if want]
    found = iter(torch.autograd.grad(out, chosen, grad_out, create_graph=True))
    return None, *(next(found) if want else None for want in wanted), None


def _composed(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float,
    attn_drop: float,
) -> tuple[Tensor, Tensor]:
    """Output and attention (E, H, 1), from the other ops and scores in plain torch."""
    dtype = accumulator(feat_src.dtype)  # of all that lies between the op's operands and results
    values = feat_src.to(dtype)
    operands = values, feat_dst.to(dtype), attn.to(dtype)
    with torch.autocast(feat_src.device.type, enabled=False):  # the operands are cast already
        scores = reference.gatv2_scores(struct, *operands, negative_slope)
        attention = F.dropout(edge_softmax(struct, scores), attn_drop)
        out = spmm(struct, values, attention).to(feat_src.dtype)
    return out, attention.to(feat_src.dtype).unsqueeze(-1)


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


def _blockers(head_dim: int, num_heads: int, attn_drop: float, return_attention: bool) -> list[str]:
    found = []
    if not 1 <= head_dim <= MAX_HEAD_DIM or num_heads < 1:
        found.append(f"the kernel takes 1 <= D <= {MAX_HEAD_DIM}, got H={num_heads}, D={head_dim}")
    if attn_drop > 0:
        found.append("attention dropout is active; attn_drop=0 or eval() runs the kernel")
    if return_attention:
        found.append("the attention itself was asked for")
    return found


def gatv2(
    graph: Any,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    *,
    attn_drop: float = 0.0,
    return_attention: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    r"""Attend over in-edges with GATv2 scores.

    .. math::
        s_{eh} &= \sum_d a_{hd} \, \mathrm{LeakyReLU}(x_{uhd} + y_{vhd}), \quad e = (u \to v) \\
        z_{vh} &= \sum_{e \in \mathrm{in}(v)} \mathrm{softmax}_e(s_{eh}) \, x_{uh}

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
    attn_drop : float
        Probability of dropping an attention value; pass 0 outside training.
    return_attention : bool
        Also return the attention after dropout.

    Returns
    -------
    torch.Tensor
        :math:`z`, shape (N_dst, H, D); zero for destinations without in-edges.
    torch.Tensor
        Attention (E, H, 1) in edge-id order, only with ``return_attention``.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, a feature no floating-point tensor, or dtypes differ.
    ValueError
        When shapes or devices do not fit.

    Notes
    -----
    **Fused path.** On CUDA one kernel reads each source row once per edge, keeps an online softmax
    and saves one log-sum-exp a row and head; the backward recomputes the attention in two passes,
    by destination and by source, without atomics, bit-equal from run to run. It takes any H and 1
    <= D <= 512 in all four dtypes (arithmetic in float32, or float64). Attention dropout,
    ``return_attention`` and wider heads compute the scores in plain torch, by chunks of edges, and
    go on with the fused ``edge_softmax`` and ``spmm``. The CPU takes plain torch throughout.
    Second-order gradients do too, with memory that grows with E x H x D.

    References
    ----------
    S. Brody, U. Alon, E. Yahav: How Attentive are Graph Attention Networks? ICLR 2022.
    """
    struct = structure(graph, check.device(feat_src), op="gatv2")
    feat_src, feat_dst, attn = check.autocast(feat_src, feat_dst, attn)
    _check(struct, feat_src, feat_dst, attn)
    blockers = _blockers(feat_src.shape[2], feat_src.shape[1], attn_drop, return_attention)
    slope = float(negative_slope)
    if is_tracing():
        from dgl_flash.ops import traced

        if not blockers and traced.kernels_run(feat_src.device):
            return traced.gatv2(struct, feat_src, feat_dst, attn, slope)
    elif use_kernel("gatv2", feat_src.device, kernels=("gatv2_forward",), blockers=blockers):
        return GATv2Function.apply(struct, feat_src, feat_dst, attn, slope)
    out, attention = _composed(struct, feat_src, feat_dst, attn, slope, attn_drop)
    return (out, attention) if return_attention else out
