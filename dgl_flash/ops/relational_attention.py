"""Attention over typed edges, with matrices of each type for keys and values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash.ops import check
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.dot_attention import dot_attention
from dgl_flash.ops.relational import check_edges
from dgl_flash.ops.spmm import weighted_sum
from dgl_flash.ops.typed_mm import add_outer_products, check_index, product
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.structure import structure
from dgl_flash.structure.relations import Chunk, relations
from dgl_flash.structure.traced import is_tracing, outside_trace

NAME = "relational_attention"


def _forward(pairs: Chunk, feat: Tensor, weight: Tensor) -> Tensor:
    """For each slot the row of its source, (N_src, in), times the matrix of its type: (S, out)."""
    return product(weighted_sum(pairs.scatter.reverse(), feat, None), weight, pairs.layout)


class PairRows(Function):
    """Linear in both operands. The rows that are multiplied are gathered again in the backward."""

    @staticmethod
    def forward(ctx: Any, pairs: Chunk, feat: Tensor, weight: Tensor) -> Tensor:
        """Gather and multiply (N_src, in) by (R, H, in / H, out / H) to (S, out)."""
        ctx.pairs = pairs
        ctx.save_for_backward(feat, weight)
        return _forward(pairs, feat, weight)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Multiply by the transposed matrices and sum over the slots of each source."""
        with torch.autocast(grad_out.device.type, enabled=False):
            grad_feat, grad_weight = _gradients(ctx, grad_out.contiguous())
        return (
            None,  # pairs
            grad_feat,  # feat
            grad_weight,  # weight
        )


def _gradients(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, Tensor | None]:
    feat, weight = ctx.saved_tensors
    pairs: Chunk = ctx.pairs
    _, by_feat, by_weight = ctx.needs_input_grad
    if torch.is_grad_enabled():
        return _differentiably(ctx, grad_out)
    grad_feat = grad_weight = None
    if by_weight:
        total = torch.zeros_like(weight, dtype=accumulation_dtype(weight.dtype))
        rows = weighted_sum(pairs.scatter.reverse(), feat, None)
        add_outer_products(total, rows, grad_out, pairs.layout)
        grad_weight = total.to(weight.dtype)
    if by_feat:
        back = product(grad_out, weight.transpose(-1, -2).contiguous(), pairs.layout)
        grad_feat = weighted_sum(pairs.scatter, back, None)
    return grad_feat, grad_weight


