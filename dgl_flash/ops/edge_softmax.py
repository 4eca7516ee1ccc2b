"""Softmax of edge scores over the edges that share an end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import cpu, reference
from dgl_flash.errors import dgl_error
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.memory import Scratch, empty
from dgl_flash.ops import check
from dgl_flash.ops.choose import edge_softmax_layout
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.gradients import EAGER, NO_SCALING
from dgl_flash.ops.rows import RowKernel, packed
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from collections.abc import Mapping

ALL = "__ALL__"  # DGL's own spelling of "every edge"


def _kernel(entry: str, pieces_only: bool = False) -> RowKernel:
    return RowKernel("edge_softmax.cu", entry, edge_softmax_layout, pieces_only=pieces_only)


FORWARD, BACKWARD = _kernel("edge_softmax_forward"), _kernel("edge_softmax_backward")
# What is left for the pieces of long rows once the statistics of their rows are known.
FORWARD_LONG = _kernel("edge_softmax_forward_long", pieces_only=True)
BACKWARD_LONG = _kernel("edge_softmax_backward_long", pieces_only=True)


def _forward(struct: GraphStructure, score: Tensor) -> tuple[Tensor, Tensor]:
    """Softmax of (E, H) scores, and the (N, H, 2) state of each row that the backward needs."""
    adj, num_heads, dtype, device = struct.in_adj, score.shape[1], score.dtype, score.device
    operands = adj, dtype, num_heads, 1
    permuted = adj.eids is not None
    rows = FORWARD.on(*operands, PERMUTED=permuted)
    out = empty(tuple(score.shape), dtype, device)
    row_state = empty((struct.num_dst, num_heads, 2), accumulator(dtype), device)
    pieces = Scratch(row_state.dtype, device, rows.num_chunks * num_heads * 2)
    (part_state,) = pieces.addresses
    rows((score, adj.eids), (out, row_state, part_state))
    if rows.num_long > 0:
        rows.merge("merge_totals", row_state.dtype, inputs=(part_state,), outputs=(row_state,))
        FORWARD_LONG.on(*operands, PERMUTED=permuted)((score, row_state, adj.eids), (out,))
    return out, row_state


def _backward(struct: GraphStructure, score: Tensor, row_state: Tensor, grad_out: Tensor) -> Tensor:
    """Gradient of (E, H) scores."""
    adj, num_heads, dtype, device = struct.in_adj, score.shape[1], score.dtype, score.device
    operands = adj, dtype, num_heads, 1
    permuted = adj.eids is not None
    rows = BACKWARD.on(*operands, PERMUTED=permuted)
    grad_score = empty(tuple(score.shape), dtype, device)
    long_rows = struct.num_dst if rows.num_long > 0 else 0
    acc_dtype = row_state.dtype
    pieces = Scratch(acc_dtype, device, rows.num_chunks * num_heads, long_rows * num_heads)
    part_inner, inner = pieces.addresses
    inputs = score, grad_out, row_state
    rows((*inputs, adj.eids), (grad_score, part_inner))
    if rows.num_long > 0:
        rows.merge("merge_sum", acc_dtype, inputs=(part_inner,), outputs=(inner,))
        long = BACKWARD_LONG.on(*operands, PERMUTED=permuted)
        long((*inputs, inner, adj.eids), (grad_score,))
    return grad_score


class EdgeSoftmaxFunction(Function):
    """Saves the scores and two numbers a row and head."""

    @staticmethod
    def forward(ctx: Any, struct: GraphStructure, score: Tensor) -> Tensor:
        """Run the kernel on (E, H) scores."""
        out, row_state = _forward(struct, packed(score))
        ctx.struct = struct
        ctx.save_for_backward(score, row_state)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Run the kernel, or differentiate the reference when a graph of it is wanted."""
        score, row_state = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = score.view_as(score)
            result = reference.edge_softmax(ctx.struct, again)
            (grad,) = torch.autograd.grad(result, again, grad_out, create_graph=True)
        else:
            grad = _backward(ctx.struct, packed(score), row_state, packed(grad_out))
        return (
            None,  # struct
            grad,  # score
        )


