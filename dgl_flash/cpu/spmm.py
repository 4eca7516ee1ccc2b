"""The weighted sum over in-edges."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.cpu.bags import bags, sum_bags
from dgl_flash.cpu.chunks import gather_rows, row_pieces
from dgl_flash.cpu.csr import csr_product
from dgl_flash.reference.rows import accumulation_dtype

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, GraphStructure

WIDE_HEAD = 32  # numbers; the parts of narrower heads are summed faster after they are copied


def sum_rows(
    struct: GraphStructure,
    feat: Tensor,
    weight: Tensor | None,
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    mean: bool = False,
    on_edges: bool = False,
) -> Tensor:
    r"""Sum the rows of the sources, or of the edges, over the in-edges of each destination.

    .. math::
        out_{v,h,d} = b_v \sum_{e = (u \to v)} a_u \, w_{e,h} \, x_{u,h,d}

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat : Tensor
        (N_src, \*), or (E, \*) in edge-id order.
    weight : Tensor or None
        (E,), (E, H) for the H parts of a row, or (E, F) for each of its F numbers.
    src_scale, dst_scale : Tensor or None
        :math:`a` and :math:`b`.
    mean : bool
        Divide by the number of in-edges.
    on_edges : bool
        Whether the rows are those of the edges.

    Returns
    -------
    Tensor
        (N_dst, \*), dtype of ``feat``.
    """
    adj = struct.in_adj
    shape = (struct.num_dst, *feat.shape[1:])
    width = math.prod(feat.shape[1:])
    if adj.num_edges == 0 or math.prod(shape) == 0:
        return feat.new_zeros(shape)
    # The sum over a hub's rows of one number would lose digits, and costs nothing to make exact.
    dtype = torch.float64 if width == 1 else accumulation_dtype(feat.dtype)
    rows = feat.reshape(-1, width).to(dtype)
    if src_scale is not None:
        rows = rows * src_scale.to(dtype).unsqueeze(1)
    if weight is not None:
        weight = weight.reshape(adj.num_edges, -1).to(dtype)
    if weight is not None and weight.shape[1] == width > 1:
        out = _by_elements(adj, rows, weight, on_edges)
    else:
        out = _by_heads(adj, rows, weight, on_edges)
    if mean:
        out /= struct.in_degrees().clamp(min=1).to(dtype).unsqueeze(1)
    if dst_scale is not None:
        out *= dst_scale.to(dtype).unsqueeze(1)
    return out.reshape(shape).to(feat.dtype)


def _by_heads(adj: Adjacency, rows: Tensor, weight: Tensor | None, on_edges: bool) -> Tensor:
    if weight is None:
        return _sums(adj, on_edges, rows, None)
    if adj.eids is not None:
        weight = weight.index_select(0, adj.eids)
    if weight.shape[1] == 1:
        return _sums(adj, on_edges, rows, weight[:, 0].contiguous())
    by_head = rows.reshape(rows.shape[0], weight.shape[1], -1)
    if by_head.shape[2] >= WIDE_HEAD:
        return bags(adj, on_edges).sum(rows, weight)
    sums = [
        _sums(adj, on_edges, by_head[:, head].contiguous(), weight[:, head].contiguous())
        for head in range(weight.shape[1])
    ]
    return torch.stack(sums, dim=1).flatten(1)


def _sums(adj: Adjacency, on_edges: bool, rows: Tensor, weight: Tensor | None) -> Tensor:
    """Sum the rows of neighbours or edges over the adjacency's rows; one weight a position."""
    if rows.dtype == torch.float32:
        return bags(adj, on_edges).sum(rows, weight)
    columns = adj.eids if on_edges else adj.indices
    if columns is None:
        columns = torch.arange(adj.num_edges, dtype=adj.index_dtype)
    return csr_product(columns, rows, adj.indptr, weight)


def _by_elements(adj: Adjacency, rows: Tensor, weight: Tensor, on_edges: bool) -> Tensor:
    """Products of a piece of the edges at a time, then their sums."""
    columns = adj.eids if on_edges else adj.indices
    out = rows.new_empty((adj.num_rows, rows.shape[1]))
    for piece in row_pieces(adj.indptr, rows.shape[1], rows.element_size()):
        at = piece.positions
        factors = weight[at] if adj.eids is None else gather_rows(weight, adj.eids[at])
        if columns is None:
            terms = rows[at] * factors
        else:
            terms = gather_rows(rows, columns[at]).mul_(factors)
        order = torch.arange(terms.shape[0], dtype=piece.offsets.dtype)
        sums = sum_bags(order, terms, piece.offsets, None)
        if piece.goes_on:
            sums[0] += out[piece.rows.start]
        out[piece.rows] = sums
    return out
