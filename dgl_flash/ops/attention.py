"""Attention as an op: one autograd function for all kinds, and the way without a kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from dgl_flash.kernels.jit import accumulator
from dgl_flash.ops import attention_kernels as kernels
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.edge_softmax import edge_softmax
from dgl_flash.ops.edge_terms import NO_TERMS, EdgeTerms, by_head, draw_seed, edge_mask
from dgl_flash.ops.rows import packed
from dgl_flash.ops.spmm import spmm
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

MAX_HEAD_DIM = 512
Attended = Tensor | tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Attention:
    """One kind of attention, with three operands and a number.

    Attributes
    ----------
    kernels : attention_kernels.Kernels
        Its fused passes.
    scores : callable
        From (struct, operands in the dtype of the arithmetic, number, bias, whether that is a
        factor) to what the softmax is taken of, (E, H).
    reference : callable
        Its twin in ``dgl_flash.reference``.
    """

    kernels: kernels.Kernels
    scores: Callable[..., Tensor]
    reference: Callable[..., Attended]

    @property
    def name(self) -> str:
        """Name of the op."""
        return self.kernels.name


class AttentionFunction(Function):
    """Saves the inputs, one log-sum-exp a row and head, and the attention if that was asked for."""

    @staticmethod
    def forward(
        ctx: Any,
        kind: Attention,
        struct: GraphStructure,
        number: float,
        rest: EdgeTerms,
        want_attention: bool,
        bias: Tensor | None,
        weight: Tensor | None,
        *operands: Tensor,
    ) -> Any:
        """Run the fused forward; ``rest`` is what edges bring besides bias and weight."""
        terms = _with(rest, bias, weight).packed(operands[0].dtype)
        inputs = tuple(packed(operand) for operand in operands)
        out, lse = kernels.forward(kind.kernels, struct, inputs, number, terms)
        attention = None
        if want_attention:
            attention = kernels.attention(kind.kernels, struct, inputs, number, terms, lse)
        ctx.save_for_backward(*operands, bias, weight, lse)
        ctx.kind, ctx.struct, ctx.number, ctx.rest = kind, struct, number, rest
        ctx.set_materialize_grads(False)
        return out if attention is None else (out, attention)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Run both fused passes, or differentiate the reference when a graph of it is wanted."""
        *operands, bias, weight, lse = ctx.saved_tensors
        wanted = ctx.needs_input_grad[5:]
        grad_out, grad_attention = grads if len(grads) == 2 else (grads[0], None)
        unneeded = (None,) * 5  # kind, struct, number, rest, want_attention
        if grad_out is None and grad_attention is None:
            return (*unneeded, *(None,) * len(wanted))
        if torch.is_grad_enabled():
            found = _differentiable(ctx, operands, bias, weight, (grad_out, grad_attention))
            return (*unneeded, *found)
        values = operands[ctx.kind.kernels.values]
        if grad_out is None:
            grad_out = values.new_zeros((ctx.struct.num_dst, *values.shape[1:]))
            if not ctx.kind.kernels.scores_read_values:
                at = 2 + ctx.kind.kernels.values
                wanted = (*wanted[:at], False, *wanted[at + 1 :])
        found = kernels.backward(
            ctx.kind.kernels,
            ctx.struct,
            tuple(packed(operand) for operand in operands),
            ctx.number,
            _with(ctx.rest, bias, weight).packed(values.dtype),
            lse,
            packed(grad_out, values.dtype),
            None if grad_attention is None else packed(grad_attention, values.dtype),
            wanted,
        )
        return (
            *unneeded,
            by_head(found[0], bias),  # bias
            by_head(found[1], weight),  # weight
            *found[2:],  # operands
        )


def _with(rest: EdgeTerms, bias: Tensor | None, weight: Tensor | None) -> EdgeTerms:
    if bias is None and weight is None:
        return rest
    return dataclasses.replace(rest, bias=bias, weight=weight)


