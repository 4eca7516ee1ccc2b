"""Sums over typed edges, with a matrix for each type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.spmm import spmm
from dgl_flash.ops.typed_mm import PickRows, check_index, check_operands, product
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.structure import structure
from dgl_flash.structure.relations import Chunk, relations
from dgl_flash.structure.traced import is_tracing, outside_trace


def _chunk_sum(chunk: Chunk, feat: Tensor, weight: Tensor, norm: Tensor | None) -> Tensor:
    """Sums over the edges of a chunk, (N_dst, out)."""
    if norm is None or norm.dim() == 1:
        return spmm(chunk.scatter, product(spmm(chunk.gather, feat, norm), weight, chunk.layout))
    messages = product(spmm(chunk.gather, feat), weight, chunk.layout)
    # Without merging there is a pair an edge, in the order of the edges.
    return spmm(chunk.scatter, messages.unsqueeze(-1), norm.unsqueeze(-1)).squeeze(-1)


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
    over relations (:func:`spmm` again). This is done for a range of edges at a time, as many as
    there are nodes or 2^17, and done again in the backward; so memory grows with nodes x width,
    never with edges x width. No atomics: bit-equal from run to run. What is sorted stays with the
    graph and with the tensor ``etypes``: pass the same one again, and write to it with torch only,
    which leaves a trace. A GPU is waited for when a pair of both is seen for the first time. In
    ``torch.compile`` the call interrupts the traced graph.
    """
    if is_tracing():
        return _outside(graph, feat, weight, etypes, norm)
    struct = structure(graph, check.device(feat), op="relational_sum")
    feat, weight, norm = check.autocast(feat, weight, norm)
    check_operands("relational_sum", ("feat", feat, "N_src"), ("weight", weight))
    check_index("relational_sum", "etypes", etypes)
    check_edges(etypes, struct.num_edges)
    if etypes.dim() != 1:
        raise ValueError(
            f"relational_sum: expected `etypes` of shape (E,), got {tuple(etypes.shape)}"
        )
    if norm is not None:
        num_out = weight.shape[-1] * (weight.shape[1] if weight.dim() == 4 else 1)
        norm = _check_norm(norm, feat, struct.num_edges, num_out)
    found = relations(struct, etypes, weight.shape[0], merge=norm is None or norm.dim() == 1)
    return _sum(found.chunks, found.order, feat, weight, norm)


# Sorting depends on values, and a compiler has nothing to add to kernels and batched products.
_outside = outside_trace(relational_sum)


def _sum(
    chunks: tuple[Chunk, ...], order: Tensor, feat: Tensor, weight: Tensor, norm: Tensor | None
) -> Tensor:
    norms: Any = [None] * len(chunks)
    if norm is not None:
        norms = PickRows.apply(norm, order).split([chunk.gather.num_edges for chunk in chunks])
    if len(chunks) == 1:
        return _chunk_sum(chunks[0], feat, weight, norms[0])
    wide = accumulation_dtype(feat.dtype)
    total: Any = 0
    for chunk, part in zip(chunks, norms, strict=True):
        if torch.is_grad_enabled():
            rows = checkpoint(
                _chunk_sum,
                chunk,
                feat,
                weight,
                part,
                use_reentrant=False,
                preserve_rng_state=False,
            )
        else:
            rows = _chunk_sum(chunk, feat, weight, part)
        total = total + rows.to(wide)
    return total.to(feat.dtype)
