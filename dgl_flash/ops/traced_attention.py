"""Attention as ``torch.compile`` sees it: one node of the traced graph for each direction.

The op wraps the eager passes of all kinds in ``torch.library``, so that a compiled model runs the
same kernels. Import this where ``is_tracing()`` holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.kernels.availability import why_unavailable
from dgl_flash.kernels.jit import accumulator
from dgl_flash.ops import attention_kernels as kernels
from dgl_flash.ops.attention import Attended, Attention
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.dot_attention import KERNELS as DOT_ATTENTION
from dgl_flash.ops.edge_terms import EdgeTerms, by_head, draw_seed
from dgl_flash.ops.gat import KERNELS as GAT
from dgl_flash.ops.gatv2 import KERNELS as GATV2
from dgl_flash.ops.rows import packed
from dgl_flash.ops.tracing import NO_EDGE_GRADIENTS, declare, save, saved, split
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.traced import edge_tensors, find

KINDS = {kind.name: kind for kind in (DOT_ATTENTION, GAT, GATV2)}
GIVEN = (
    "str kind, float number, float drop, bool multiply, Tensor? seed, Tensor? bias, "
    "Tensor? weight, Tensor first, Tensor second, Tensor third"
)
NUM_CONSTANTS = 5  # of these, before bias, weight and operands


@torch.compiler.assume_constant_result
def kernels_run(device: torch.device) -> bool:
    """Whether kernels run on a device, decided while tracing."""
    return why_unavailable(device) is None


def _terms(given: tuple[Any, ...], dtype: torch.dtype) -> EdgeTerms:
    _, _, drop, multiply, seed, bias, weight, *_ = given
    return EdgeTerms(bias, weight, drop, seed, multiply).packed(dtype)


@declare("attention", f"{GIVEN}, bool want_attention) -> (Tensor, Tensor, Tensor)")
def _attention(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    edges, (*given, want_attention) = split(arguments)
    kind, number, operands = KINDS[given[0]], given[1], tuple(packed(t) for t in given[7:])
    struct, values = find(edges), operands[kind.values]
    use_kernel(kind.name, values.device, kernels=kind.forward_entries)
    terms = _terms(tuple(given), values.dtype)
    out, lse = kernels.forward(kind, struct, operands, number, terms)
    if want_attention:
        return out, lse, kernels.attention(kind, struct, operands, number, terms, lse)
    return out, lse, values.new_empty((0, values.shape[1]))


@_attention.register_fake
def _(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    edges, (*given, want_attention) = split(arguments)
    values = given[7 + KINDS[given[0]].values]
    _, num_heads, head_dim = values.shape
    lse = values.new_empty((edges.num_dst, num_heads), dtype=accumulator(values.dtype))
    num_rows = edges.indices.shape[0] if want_attention else 0
    out = values.new_empty((edges.num_dst, num_heads, head_dim))
    return out, lse, values.new_empty((num_rows, num_heads))


@declare(
    "attention_backward",
    f"{GIVEN}, Tensor lse, Tensor grad_out, Tensor? grad_attention, bool[] wanted) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def _gradients(*arguments: Any) -> tuple[Tensor, ...]:
    edges, (*given, lse, grad_out, grad_attention, wanted) = split(arguments)
    kind, operands = KINDS[given[0]], tuple(packed(t) for t in given[7:])
    dtype = grad_out.dtype
    terms = _terms(tuple(given), dtype)
    found = kernels.backward(
        kind,
        find(edges),
        operands,
        given[1],
        terms,
        lse,
        packed(grad_out),
        None if grad_attention is None else packed(grad_attention, dtype),
        wanted,
    )
    found[:2] = by_head(found[0], terms.bias), by_head(found[1], terms.weight)
    return tuple(grad_out.new_empty(0) if grad is None else grad for grad in found)


@_gradients.register_fake
def _(*arguments: Any) -> tuple[Tensor, ...]:
    _, (*given, _lse, grad_out, _grad_attention, wanted) = split(arguments)
    return tuple(
        torch.empty_like(value, memory_format=torch.contiguous_format)
        if want
        else grad_out.new_empty(0)
        for value, want in zip(given[NUM_CONSTANTS:], wanted, strict=True)
    )


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    edges, (*given, ctx.want_attention) = split(inputs)
    ctx.constants = given[: NUM_CONSTANTS - 1]
    ctx.mark_non_differentiable(output[1])
    save(ctx, edges, *given[NUM_CONSTANTS - 1 :], output[1])


def _backward(ctx: Any, grad_out: Tensor, _: Any, grad_attention: Tensor) -> tuple[Any, ...]:
    edges, (*tensors, lse) = saved(ctx)
    wanted = list(ctx.needs_input_grad[-6:-1])
    by_edge = grad_attention if ctx.want_attention else None
    grads = _gradients(*edges, *ctx.constants, *tensors, lse, grad_out, by_edge, wanted)
    used = [grad if want else None for grad, want in zip(grads, wanted, strict=True)]
    return *NO_EDGE_GRADIENTS, *(None,) * NUM_CONSTANTS, *used, None


_attention.register_autograd(_backward, setup_context=_setup)


def attend(
    kind: Attention,
    struct: GraphStructure,
    operands: tuple[Tensor, ...],
    number: float,
    terms: EdgeTerms,
    return_attention: bool,
) -> Attended:
    """Attention as an op; arguments as in :func:`dgl_flash.ops.attention.attend`."""
    seed = draw_seed(operands[0].device) if terms.drop > 0 else None
    constants = kind.name, number, terms.drop, terms.multiply
    given = *constants, seed, terms.bias, terms.weight, *operands
    out, _, attention = _attention(*edge_tensors(struct), *given, return_attention)
    return (out, attention.unsqueeze(-1)) if return_attention else out