def _differentiable(
    ctx: Any,
    operands: list[Tensor],
    bias: Tensor | None,
    weight: Tensor | None,
    grads: tuple[Tensor | None, Tensor | None],
) -> list[Tensor | None]:
    """Gradients that can be differentiated again."""
    rest, wanted = ctx.rest, ctx.needs_input_grad[5:]
    # Aliases, so that one tensor passed twice still gets two gradients.
    inputs = [t if t is None else t.view_as(t) for t in (bias, weight, *operands)]
    keep = None
    if rest.seed is not None:
        values = operands[ctx.kind.kernels.values]
        dtype = accumulator(values.dtype)
        keep = edge_mask(ctx.struct, values.shape[1], dtype, rest.drop, rest.seed)
    more = {"bias_op": "mul"} if rest.multiply else {}
    outputs = ctx.kind.reference(
        ctx.struct,
        *inputs[2:],
        ctx.number,
        edge_bias=inputs[0],
        edge_weight=inputs[1],
        keep=keep,
        return_attention=True,
        **more,
    )
    outputs = outputs[0], outputs[1].squeeze(-1)
    used = [(out, grad) for out, grad in zip(outputs, grads, strict=True) if grad is not None]
    chosen = [t for t, want in zip(inputs, wanted, strict=True) if want and t is not None]
    found = iter(
        torch.autograd.grad(
            [out for out, _ in used],
            chosen,
            [grad for _, grad in used],
            create_graph=True,
            allow_unused=True,
        )
    )
    return [next(found) if want else None for want in wanted]


def composed(
    kind: Attention,
    struct: GraphStructure,
    operands: tuple[Tensor, ...],
    number: float,
    terms: EdgeTerms,
) -> tuple[Tensor, Tensor]:
    """Output and attention (E, H), from the other ops; what lies between has (E, H) numbers."""
    values = operands[kind.kernels.values]
    dtype = accumulator(values.dtype)  # of all that lies between the op's operands and results
    with torch.autocast(values.device.type, enabled=False):  # the operands are cast already
        wide = tuple(operand.to(dtype) for operand in operands)
        bias = None if terms.bias is None else terms.bias.to(dtype)
        scores = kind.scores(struct, wide, number, bias, terms.multiply)
        attention = F.dropout(edge_softmax(struct, scores), terms.drop)
        if terms.weight is not None:
            attention = attention * terms.weight.to(dtype)
        out = spmm(struct, wide[kind.kernels.values], attention).to(values.dtype)
    return out, attention.to(values.dtype)


def attend(
    kind: Attention,
    struct: GraphStructure,
    operands: tuple[Tensor, ...],
    number: float,
    terms: EdgeTerms,
    return_attention: bool,
) -> Attended:
    """Run what fits the device and the widths.

    Parameters
    ----------
    kind : Attention
        Which op.
    struct : GraphStructure
        The graph, on the device of the operands.
    operands : tuple of Tensor
        Checked.
    number : float
        Slope or scale.
    terms : EdgeTerms
        Checked, without a seed.
    return_attention : bool
        Also return the attention (E, H, 1).

    Returns
    -------
    Tensor or (Tensor, Tensor)
        (N_dst, H, D) and perhaps (E, H, 1).
    """
    values = operands[kind.kernels.values]
    blockers = []
    num_heads, head_dim = values.shape[1:]
    if not 1 <= head_dim <= MAX_HEAD_DIM or num_heads < 1:
        blockers.append(
            f"the kernel takes 1 <= D <= {MAX_HEAD_DIM}, got H={num_heads}, D={head_dim}"
        )
    device = values.device
    if is_tracing():
        from dgl_flash.ops import traced_attention

        if not blockers and traced_attention.kernels_run(device):
            return traced_attention.attend(kind, struct, operands, number, terms, return_attention)
    elif use_kernel(kind.name, device, kernels=kind.kernels.forward_entries, blockers=blockers):
        rest = terms
        if terms is not NO_TERMS:
            seed = draw_seed(device) if terms.drop > 0 else None
            rest = EdgeTerms(drop=terms.drop, seed=seed, multiply=terms.multiply)
        found = AttentionFunction.apply(
            kind, struct, number, rest, return_attention, terms.bias, terms.weight, *operands
        )
        return (found[0], found[1].unsqueeze(-1)) if return_attention else found
    out, attention = composed(kind, struct, operands, number, terms)
    return (out, attention.unsqueeze(-1)) if return_attention else out
