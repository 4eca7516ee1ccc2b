"""Sums over typed edges, with a matrix for each type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_map import edge_map
from dgl_flash.ops.gradients import NO_SCALING
from dgl_flash.ops.sddmm import dot_products
from dgl_flash.ops.spmm import weighted_sum
from dgl_flash.ops.typed_mm import (
    PickRows,
    add_outer_products,
    check_index,
    check_operands,
    product,
)
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.structure import structure
from dgl_flash.structure.relations import Chunk, Relations, relations
from dgl_flash.structure.traced import is_tracing, outside_trace


def _factors(chunk: Chunk, norm: Tensor | None) -> Tensor | None:
    """Factors of the edges of a chunk, in its order."""
    return None if norm is None else PickRows.apply(norm, chunk.order)


def _chunk_sum(chunk: Chunk, feat: Tensor, weight: Tensor, norm: Tensor | None) -> Tensor:
    """Rows of the result that belong to a chunk."""
    inner = outer = None
    if norm is not None and norm.dim() == 2:
        outer = _factors(chunk, norm)  # without merging a pair is an edge, in the same order
    else:
        inner = _factors(chunk, norm)
    sums = weighted_sum(chunk.gather, feat, inner)
    return weighted_sum(chunk.scatter, product(sums, weight, chunk.layout), outer)


def _forward(found: Relations, feat: Tensor, weight: Tensor, norm: Tensor | None) -> Tensor:
    feat, weight = feat.contiguous(), weight.contiguous()  # once, not in each chunk
    rows = [_chunk_sum(chunk, feat, weight, norm) for chunk in found.chunks]
    return _join(rows)


def _join(rows: list[Tensor]) -> Tensor:
    return rows[0] if len(rows) == 1 else torch.cat(rows)


def _derivatives(
    found: Relations,
    far: Tensor,
    near: Tensor,
    weight: Tensor,
    norm: Tensor | None,
    needed: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    r"""Differentiate ``sum_e <c_e far_u W_t(e), near_v>`` by near, W and c; edges are ``u -> v``.

    That is the product of a sum with the gradient of the sum. Seen along the edges, near is the
    gradient. Seen against them, near is what was summed up, W is transposed, and a factor for each
    output, (E, out), belongs to far.
    """
    by_near, by_weight, by_norm = needed
    far, weight = far.contiguous(), weight.contiguous()
    rows: list[Tensor] = []
    if by_weight:
        total = torch.zeros_like(weight, dtype=accumulation_dtype(weight.dtype))
    of_edges = None if norm is None or not by_norm else torch.empty_like(norm)
    back = weight.transpose(-1, -2).contiguous() if by_norm else weight
    for chunk in found.chunks:
        if by_near or by_weight:
            sums = weighted_sum(chunk.gather, far, _factors(chunk, norm))
        if by_near:
            rows.append(weighted_sum(chunk.scatter, product(sums, weight, chunk.layout), None))
        if by_weight or by_norm:
            slots = weighted_sum(chunk.scatter.reverse(), near[chunk.rows], None)
        if by_weight:
            add_outer_products(total, sums, slots, chunk.layout)
        if of_edges is not None:
            slots = product(slots, back, chunk.layout)
            if of_edges.dim() == 1:
                grads = dot_products(chunk.gather, far, slots, 1).squeeze(1)
            else:
                grads = edge_map(chunk.gather, "mul", slots, far, NO_SCALING)
            of_edges.index_copy_(0, chunk.order.long(), grads)
    return (
        _join(rows) if by_near else None,
        total.to(weight.dtype) if by_weight else None,
        of_edges,
    )


class RelationalSum(Function):
    """Linear in each operand. What is gathered and multiplied is made again in the backward."""

    @staticmethod
    def forward(
        ctx: Any,
        found: Relations,
        reverse: Relations | None,
        feat: Tensor,
        weight: Tensor,
        norm: Tensor | None,
    ) -> Tensor:
        """Sum (N_src, in) to (N_dst, out)."""
        ctx.found, ctx.reverse = found, reverse
        ctx.save_for_backward(feat, weight, norm)
        return _forward(found, feat, weight, norm)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Sum against the edges where the features need it; what else is needed comes with that."""
        # Products keep the dtype of the forward, wherever the backward is asked for.
        with torch.autocast(grad_out.device.type, enabled=False):
            grad_feat, grad_weight, grad_norm = _gradients(ctx, grad_out)
        return (
            None,  # found
            None,  # reverse
            grad_feat,  # feat
            grad_weight,  # weight
            grad_norm,  # norm
        )


def _gradients(ctx: Any, grad_out: Tensor) -> Sequence[Tensor | None]:
    feat, weight, norm = ctx.saved_tensors
    needed = ctx.needs_input_grad[2:]
    if torch.is_grad_enabled():
        return _differentiably(ctx, grad_out, needed)
    if ctx.reverse is None:
        return _derivatives(ctx.found, feat, grad_out, weight, norm, needed)
    turned = weight.transpose(-1, -2)
    grad_feat, grad_weight, grad_norm = _derivatives(
        ctx.reverse, grad_out, feat, turned, norm, needed
    )
    return grad_feat, None if grad_weight is None else grad_weight.transpose(-1, -2), grad_norm


