"""The ops as ``torch.compile`` sees them: one node of the traced graph each, with derivatives.

Each wraps the eager computation in an op of ``torch.library``, so that a compiled model runs the
same kernels. Derivatives are ops again. Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

import math
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
from dgl_flash.ops.sddmm import _forward as dot_forward
from dgl_flash.ops.spmm import Scaling, num_heads_of
from dgl_flash.ops.spmm import _forward as sum_forward
from dgl_flash.reference.rows import gather_rows, per_row, sum_to_rows
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.traced import (
    EDGE_SCHEMA,
    OUTSIDE_CUDA_GRAPHS,
    EdgeTensors,
    _degree_scale,
    edge_tensors,
    find,
)

NUM_EDGE_ARGUMENTS = len(EdgeTensors._fields)
NO_EDGE_GRADIENTS = (None,) * NUM_EDGE_ARGUMENTS


@torch.compiler.assume_constant_result
def kernels_run(device: torch.device) -> bool:
    """Whether kernels run on a device, decided while tracing."""
    return why_unavailable(device) is None


def _op(name: str, schema: str) -> Any:
    signature = f"({EDGE_SCHEMA}, {schema}"
    return torch.library.custom_op(
        f"dgl_flash::{name}", mutates_args=(), schema=signature, **OUTSIDE_CUDA_GRAPHS
    )


def _split(arguments: tuple[Any, ...]) -> tuple[EdgeTensors, tuple[Any, ...]]:
    return EdgeTensors(*arguments[:NUM_EDGE_ARGUMENTS]), arguments[NUM_EDGE_ARGUMENTS:]


def _packed(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else packed(tensor)


def _by_head(feat: Tensor, num_heads: int) -> Tensor:
    return feat.reshape(feat.shape[0], num_heads, math.prod(feat.shape[1:]) // num_heads)


def _save(ctx: Any, edges: EdgeTensors, *tensors: Tensor | None) -> None:
    ctx.save_for_backward(edges.indptr, edges.indices, edges.eids, *tensors)
    ctx.num_cols, ctx.by_dst = edges.num_cols, edges.by_dst


def _saved(ctx: Any) -> tuple[EdgeTensors, tuple[Any, ...]]:
    indptr, indices, eids, *tensors = ctx.saved_tensors
    return EdgeTensors(indptr, indices, eids, ctx.num_cols, ctx.by_dst), tuple(tensors)


@_op(
    "spmm",
    "Tensor feat, Tensor? weight, Tensor? src_scale, Tensor? dst_scale, bool mean) -> Tensor",
)
def _spmm(*arguments: Any) -> Tensor:
    edges, (feat, weight, src_scale, dst_scale, mean) = _split(arguments)
    struct = find(edges)
    shape = (struct.num_dst, *feat.shape[1:])
    if math.prod(shape) == 0:
        return feat.new_zeros(shape)
    if use_kernel("spmm", feat.device, kernels=("spmm",)):
        scaling = Scaling(src_scale, dst_scale, mean)
        return sum_forward(struct, packed(feat), _packed(weight), scaling)
    return reference.spmm(
        struct,
        _by_head(feat, num_heads_of(weight)),
        weight,
        reduce="mean" if mean else "sum",
        src_scale=src_scale,
        dst_scale=dst_scale,
    ).reshape(shape)


@_spmm.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (feat, *_) = _split(arguments)
    return feat.new_empty((edges.num_dst, *feat.shape[1:]))


def _spmm_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (feat, weight, src_scale, dst_scale, ctx.mean) = _split(inputs)
    needs_feat = weight is not None and ctx.needs_input_grad[NUM_EDGE_ARGUMENTS + 1]
    _save(ctx, edges, feat if needs_feat else None, weight, src_scale, dst_scale)


def _spmm_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (feat, weight, src_scale, dst_scale) = _saved(ctx)
    needs_feat, needs_weight = ctx.needs_input_grad[NUM_EDGE_ARGUMENTS:][:2]
    grad_feat = grad_weight = None
    if needs_feat:
        scale = _reverse_scale(edges, dst_scale, ctx.mean, grad_out.dtype)
        grad_feat = _spmm(*edges.reverse(), grad_out, weight, scale, src_scale, False)
    if needs_weight:
        heads = num_heads_of(weight)
        grad_weight = _u_dot_v(*edges, feat, grad_out, src_scale, dst_scale, ctx.mean, heads)
        grad_weight = grad_weight.reshape(weight.shape)
    return *NO_EDGE_GRADIENTS, grad_feat, grad_weight, None, None, None


def _reverse_scale(
    edges: EdgeTensors, dst_scale: Tensor | None, mean: bool, dtype: torch.dtype
) -> Tensor | None:
    """As in ``Scaling.reverse``: a mean is a factor of the source of the reverse graph."""
    if not mean:
        return dst_scale
    per_degree = _degree_scale(*edges, "dst", -1.0, accumulator(dtype))
    return per_degree if dst_scale is None else dst_scale * per_degree


_spmm.register_autograd(_spmm_backward, setup_context=_spmm_setup)


@_op(
    "u_dot_v",
    "Tensor feat_src, Tensor feat_dst, Tensor? src_scale, Tensor? dst_scale, bool mean, "
    "SymInt num_heads) -> Tensor",
)
def _u_dot_v(*arguments: Any) -> Tensor:
    edges, (feat_src, feat_dst, src_scale, dst_scale, mean, num_heads) = _split(arguments)
    struct = find(edges)
    if num_heads * struct.num_edges == 0:
        return feat_src.new_zeros((struct.num_edges, num_heads))
    if use_kernel("u_dot_v", feat_src.device, kernels=("sddmm",)):
        scaling = Scaling(src_scale, dst_scale, mean)
        return dot_forward(struct, packed(feat_src), packed(feat_dst), scaling, num_heads)
    dst_scale = _reverse_scale(edges, dst_scale, mean, feat_dst.dtype)
    operands = [
        _by_head(feat if scale is None else feat * per_row(scale, feat), num_heads)
        for feat, scale in ((feat_src, src_scale), (feat_dst, dst_scale))
    ]
    return reference.u_dot_v(struct, *operands).to(feat_src.dtype)


@_u_dot_v.register_fake
def _(*arguments: Any) -> Tensor:
    edges, (feat_src, *_, num_heads) = _split(arguments)
    return feat_src.new_empty((edges.indices.shape[0], num_heads))


def _u_dot_v_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    edges, (feat_src, feat_dst, src_scale, dst_scale, ctx.mean, _) = _split(inputs)
    _save(ctx, edges, feat_src, feat_dst, src_scale, dst_scale)


def _u_dot_v_backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
    edges, (feat_src, feat_dst, src_scale, dst_scale) = _saved(ctx)
    needs_src, needs_dst = ctx.needs_input_grad[NUM_EDGE_ARGUMENTS:][:2]
    grad_src = grad_dst = None
    if needs_src:
        scale = _reverse_scale(edges, dst_scale, ctx.mean, grad_out.dtype)
        grad_src = _spmm(*edges.reverse(), feat_dst, grad_out, scale, src_scale, False)
    if needs_dst:
        grad_dst = _spmm(*edges, feat_src, grad_out, src_scale, dst_scale, ctx.mean)
    return *NO_EDGE_GRADIENTS, grad_src, grad_dst, None, None, None, None


_u_dot_v.register_autograd(_u_dot_v_backward, setup_context=_u_dot_v_setup)


@_op("edge_softmax", "Tensor score) -> (Tensor, Tensor)")
def _edge_softmax(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (score,) = _split(arguments)
    struct = find(edges)
    row_state = score.new_zeros((struct.num_dst, score.shape[1], 2), dtype=accumulator(score.dtype))
    if score.numel() == 0:
        return score.clone(), row_state
    if use_kernel("edge_softmax", score.device, kernels=("edge_softmax_forward",)):
        return softmax_forward(struct, packed(score))
    return reference.edge_softmax(struct, score), row_state


@_edge_softmax.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (score,) = _split(arguments)
    state = score.new_empty((edges.num_dst, score.shape[1], 2), dtype=accumulator(score.dtype))
    return torch.empty_like(score, memory_format=torch.contiguous_format), state


@_op("edge_softmax_backward", "Tensor score, Tensor row_state, Tensor grad_out) -> Tensor")
def _softmax_gradient(*arguments: Any) -> Tensor:
    edges, (score, row_state, grad_out) = _split(arguments)
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
    _, (score, *_) = _split(arguments)
    return torch.empty_like(score, memory_format=torch.contiguous_format)


def _softmax_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, (score,) = _split(inputs)
    ctx.mark_non_differentiable(output[1])
    _save(ctx, edges, score, output[1])


def _softmax_backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Any, ...]:
    edges, (score, row_state) = _saved(ctx)
    return *NO_EDGE_GRADIENTS, _softmax_gradient(*edges, score, row_state, grad_out)


_edge_softmax.register_autograd(_softmax_backward, setup_context=_softmax_setup)


@_op("gatv2", "Tensor feat_src, Tensor feat_dst, Tensor attn, float slope) -> (Tensor, Tensor)")
def _gatv2(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (feat_src, feat_dst, attn, slope) = _split(arguments)
    use_kernel("gatv2", feat_src.device, kernels=("gatv2_forward",))
    operands = packed(feat_src), packed(feat_dst), packed(attn)
    return attention_forward(find(edges), *operands, slope)


@_gatv2.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor]:
    edges, (feat_src, *_) = _split(arguments)
    out = feat_src.new_empty((edges.num_dst, *feat_src.shape[1:]))
    lse_shape = (edges.num_dst, feat_src.shape[1])
    return out, feat_src.new_empty(lse_shape, dtype=accumulator(feat_src.dtype))


@_op(
    "gatv2_backward",
    "Tensor feat_src, Tensor feat_dst, Tensor attn, Tensor lse, Tensor grad_out, float slope) "
    "-> (Tensor, Tensor, Tensor)",
)
def _gatv2_gradients(*arguments: Any) -> tuple[Tensor, ...]:
    edges, (feat_src, feat_dst, attn, lse, grad_out, slope) = _split(arguments)
    operands = packed(feat_src), packed(feat_dst), packed(attn), lse, packed(grad_out)
    grads = attention_backward(find(edges), *operands, slope)
    return tuple(grad for grad in grads if grad is not None)  # all three are wanted


@_gatv2_gradients.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    _, operands = _split(arguments)
    return tuple(
        torch.empty_like(operand, memory_format=torch.contiguous_format) for operand in operands[:3]
    )


def _gatv2_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    edges, (feat_src, feat_dst, attn, ctx.slope) = _split(inputs)
    ctx.mark_non_differentiable(output[1])
    _save(ctx, edges, feat_src, feat_dst, attn, output[1])


def _gatv2_backward(ctx: Any, grad_out: Tensor, _: Any) -> tuple[Any, ...]:
    edges, operands = _saved(ctx)
    return *NO_EDGE_GRADIENTS, *_gatv2_gradients(*edges, *operands, grad_out, ctx.slope), None


_gatv2.register_autograd(_gatv2_backward, setup_context=_gatv2_setup)


def spmm(struct: GraphStructure, feat: Tensor, weight: Tensor | None, scaling: Scaling) -> Tensor:
    """Weighted sum of rows (N, *) with weights (E,) or (E, H)."""
    return _spmm(*edge_tensors(struct), feat, weight, scaling.src, scaling.dst, scaling.mean)


def u_dot_v(struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor) -> Tensor:
    """Dot products (E, H) of rows (N, H, D)."""
    return _u_dot_v(*edge_tensors(struct), feat_src, feat_dst, None, None, False, feat_src.shape[1])


def edge_softmax(struct: GraphStructure, score: Tensor) -> Tensor:
    """Softmax of scores (E, H)."""
    return _edge_softmax(*edge_tensors(struct), score)[0]


def gatv2(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, attn: Tensor, slope: float
) -> Tensor:
    """Attention over rows (N, H, D)."""
    return _gatv2(*edge_tensors(struct), feat_src, feat_dst, attn, slope)[0]
