"""Functions of the two ends of an edge, without a tensor of edges times width."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash.reference.rows import gather_rows
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


class Limits(NamedTuple):
    """Bytes that the rows of one operand may take once they are gathered."""

    whole: int  # for all edges at once, to be kept until the backward pass
    chunk: int  # for a chunk of edges, on a CPU to stay in the cache


# A chunk stays in the cache. What is larger than two of them is slower to write to fresh memory and
# read back in the backward pass than to compute once more.
LIMITS = {"cpu": Limits(whole=1 << 22, chunk=1 << 21)}
_LIMITS_ELSEWHERE = Limits(whole=1 << 28, chunk=1 << 28)


def edgewise(
    function: Callable[..., Tensor],
    struct: GraphStructure,
    feat_src: Tensor,
    feat_dst: Tensor,
    *params: Tensor,
) -> Tensor:
    r"""Evaluate a function on every edge.

    .. math::
        out_e = f(x_u, y_v, params) \qquad e = (u \to v)

    Large graphs are walked in chunks of edges; the backward pass computes each chunk once more
    instead of keeping it.

    Parameters
    ----------
    function : callable
        Takes ``(n, ...)`` sources, ``(n, ...)`` destinations and ``params``; works row by row.
    struct : GraphStructure
        The graph.
    feat_src, feat_dst : Tensor
        (N_src, ...) and (N_dst, ...).
    *params : Tensor
        Handed to each call.

    Returns
    -------
    Tensor
        (E, ...) in edge-id order.
    """
    src, dst = struct.edges()
    bytes_per_edge = max(feat_src[:1].numel(), 1) * feat_src.element_size()
    limits = LIMITS.get(feat_src.device.type, _LIMITS_ELSEWHERE)
    # A compiler fuses the gather into the function, and cannot follow the chunks.
    if is_tracing() or struct.num_edges * bytes_per_edge <= limits.whole:
        return function(gather_rows(feat_src, src), gather_rows(feat_dst, dst), *params)
    chunk = max(limits.chunk // bytes_per_edge, 1)
    return _Edgewise.apply(function, src, dst, chunk, feat_src, feat_dst, *params)


class _Edgewise(Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        src: Tensor,
        dst: Tensor,
        chunk: int,
        feat_src: Tensor,
        feat_dst: Tensor,
        *params: Tensor,
    ) -> Tensor:
        ctx.function, ctx.chunk = function, chunk
        ctx.save_for_backward(src, dst, feat_src, feat_dst, *params)
        pieces = [
            function(feat_src.index_select(0, src[at]), feat_dst.index_select(0, dst[at]), *params)
            for at in _slices(src.numel(), chunk)
        ]
        return torch.cat(pieces)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        src, dst, *operands = ctx.saved_tensors
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[4:]) if needed]
        differentiate = _differentiably if torch.is_grad_enabled() else _by_chunks
        grads = differentiate(ctx, grad_out, src, dst, operands, wanted)
        by_operand: list[Tensor | None] = [None] * len(operands)
        for i, grad in zip(wanted, grads, strict=True):
            by_operand[i] = grad
        return None, None, None, None, *by_operand


def _differentiably(
    ctx: Any, grad_out: Tensor, src: Tensor, dst: Tensor, operands: list[Tensor], wanted: list[int]
) -> tuple[Tensor, ...]:
    """Let autograd differentiate the formula as it stands, for gradients of gradients."""
    # Aliases, so that one tensor on both sides gets the gradient of each and not twice their sum.
    operands = [operand.view_as(operand) for operand in operands]
    feat_src, feat_dst, *params = operands
    out = ctx.function(gather_rows(feat_src, src), gather_rows(feat_dst, dst), *params)
    return torch.autograd.grad(out, [operands[i] for i in wanted], grad_out, create_graph=True)


def _by_chunks(
    ctx: Any, grad_out: Tensor, src: Tensor, dst: Tensor, operands: list[Tensor], wanted: list[int]
) -> list[Tensor]:
    feat_src, feat_dst, *params = operands
    grads = [torch.zeros_like(operands[i]) for i in wanted]
    for at in _slices(src.numel(), ctx.chunk):
        ends = {0: src[at], 1: dst[at]}
        leaves = [feat_src.index_select(0, ends[0]), feat_dst.index_select(0, ends[1]), *params]
        leaves = [leaf.detach().requires_grad_(i in wanted) for i, leaf in enumerate(leaves)]
        with torch.enable_grad():
            out = ctx.function(*leaves)
        parts = torch.autograd.grad(out, [leaves[i] for i in wanted], grad_out[at])
        for i, total, part in zip(wanted, grads, parts, strict=True):
            if i in ends:
                _add_rows(total, ends[i], part)
            else:
                total.add_(part)
    return grads


def _add_rows(total: Tensor, ids: Tensor, part: Tensor) -> None:
    if total.is_cuda:
        total.index_put_((ids,), part, accumulate=True)  # index_add_ is not repeatable there
    else:
        total.index_add_(0, ids, part)


def _slices(total: int, chunk: int) -> Iterator[slice]:
    return (slice(begin, begin + chunk) for begin in range(0, total, chunk))
