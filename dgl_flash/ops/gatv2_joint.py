"""GATv2 attention over several relations, each with an attention vector of its own, in one launch.

The relations lie in one structure (``dgl_flash.structure.joint``) so that a block of a kernel sees
the rows of one of them only. What blocks leave of the gradient of the vectors is added up relation
by relation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import empty
from dgl_flash.ops import attention_kernels as kernels
from dgl_flash.ops import check
from dgl_flash.ops.attention import MAX_HEAD_DIM, attend
from dgl_flash.ops.dispatch import kernels_run, use_kernel
from dgl_flash.ops.edge_terms import NO_TERMS
from dgl_flash.ops.gatv2 import KERNELS, KIND
from dgl_flash.ops.rows import MOST_ROWS_PER_SLOT, choose_rows_per_slot, packed, processors
from dgl_flash.ops.segment import segment_reduce
from dgl_flash.structure import Adjacency
from dgl_flash.structure.joint import ROWS, Joint, Side, padded

# Rows are not cut here: longer ones take so long that single launches, which cut them, win.
LONGEST_ROW = 4096


class _Pass(NamedTuple):
    """A kernel's layout, and which relation each of its blocks belongs to."""

    layout: Layout
    owners: Tensor  # (blocks)
    blocks: Tensor  # (R), on the CPU, blocks of each relation as they lie
    places: Tensor  # (R), where each relation lies


def _plan(joint: Joint, which: str, feat: Tensor) -> _Pass:
    _, heads, width = feat.shape
    key = (which, heads, width, feat.element_size())
    found = joint.plans.get(key)
    if found is None:
        by_src = which == "backward_src"
        adj = joint.struct.out_adj if by_src else joint.struct.in_adj
        with torch.inference_mode(False):
            found = _fit(joint.src if by_src else joint.dst, adj, key)
        joint.plans[key] = found
    return found


def _fit(side: Side, adj: Adjacency, key: tuple[str, int, int, int]) -> _Pass:
    which, heads, width, itemsize = key
    chosen = KERNELS.choose_layout(which, adj, heads, width, itemsize)
    slots = chosen.slots_per_block
    most = choose_rows_per_slot(adj.num_rows, slots, processors(adj.device.index))
    rows = max(r for r in (1, 2, MOST_ROWS_PER_SLOT) if r <= most and r * slots <= ROWS)
    layout = replace(chosen, rows_per_slot=rows, chunk=LONGEST_ROW)
    order = torch.tensor(side.order)
    blocks = torch.tensor(side.blocks(rows * slots))
    owners = order.repeat_interleave(blocks).to(adj.device)
    return _Pass(layout, owners, blocks, order.argsort().to(adj.device))


def can_join(joint: Joint) -> bool:
    """Whether no row is so long that it should be cut."""
    struct = joint.struct
    return max(struct.in_adj.max_degree, struct.out_adj.max_degree) <= LONGEST_ROW


