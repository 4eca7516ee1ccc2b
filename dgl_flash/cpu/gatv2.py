"""Scores of GATv2, and their gradients, by pieces of the edges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.cpu.bags import PIECE, sum_bags
from dgl_flash.cpu.chunks import RowPiece, gather_rows, row_pieces
from dgl_flash.cpu.spmm import sum_rows

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, GraphStructure

# Rows of all edges that are few enough to be kept until the backward pass: plain torch.
WHOLE_BYTES = 1 << 22
BLOCK = 512  # edges whose scores are one product of a batch

Wanted = tuple[bool, bool, bool]
Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def gatv2_scores(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    negative_slope: float,
) -> Tensor:
    r"""Score every edge.

    .. math::
        s_{e,h} = \sum_d a_{h,d} \, \mathrm{LeakyReLU}(x_{u,h,d} + y_{v,h,d}), \quad e = (u \to v)

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat_src, feat_dst : Tensor
        :math:`x` and :math:`y`, (N_src, H, D) and (N_dst, H, D), float32 or float64.
    attn : Tensor
        :math:`a`, (H, D).
    negative_slope : float
        Slope of the leaky ReLU below 0.

    Returns
    -------
    Tensor
        (E, H) in edge-id order. It has derivatives of any order; beyond the first, those of
        :func:`dgl_flash.reference.gatv2_scores`.
    """
    if struct.num_edges * attn.numel() * attn.element_size() <= WHOLE_BYTES:
        return reference.gatv2_scores(struct, feat_src, feat_dst, attn, negative_slope)
    return _Scores.apply(struct, feat_src, feat_dst, attn, negative_slope)


class _Scores(Function):
    """Saves its operands only: what an edge adds up is computed once more in each direction."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        feat_src: Tensor,
        feat_dst: Tensor,
        attn: Tensor,
        negative_slope: float,
    ) -> Tensor:
        ctx.struct, ctx.negative_slope = struct, negative_slope
        ctx.save_for_backward(feat_src, feat_dst, attn)
        return _forward(struct, feat_src, feat_dst, attn, negative_slope)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        differentiate = _differentiably if torch.is_grad_enabled() else _backward
        feat_src, feat_dst, attn = ctx.saved_tensors
        wanted = ctx.needs_input_grad[1:4]
        grads = differentiate(
            ctx.struct, feat_src, feat_dst, attn, ctx.negative_slope, grad_out, wanted
        )
        return (
            None,  # struct
            *grads,  # feat_src, feat_dst, attn
            None,  # negative_slope
        )


def _forward(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, attn: Tensor, slope: float
) -> Tensor:
    adj, num_heads = struct.in_adj, attn.shape[0]
    out = feat_src.new_zeros((num_heads, adj.num_edges))
    for piece, sums in _sums_of_ends(adj, feat_dst, feat_src):
        _dot(F.leaky_relu_(sums, slope), attn, out[:, piece.positions])
    if adj.eids is None:
        return out.t().contiguous()
    by_edge = torch.empty_like(out.t(), memory_format=torch.contiguous_format)
    by_edge[adj.eids.long()] = out.t()
    return by_edge


def _dot(rows: Tensor, attn: Tensor, out: Tensor) -> None:
    """Multiply (K, H, D) rows with the vector, (H, D), into (H, K)."""
    num_rows, num_heads, head_dim = rows.shape
    # Torch shares the matrices of a batch out to the threads, but not a product with a vector.
    batch = num_rows // BLOCK
    end = batch * BLOCK
    for head in range(num_heads):
        blocks = rows[:end, head].view(batch, BLOCK, head_dim).transpose(1, 2)
        vectors = attn[head].expand(batch, 1, head_dim)
        torch.bmm(vectors, blocks, out=out[head, :end].view(batch, 1, BLOCK))
        torch.mv(rows[end:, head], attn[head], out=out[head, end:])


def _backward(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    slope: float,
    grad_out: Tensor,
    wanted: Wanted,
) -> Gradients:
    """Gradients of both ends, each from a walk in the order of its rows, and of the vector."""
    want_src, want_dst, want_attn = wanted
    numbers = attn, slope, grad_out
    grad_src = grad_dst = grad_attn = None
    if want_src:
        wants = True, want_attn and not want_dst
        grad_src, grad_attn = _walk(struct.reverse(), feat_src, feat_dst, *numbers, wants)
    if want_dst or (want_attn and not want_src):
        wants = want_dst, want_attn
        grad_dst, grad_attn = _walk(struct, feat_dst, feat_src, *numbers, wants)
    return grad_src, grad_dst, grad_attn