class CpuEdgeSoftmaxFunction(Function):
    """Saves its result only; the gradient is made of ops, which can be differentiated again."""

    @staticmethod
    def forward(ctx: Any, struct: GraphStructure, score: Tensor) -> Tensor:
        """Normalise (E, H) scores."""
        out = cpu.edge_softmax(struct, score)
        ctx.struct = struct
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Subtract each row's weighted mean of the gradient."""
        (out,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            weighted = out * grad_out
            inner = EAGER.sum(ctx.struct, weighted, None, NO_SCALING, True)
            grad = weighted - out * EAGER.map(ctx.struct, "copy", inner, None, NO_SCALING)
        else:
            grad = cpu.edge_softmax_backward(ctx.struct, out, grad_out)
        return (
            None,  # struct
            grad,  # score
        )


def _on_cpu(struct: GraphStructure, logits: Tensor) -> Tensor:
    dtype = accumulator(logits.dtype)
    score = logits.reshape(struct.num_edges, math.prod(logits.shape[1:])).to(dtype)
    return CpuEdgeSoftmaxFunction.apply(struct, score).reshape(logits.shape).to(logits.dtype)


def _softmax(struct: GraphStructure, logits: Tensor) -> Tensor:
    if is_tracing():
        from dgl_flash.ops import traced

        score = logits.reshape(struct.num_edges, math.prod(logits.shape[1:]))
        return traced.edge_softmax(struct, score).reshape(logits.shape)
    if not use_kernel("edge_softmax", logits.device, kernels=("edge_softmax_forward",)):
        softmax = _on_cpu if logits.device.type == "cpu" else reference.edge_softmax
        return softmax(struct, logits)
    if logits.numel() == 0:
        return logits.clone()
    score = logits.reshape(struct.num_edges, math.prod(logits.shape[1:]))
    return EdgeSoftmaxFunction.apply(struct, score).reshape(logits.shape)


def _check_logits(logits: Tensor, num_edges: int) -> None:
    check.tensor("edge_softmax", "logits", logits)
    if logits.dim() == 0 or logits.shape[0] != num_edges:
        raise ValueError(
            f"edge_softmax: expected `logits` of shape (E, *) = ({num_edges}, *), "
            f"got {tuple(logits.shape)}; one row an edge is needed, or pass `eids` for a subset"
        )


def _check_eids(eids: Any, struct: GraphStructure) -> Tensor:
    eids = torch.as_tensor(eids, device=struct.device)
    if eids.dtype not in (torch.int32, torch.int64) or eids.dim() != 1:
        raise TypeError(
            f"edge_softmax: expected `eids` to be a 1-D tensor of int32 or int64, "
            f"got {tuple(eids.shape)} of {eids.dtype}; pass edge ids, e.g. torch.where(mask)[0]"
        )
    if eids.numel() and not bool(((eids >= 0) & (eids < struct.num_edges)).all()):
        raise ValueError(
            f"edge_softmax: expected `eids` in [0, {struct.num_edges}), got values from "
            f"{int(eids.min())} to {int(eids.max())}; are they ids of another graph?"
        )
    return eids


def edge_softmax(graph: Any, logits: Any, eids: Any = ALL, norm_by: str = "dst") -> Any:
    r"""Normalise edge scores over the in-edges of each destination (or out-edges of each source).

    .. math::
        a_{eh} = \frac{\exp z_{eh}}{\sum_{e' \in \mathrm{in}(v)} \exp z_{e'h}}, \qquad e = (u \to v)

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph on any device. With several edge types, ``logits`` is a dict and edges of all types
        that share a node are normalised together.
    logits : torch.Tensor or dict of torch.Tensor
        :math:`z`, shape (E, \*) in edge-id order, float64, float32, float16 or bfloat16; or a dict
        from edge type to such a tensor.
    eids : torch.Tensor, optional
        Edge ids that ``logits`` belongs to; the softmax runs over these edges only. Default: all.
    norm_by : {"dst", "src"}
        Which end the edges are grouped by.

    Returns
    -------
    torch.Tensor or dict of torch.Tensor
        Shape and order of ``logits``.

    Raises
    ------
    TypeError
        When ``graph`` is no graph, ``logits`` no floating-point tensor or ``eids`` no 1-D tensor of
        int32 or int64.
    ValueError
        When ``logits`` does not have one row an edge, or an edge id is out of range.
    DGLError
        When ``norm_by`` is unknown.

    Notes
    -----
    **Fused path.** On CUDA one kernel computes the row statistics and writes the result, one more
    does the backward (rows longer than a few hundred edges are cut, merged and written by two more
    launches); no atomics, bit-equal from run to run. Second-order gradients take the reference
    path. On the CPU plain torch (``dgl_flash.cpu``) computes the same.
    """
    if norm_by not in ("dst", "src"):
        raise dgl_error(f'edge_softmax: expected `norm_by` to be "dst" or "src", got {norm_by!r}')
    if isinstance(logits, dict):
        return _hetero_softmax(graph, logits, norm_by)
    struct = structure(graph, check.device(logits), op="edge_softmax")
    (logits,) = check.autocast(logits)
    check.tensor("edge_softmax", "logits", logits)
    if not (isinstance(eids, str) and eids == ALL):
        struct = struct.edge_subgraph(_check_eids(eids, struct))
    _check_logits(logits, struct.num_edges)
    return _softmax(struct if norm_by == "dst" else struct.reverse(), logits)


def _hetero_softmax(graph: Any, logits: Mapping[Any, Tensor], norm_by: str) -> dict[Any, Tensor]:
    """Softmax over the edges of all relations that end (or start) in one node type."""
    scores = {graph.to_canonical_etype(etype): value for etype, value in logits.items()}
    end = 2 if norm_by == "dst" else 0
    result: dict[Any, Tensor] = {}
    for ntype in dict.fromkeys(etype[end] for etype in scores):
        etypes = [etype for etype in scores if etype[end] == ntype]
        nodes = []
        for etype in etypes:
            struct = structure(graph, check.device(scores[etype]), etype, op="edge_softmax")
            _check_logits(scores[etype], struct.num_edges)
            nodes.append(struct.edges()[1 if norm_by == "dst" else 0])
        groups = torch.cat(nodes)
        size = graph.num_nodes(ntype)
        joined = GraphStructure.from_coo(torch.zeros_like(groups), groups, 1, size)
        (stacked,) = check.autocast(torch.cat([scores[etype] for etype in etypes]))
        parts = _softmax(joined, stacked).split([scores[etype].shape[0] for etype in etypes])
        result.update(zip(etypes, parts, strict=True))
    return {etype: result[etype] for etype in graph.canonical_etypes if etype in result}
