"""Softmax as ``torch.compile`` sees it: one node of the traced graph.

It wraps the eager computation in an op of ``torch.library``, so that a compiled model runs the
same kernels. The derivative is an op again. Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash import cpu
from dgl_flash.kernels.jit import accumulator
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_softmax import _backward as softmax_backward
from dgl_flash.ops.edge_softmax import _forward as softmax_forward
from dgl_flash.ops.rows import packed
from dgl_flash.ops.tracing import NO_EDGE_GRADIENTS, declare, save, saved, split
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.traced import edge_tensors, find


@declare("edge_softmax", "Tensor score) -> (Tensor, Tensor)")
def _edge_softmax(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (score,) = split(arguments)
    struct = find(edges)
    row_state = score.new_zeros((struct.num_dst, score.shape[1], 2), dtype=accumulator(score.dtype))
    if score.numel() == 0:
        return score.clone(), row_state
    if use_kernel("edge_softmax", score.device, kernels=("edge_softmax_forward",)):
        return softmax_forward(struct, packed(score))
    return _softmax_on_cpu(struct, score).to(score.dtype), row_state


def _softmax_on_cpu(struct: GraphStructure, score: Tensor) -> Tensor:
    return cpu.edge_softmax(struct, score.to(accumulator(score.dtype)))


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
    out = _softmax_on_cpu(struct, score)
    return cpu.edge_softmax_backward(struct, out, grad_out.to(out.dtype)).to(score.dtype)


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


def edge_softmax(struct: GraphStructure, score: Tensor) -> Tensor:
    """Softmax of scores (E, H)."""
    return _edge_softmax(*edge_tensors(struct), score)[0]