def _differentiably(
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    attn: Tensor,
    slope: float,
    grad_out: Tensor,
    wanted: Wanted,
) -> Gradients:
    """Let autograd differentiate the reference, for gradients of gradients."""
    # Aliases, so that one tensor on both sides gets the gradient of each and not twice their sum.
    src, dst, vector = (operand.view_as(operand) for operand in (feat_src, feat_dst, attn))
    scores = reference.gatv2_scores(struct, src, dst, vector, slope)
    chosen = [t for t, want in zip((src, dst, vector), wanted, strict=True) if want]
    found = iter(torch.autograd.grad(scores, chosen, grad_out, create_graph=True))
    grad_src, grad_dst, grad_attn = (next(found) if want else None for want in wanted)
    return grad_src, grad_dst, grad_attn


def _walk(
    struct: GraphStructure,
    feat_dst: Tensor,
    feat_src: Tensor,
    attn: Tensor,
    slope: float,
    grad_out: Tensor,
    wanted: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the destinations and of the vector.

    A leaky ReLU of slope r has the derivative r + (1 - r) [z > 0]: the sum of each row's gradients
    follows from that over all edges, which is one number a head, and that over positive elements.
    """
    adj = struct.in_adj
    by_position = grad_out if adj.eids is None else grad_out.index_select(0, adj.eids)
    total = sum_rows(struct, grad_out, None, on_edges=True).unsqueeze(-1)
    below, above = attn * slope, attn * (1 - slope)
    new = feat_dst.new_empty if adj.num_edges else feat_dst.new_zeros  # edges fill it row by row
    grad_dst = new(feat_dst.shape) if wanted[0] else None
    grads_attn = [torch.zeros_like(attn)]
    for piece, sums in _sums_of_ends(adj, feat_dst, feat_src):
        grad_score = by_position[piece.positions]
        if wanted[1]:
            # In place where signs stay what they are.
            leaky = F.leaky_relu(sums, slope, inplace=slope >= 0)
            grads_attn.append(_total(leaky, grad_score))
        if grad_dst is None:
            continue
        terms = sums.gt_(0).mul_(grad_score.unsqueeze(-1)).flatten(1)
        order = torch.arange(terms.shape[0], dtype=piece.offsets.dtype)
        rows = sum_bags(order, terms, piece.offsets, None).view(-1, *attn.shape).mul_(above)
        if piece.goes_on:
            rows[0] += grad_dst[piece.rows.start]
            total[piece.rows.start] = 0  # is in there
        rows.addcmul_(total[piece.rows], below)
        grad_dst[piece.rows] = rows
    return grad_dst, torch.stack(grads_attn).sum(dim=0) if wanted[1] else None


def _total(rows: Tensor, weight: Tensor) -> Tensor:
    """Sum (K, H, D) rows with (K, H) weights; a few of them at a time, to keep the digits."""
    num_rows, num_heads, head_dim = rows.shape
    parts = rows.view(-1, head_dim)
    firsts = torch.arange(0, num_rows * num_heads, num_heads)
    offsets = torch.arange(0, num_rows + PIECE, PIECE).clamp_(max=num_rows)
    by_head = weight.t().contiguous()
    sums = [sum_bags(firsts + h, parts, offsets, by_head[h]) for h in range(num_heads)]
    return torch.stack(sums, dim=1).sum(dim=0)


def _sums_of_ends(adj: Adjacency, own: Tensor, other: Tensor) -> Iterator[tuple[RowPiece, Tensor]]:
    """Features of a row plus those of its neighbour for each edge, (K, H, D) at a time."""
    if adj.num_edges == 0 or own.numel() == 0:
        return
    shape, width = own.shape[1:], own[0].numel()
    own, other = (ends.reshape(-1, width).contiguous() for ends in (own, other))
    rows = adj.rows()
    # The features of both ends share the cache.
    for piece in row_pieces(adj.indptr, 2 * width, own.element_size()):
        at = piece.positions
        sums = gather_rows(other, adj.indices[at])
        sums += own.index_select(0, rows[at])
        yield piece, sums.view(-1, *shape)
