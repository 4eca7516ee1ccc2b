"""Attention over several graphs that end in the same nodes, as one autograd function.

Relations of a heterograph are small and many: what a call costs on the host, and what autograd
keeps of each, take longer than the kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash.kernels.memory import empty
from dgl_flash.ops import attention_kernels as kernels
from dgl_flash.ops import check
from dgl_flash.ops.attention import MAX_HEAD_DIM, Attention, attend, differentiable
from dgl_flash.ops.dispatch import kernels_run, use_kernel
from dgl_flash.ops.edge_terms import NO_TERMS
from dgl_flash.ops.rows import packed
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

Operands = tuple[Tensor, Tensor, Tensor]


class EachFunction(Function):
    """Saves the operands, and one log-sum-exp a row and head, of each graph."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: Attention,
        structs: Sequence[GraphStructure],
        numbers: Sequence[float],
        *flat: Tensor,
    ) -> Tensor:
        """Run the fused forward of one graph after the other."""
        values = flat[kind.kernels.values]
        shape = (len(structs), structs[0].num_dst, *values.shape[1:])
        out = empty(shape, values.dtype, values.device)
        states = []
        for at, (struct, number) in enumerate(zip(structs, numbers, strict=True)):
            operands = tuple([packed(operand) for operand in flat[3 * at : 3 * at + 3]])
            given = kind.kernels, struct, operands, number, NO_TERMS
            states.append(kernels.forward(*given, out=out[at])[1])
        ctx.save_for_backward(*flat, *states)
        ctx.kind, ctx.structs, ctx.numbers = kind, structs, numbers
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Run both fused passes of each, or differentiate the reference."""
        saved = ctx.saved_tensors
        count = len(ctx.structs)
        needed = ctx.needs_input_grad[3:]
        grads: list[Tensor | None] = []
        for at, struct in enumerate(ctx.structs):
            operands = saved[3 * at : 3 * at + 3]
            wanted = (False, False, *needed[3 * at : 3 * at + 3])
            number, grad = ctx.numbers[at], grad_out[at]
            if not any(wanted):
                found: Sequence[Tensor | None] = [None] * 5
            elif torch.is_grad_enabled():
                given = ctx.kind, struct, number, NO_TERMS, wanted
                found = differentiable(*given, operands, None, None, (grad, None))
            else:
                found = kernels.backward(
                    ctx.kind.kernels,
                    struct,
                    tuple([packed(operand) for operand in operands]),
                    number,
                    NO_TERMS,
                    saved[3 * count + at],
                    packed(grad, operands[0].dtype),
                    None,
                    wanted,
                )
            grads.extend(found[2:])
        return (
            None,  # kind
            None,  # structs
            None,  # numbers
            *grads,
        )


def attend_each(
    kind: Attention,
    structs: Sequence[GraphStructure],
    operands: Sequence[Operands],
    numbers: Sequence[float],
) -> Tensor:
    """Attend over several graphs.

    Parameters
    ----------
    kind : Attention
        Which op.
    structs : sequence of GraphStructure
        R graphs with as many destinations each.
    operands : sequence of tuple of Tensor
        Those of each graph, with rows that fit it, and with the same heads, widths and dtype.
    numbers : sequence of float
        Slope or scale of each graph.

    Returns
    -------
    Tensor
        (R, N_dst, H, D)
    """
    cast = [check.autocast(*of_one) for of_one in operands]
    values = cast[0][kind.kernels.values]
    device, (num_heads, head_dim) = values.device, values.shape[1:]
    fits = kernels_run(device) and num_heads > 0 and 0 < head_dim <= MAX_HEAD_DIM
    if is_tracing() or not fits:
        calls = zip(structs, cast, numbers, strict=True)
        parts: list[Any] = [attend(kind, *given, NO_TERMS, False) for given in calls]
        return torch.stack(parts)
    use_kernel(kind.name, device, kernels=kind.kernels.forward_entries)
    flat = [operand for of_one in cast for operand in of_one]
    return EachFunction.apply(kind, structs, numbers, *flat)