class JointFunction(Function):
    """Saves the inputs and one log-sum-exp a row and head."""

    @staticmethod
    def forward(
        ctx: Any, joint: Joint, slope: float, feat_src: Tensor, feat_dst: Tensor, attn: Tensor
    ) -> Tensor:
        """Run the fused forward."""
        plan = _plan(joint, "forward", feat_src)
        rows = attn.index_select(0, plan.owners)
        operands = packed(feat_src), packed(feat_dst), rows
        given = KERNELS, joint.struct, operands, slope, NO_TERMS
        out, lse = kernels.forward(*given, plan.layout)
        ctx.save_for_backward(feat_src, feat_dst, attn, lse)
        ctx.joint, ctx.slope = joint, slope
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Run both fused passes, or differentiate the reference when a graph of it is wanted."""
        *operands, lse = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = [operand.view_as(operand) for operand in operands]
            result = _one_by_one(ctx.joint, ctx.slope, again, as_reference=True)
            grads = torch.autograd.grad(result, again, grad_out, create_graph=True)
        else:
            grads = _backward(ctx.joint, ctx.slope, operands, lse, grad_out)
        return (
            None,  # joint
            None,  # slope
            *grads,
        )


def _backward(
    joint: Joint, slope: float, operands: list[Tensor], lse: Tensor, grad_out: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    feat_src, feat_dst, attn = (packed(operand) for operand in operands)
    grad_out = packed(grad_out, feat_src.dtype)
    dtype, device, acc_dtype = feat_src.dtype, feat_src.device, lse.dtype
    sizes = tuple(feat_src.shape[1:])
    flags = {**NO_TERMS.flags(joint.struct.in_adj), "GRAD_ATTENTION": 0}
    row_state = empty((joint.dst.num_rows, sizes[0], 2), acc_dtype, device)
    grad_dst = empty(tuple(feat_dst.shape), dtype, device)
    grad_src = empty(tuple(feat_src.shape), dtype, device)
    of_vectors = []
    for which in ("backward_dst", "backward_src"):
        by_src = which == "backward_src"
        adj = joint.struct.out_adj if by_src else joint.struct.in_adj
        plan = _plan(joint, which, feat_src)
        given = feat_src, feat_dst, attn.index_select(0, plan.owners)
        kernel = KERNELS.backward_src if by_src else KERNELS.backward_dst
        writes = {"GRAD_BIAS": 0, "GRAD_WEIGHT": 0} if by_src else {}
        rows = kernels.bind(kernel, KERNELS, adj, given, plan.layout, {**flags, **writes})
        shares = empty((rows.grid[0], sizes[0] * sizes[1]), acc_dtype, device)
        inputs = (*given, slope, grad_out, None, lse)
        terms = NO_TERMS.arguments(adj)
        if by_src:
            rows((*inputs, row_state, *terms), (grad_src, None, None, 0, shares))
        else:
            rows((*inputs, *terms), (grad_dst, row_state, 0, 0, shares))
        of_vectors.append(segment_reduce(plan.blocks, shares).index_select(0, plan.places))
    grad_attn = (of_vectors[0] + of_vectors[1]).to(dtype).view(attn.shape)
    return grad_src, grad_dst, grad_attn


def _one_by_one(
    joint: Joint, slope: float, operands: list[Tensor], as_reference: bool = False
) -> Tensor:
    """Relation after relation, with zeros for the rows between them."""
    feat_src, feat_dst, attn = operands
    results = []
    for relation in joint.dst.order:
        part = joint.parts[relation]
        src = feat_src.narrow(0, joint.src.starts[relation], part.num_src)
        dst = feat_dst.narrow(0, joint.dst.starts[relation], part.num_dst)
        if as_reference:
            out: Any = reference.gatv2(part, src, dst, attn[relation], slope)
        else:
            out = attend(KIND, part, (src, dst, attn[relation]), slope, NO_TERMS, False)
        rest = padded(part.num_dst) - part.num_dst
        results.append(torch.nn.functional.pad(out, (0, 0, 0, 0, 0, rest)))
    return torch.cat(results)


def gatv2_joint(
    joint: Joint, feat_src: Tensor, feat_dst: Tensor, attn: Tensor, negative_slope: float
) -> Tensor:
    """Attend over all relations of a joint structure.

    Parameters
    ----------
    joint : Joint
        R relations.
    feat_src, feat_dst : Tensor
        (joint.src.num_rows, H, D) and (joint.dst.num_rows, H, D), nodes as they lie there.
    attn : Tensor
        (R, H, D)
    negative_slope : float
        Of the leaky ReLU.

    Returns
    -------
    Tensor
        (joint.dst.num_rows, H, D); zero for nodes without in-edges, and for the rows that pad.
    """
    feat_src, feat_dst, attn = check.autocast(feat_src, feat_dst, attn)
    device, (num_heads, head_dim) = feat_src.device, feat_src.shape[1:]
    if kernels_run(device) and num_heads > 0 and 0 < head_dim <= MAX_HEAD_DIM:
        use_kernel("gatv2", device, kernels=KERNELS.forward_entries)
        return JointFunction.apply(joint, negative_slope, feat_src, feat_dst, attn)
    return _one_by_one(joint, negative_slope, [feat_src, feat_dst, attn])