def _differentiably(ctx: Any, grad_out: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Let autograd differentiate the product as it stands, for gradients of gradients."""
    # Aliases: where one operand was computed from the other, that is not for here to follow.
    operands = [kept.view_as(kept) for kept in ctx.saved_tensors]
    needed = ctx.needs_input_grad[1:]
    wanted = [operand for operand, need in zip(operands, needed, strict=True) if need]
    out = _forward(ctx.pairs, *operands)
    grads = iter(torch.autograd.grad(out, wanted, grad_out, create_graph=True))
    first, second = (next(grads) if need else None for need in needed)
    return first, second


def _pair_rows(pairs: Chunk, feat: Tensor, weight: Tensor) -> Tensor:
    """Rows of the slots by head: (N_src, H, in) to (S, H, out)."""
    flat, weight = feat.flatten(1).contiguous(), weight.contiguous()
    run = PairRows.apply if torch.is_grad_enabled() else _forward
    return run(pairs, flat, weight).unflatten(1, (weight.shape[1], weight.shape[3]))


def _check(
    graph: Any, q: Tensor, k: Tensor, v: Tensor, key_weight: Tensor, value_weight: Tensor
) -> None:
    check.tensor(NAME, "q", q)
    check.shape(NAME, "q", q, (graph.num_dst, None, None), "(N_dst, H, D)")
    num_heads, head_dim = q.shape[1:]
    for name, rows, matrices, width in (
        ("k", k, key_weight, head_dim),
        ("v", v, value_weight, None),
    ):
        check.tensor(NAME, name, rows)
        check.same_as(NAME, name, rows, "q", q)
        check.shape(NAME, name, rows, (graph.num_src, num_heads, None), "(N_src, H, in)")
        spelled = {"k": "key_weight", "v": "value_weight"}[name]
        check.tensor(NAME, spelled, matrices)
        check.same_as(NAME, spelled, matrices, "q", q)
        fits = (None, num_heads, rows.shape[2], width)
        check.shape(NAME, spelled, matrices, fits, "(R, H, in, D)")
    if key_weight.shape[0] != value_weight.shape[0]:
        raise ValueError(
            f"{NAME}: expected `value_weight` for R = {key_weight.shape[0]} types like "
            f"`key_weight`, got {value_weight.shape[0]}"
        )


def relational_attention(
    graph: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    etypes: Tensor,
    scale: float | None = None,
) -> Tensor:
    r"""Attend over typed edges; keys and values pass through the matrix of the type of the edge.

    .. math::
        \alpha_{eh} &= \mathrm{softmax}_e \left(
            c \, \langle q_{vh}, k_{uh} A_{t(e)h} \rangle \right), \qquad e = (u \to v) \\
        z_{vh} &= \sum_{e \in \mathrm{in}(v)} \alpha_{eh} \, v_{uh} M_{t(e)h}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type in the sense of DGL, on any device.
    q, k, v : torch.Tensor
        Queries (N_dst, H, D), keys (N_src, H, D_k) and values (N_src, H, D_v), one of float64,
        float32, float16 and bfloat16.
    key_weight : torch.Tensor
        :math:`A`, (R, H, D_k, D).
    value_weight : torch.Tensor
        :math:`M`, (R, H, D_v, D_out).
    etypes : torch.Tensor
        :math:`t` in edge-id order, (E,), int32 or int64, values in [0, R), on any device.
    scale : float, optional
        :math:`c`, by default :math:`1 / \sqrt{D}`.

    Returns
    -------
    torch.Tensor
        :math:`z`, (N_dst, H, D_out); zero for destinations without in-edges.

    Raises
    ------
    TypeError
        When an operand has the wrong type, or dtypes differ.
    ValueError
        When shapes or devices do not fit.
    IndexError
        When an edge type is out of range.
    DGLError
        When ``etypes`` does not have a row an edge.

    Notes
    -----
    **Fused path.** What an edge reads depends on its source and its type alone: each such pair that
    occurs, of which there are min(E, N_src R) at most and far fewer where a source has edges of few
    types, gets a key and a value, by one batched product for all types. Then
    :func:`dot_attention` runs on a graph that leads from pairs to destinations: no tensor of edges
    x width. For the backward operands, keys and values of pairs are kept. No atomics: bit-equal
    from run to run. Gradients of any order. The pairs stay with the graph and with the tensor
    ``etypes``, as in :func:`relational_sum`; a GPU is waited for when the two are seen for the
    first time. In ``torch.compile`` the call interrupts the traced graph.
    """
    if is_tracing():
        return _outside(graph, q, k, v, key_weight, value_weight, etypes, scale)
    struct = structure(graph, check.device(q), op=NAME)
    q, k, v, key_weight, value_weight = check.autocast(q, k, v, key_weight, value_weight)
    _check(struct, q, k, v, key_weight, value_weight)
    check_index(NAME, "etypes", etypes)
    check_edges(etypes, struct.num_edges)
    if etypes.dim() != 1:
        raise ValueError(f"{NAME}: expected `etypes` of shape (E,), got {tuple(etypes.shape)}")
    use_kernel(NAME, q.device, kernels=("spmm",))
    # Seen against the edges, a pair is a type and an end: all of them in one chunk.
    found = relations(struct.reverse(), etypes, key_weight.shape[0], True, True, NAME)
    (pairs,) = found.chunks
    keys, values = _pair_rows(pairs, k, key_weight), _pair_rows(pairs, v, value_weight)
    out: Any = dot_attention(pairs.gather.reverse(), q, keys, values, scale)
    return out


# Sorting depends on values, and a compiler has nothing to add to kernels and batched products.
_outside = outside_trace(relational_attention)
