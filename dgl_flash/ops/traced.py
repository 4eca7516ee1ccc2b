"""Softmax and attention as ``torch.compile`` sees them: one node of the traced graph each.

Each wraps the eager computation in an op of ``torch.library``, so that a compiled model runs the
same kernels. Derivatives are ops again. Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash import reference
from dgl_flash.kernels.availability import why_unavailable
from dgl_flash.kernels.jit import accumulator
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_softmax import _backward as softmax_backward
from dgl_flash.ops.edge_softmax import _forward as softmax_forward
from dgl_flash.ops.gatv2 import _backward as attention_backward
from dgl_flash.ops.gatv2 import _forward as attention_forward
from dgl_flash.ops.rows import packed
from dgl_flash.ops.tracing import NO_EDGE_GRADIENTS, declare, save, saved, split
from dgl_flash.reference.rows import gather_rows, sum_to_rows
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.traced import edge_tensors, find


@torch.compiler.assume_constant_result
def kernels_run(device: torch.device) -> bool:
    """Whether kernels run on a device, decided while tracing."""
    return why_unavailable(device) is None


@declare("edge_softmax", "Tensor score) -> (Tensor, Tensor)")
def _edge_softmax(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (score,) = split(arguments)
    struct = find(edges)
    row_state = score.new_zeros((struct.num_dst, score.shape[1], 2), dtype=accumulator(score.dtype))
    if score.numel() == 0:
        return score.clone(), row_state
    if use_kernel("edge_softmax", score.device, kernels=("edge_softmax_forward",)):
        return softmax_forward(struct, packed(score))
    return reference.edge_softmax(struct, score), row_state


@_edge_softmax.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (score,) = split(arguments)
    state = score.new_empty((edges.num_dst, score.shape[1], 2), dtype=accumulator(score.dtype))
    return torch.empty_like(score, memory_format=torch.contiguous_format), state


@declare("edge_softmax_backward", "Tensor score, Tensor row_state, Tensor grad_out) -> Tensor")
def _softmax_gradient(*arguments: Any) -> Tensor:
    edges, (score, row_state, grad_out) = split(arguments)
    struct = find(edges)
    if score.numel() == 0:
        return score.clone()
    if use_kernel("edge_softmax", score.device, kernels=("edge_softmax_backward",)):
        return softmax_backward(struct, packed(score), row_state, packed(grad_out))
    dtype = accumulator(score.dtype)
    out = reference.edge_softmax(struct, score.to(dtype))
    weighted = out * grad_out.to(dtype)
    _, dst = struct.edges()
    inner = gather_rows(sum_to_rows(weighted, dst, struct.num_dst), dst)
    return (weighted - out * inner).to(score.dtype)


@_softmax_gradient.register_fake
def _(*arguments: Any) -> Tensor:
    _, (score, *_) = split(arguments)
    return torch.empty_like(score, memory_format=torch.contiguous_format)


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, (score,) = split(inputs)
    ctx.mark_non_differentiable(output[1])
    save(ctx, edges, score, output[1])


def _softmax_backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Any, ...]:
    edges, (score, row_state) = saved(ctx)
    return *NO_EDGE_GRADIENTS, _softmax_gradient(*edges, score, row_state, grad_out)


_edge_softmax.register_autograd(_softmax_backward, setup_context=_softmax_setup)


@declare("gatv2", "Tensor feat_src, Tensor feat_dst, Tensor attn, float slope) -> (Tensor, Tensor)")
def _gatv2(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (feat_src, feat_dst, attn, slope) = split(arguments)
    use_kernel("gatv2", feat_src.device, kernels=("gatv2_forward",))
    operands = packed(feat_src), packed(feat_dst), packed(attn)
    return attention_forward(find(edges), *operands, slope)


@_gatv2.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (feat_src, *_) = split(arguments)
    out = feat_src.new_empty((edges.num_dst, *feat_src.shape[1:]))
    lse_shape = (edges.num_dst, feat_src.shape[1])
    return out, feat_src.new_empty(lse_shape, dtype=accumulator(feat_src.dtype))


@declare(
    "gatv2_backward",
    "Tensor feat_src, Tensor feat_dst, Tensor attn, Tensor lse, Tensor grad_out, float slope) "
    "-> (Tensor, Tensor, Tensor)",
)
def _gatv2_gradients(*arguments: Any) -> tuple[Tensor, ...]:
    edges, (feat_src, feat_dst, attn, lse, grad_out, slope) = split(arguments)
    operands = packed(feat_src), packed(feat_dst), packed(attn), lse, packed(grad_out)
    grads = attention_backward(find(edges), *operands, slope)
    return tuple(grad for grad in grads if grad is not None)  # all three are wanted


@_gatv2_gradients.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    _, operands = split(arguments)
    return tuple(
        torch.empty_like(operand, memory_format=torch.contiguous_format) for operand in operands[:3]
    )


def _gatv2_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, (feat_src, feat_dst, attn, ctx.slope) = split(inputs)
    ctx.mark_non_differentiable(output[1])
    save(ctx, edges, feat_src, feat_dst, attn, output[1])


def _gatv2_backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Any, ...]:
    edges, operands = saved(ctx)
    return *NO_EDGE_GRADIENTS, *_gatv2_gradients(*edges, *operands, grad_out, ctx.slope), None


_gatv2.register_autograd(_gatv2_backward, setup_context=_gatv2_setup)


def edge_softmax(struct: GraphStructure, score: Tensor) -> Tensor:
    """Softmax of scores (E, H)."""
    return _edge_softmax(*edge_tensors(struct), score)[0]


def gatv2(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, attn: Tensor, slope: float
) -> Tensor:
    """Attention over rows (N, H, D)."""
    return _gatv2(*edge_tensors(struct), feat_src, feat_dst, attn, slope)[0]