def _differentiably(
    ctx: Any, grad_out: Tensor, needed: tuple[bool, bool, bool]
) -> list[Tensor | None]:
    """Let autograd differentiate the sum as it stands, for gradients of gradients."""
    # Aliases: where one operand was computed from another, that is not for this function to follow.
    operands: list[Any] = [
        None if kept is None else kept.view_as(kept) for kept in ctx.saved_tensors
    ]
    out = _forward(ctx.found, *operands)
    wanted = [operand for operand, need in zip(operands, needed, strict=True) if need]
    grads = iter(torch.autograd.grad(out, wanted, grad_out, create_graph=True))
    return [next(grads) if need else None for need in needed]


def _check_norm(norm: Tensor, feat: Tensor, num_edges: int, num_out: int) -> Tensor:
    """Factors as (E,), or as (E, out) where each output has its own."""
    check.tensor("relational_sum", "norm", norm)
    check.same_as("relational_sum", "norm", norm, "feat", feat)
    check_edges(norm, num_edges)
    if norm.shape[1:].numel() == 1:
        return norm.reshape(num_edges)
    if tuple(norm.shape[1:]) != (num_out,):
        raise ValueError(
            f"relational_sum: expected `norm` of shape (E,), (E, 1) or (E, out) = "
            f"({num_edges}, {num_out}), got {tuple(norm.shape)}"
        )
    return norm


def check_edges(value: Tensor, num_edges: int) -> None:
    """Raise unless there is one row an edge, in DGL's words."""
    size = value.shape[0] if value.dim() else 0
    if size != num_edges:
        raise dgl_error(
            f"Expect number of features to match number of edges. Got {size} and {num_edges} "
            f"instead."
        )


def relational_sum(
    graph: Any, feat: Tensor, weight: Tensor, etypes: Tensor, norm: Tensor | None = None
) -> Tensor:
    r"""Sum transformed neighbours, the matrix of an edge being that of its type.

    .. math::
        y_v = \sum_{e = (u \to v)} c_e \, x_u W_{t(e)}

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type in the sense of DGL, on any device.
    feat : torch.Tensor
        :math:`x`, (N_src, in), float64, float32, float16 or bfloat16.
    weight : torch.Tensor
        :math:`W`, (R, in, out), or (R, B, in / B, out / B): the B diagonal blocks of each matrix,
        all else being zero.
    etypes : torch.Tensor
        :math:`t` in edge-id order, (E,), int32 or int64, values in [0, R), on any device.
    norm : torch.Tensor, optional
        :math:`c`, (E,) or (E, 1); or (E, out), a factor for each output. It may require a gradient.

    Returns
    -------
    torch.Tensor
        (N_dst, out), dtype of ``feat``; zero for destinations without in-edges.

    Raises
    ------
    TypeError
        When an operand has the wrong type, or dtypes differ.
    ValueError
        When shapes or devices do not fit.
    IndexError
        When an edge type is out of range.
    DGLError
        When ``etypes`` or ``norm`` do not have a row an edge.

    Notes
    -----
    **Fused path.** The edges of one relation that end in one node are summed first (the kernel of
    :func:`spmm`), then multiplied once (batched products, as in :func:`segment_mm`), then summed
    over relations (:func:`spmm` again). This is done for a range of destinations at a time, with a
    tenth of the edges or 2^17 to 2^19 of them, and each range writes its rows once. The backward
    does the same against the edges: the sums that lead to ``grad_feat``, multiplied with the rows
    of ``feat``, are also the gradient of ``weight``. Only operands are kept for it; so memory grows
    with nodes x width and a range of edges x width. No atomics: bit-equal from run to run.
    Gradients of any order; for a gradient of a gradient all edges x width are kept. What is sorted,
    in either direction, stays with the graph and with the tensor ``etypes``: pass the same one
    again, and write to it with torch only, which leaves a trace. A GPU is waited for when a pair of
    both is seen for the first time. In ``torch.compile`` the call interrupts the traced graph.
    """
    if is_tracing():
        return _outside(graph, feat, weight, etypes, norm)
    struct = structure(graph, check.device(feat), op="relational_sum")
    feat, weight, norm = check.autocast(feat, weight, norm)
    check_operands("relational_sum", ("feat", feat, "N_src"), ("weight", weight))
    check.shape("relational_sum", "feat", feat, (struct.num_src, None), "(N_src, in)")
    check_index("relational_sum", "etypes", etypes)
    check_edges(etypes, struct.num_edges)
    if etypes.dim() != 1:
        raise ValueError(
            f"relational_sum: expected `etypes` of shape (E,), got {tuple(etypes.shape)}"
        )
    if norm is not None:
        num_out = weight.shape[-1] * (weight.shape[1] if weight.dim() == 4 else 1)
        norm = _check_norm(norm, feat, struct.num_edges, num_out)
    use_kernel("relational_sum", feat.device, kernels=("spmm",))
    merge = norm is None or norm.dim() == 1
    found = relations(struct, etypes, weight.shape[0], merge)
    if not torch.is_grad_enabled():
        return _forward(found, feat, weight, norm)
    # The backward goes against the edges, unless it can make do with what is there.
    reverse = None
    if feat.requires_grad or not merge:
        reverse = relations(struct.reverse(), etypes, weight.shape[0])
    return RelationalSum.apply(found, reverse, feat, weight, norm)


# Sorting depends on values, and a compiler has nothing to add to kernels and batched products.
_outside = outside_trace(relational_sum)
