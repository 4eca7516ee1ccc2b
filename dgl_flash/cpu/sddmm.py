"""Dot products of an edge's operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import edge_chunks, gather_rows
from dgl_flash.cpu.csr import csr_matrix, quietly
from dgl_flash.cpu.edge_map import scaled
from dgl_flash.reference.rows import accumulation_dtype

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, GraphStructure


def dot_rows(
    struct: GraphStructure,
    feat: Tensor,
    feat_dst: Tensor,
    num_heads: int,
    *,
    src_scale: Tensor | None = None,
    dst_scale: Tensor | None = None,
    mean: bool = False,
    on_edges: bool = False,
) -> Tensor:
    r"""Multiply the row of a source, or of an edge, with the row of the destination, and sum.

    .. math::
        out_{e,h} = a_u \, b_v \sum_d x_{u,h,d} \, y_{v,h,d}, \qquad e = (u \to v)

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat, feat_dst : Tensor
        (N_src, \*), or (E, \*) in edge-id order; (N_dst, \*).
    num_heads : int
        Parts of a row.
    src_scale, dst_scale, mean, on_edges
        As in :func:`dgl_flash.cpu.sum_rows`.

    Returns
    -------
    Tensor
        (E, H) in edge-id order, dtype of ``feat``.
    """
    dtype = accumulation_dtype(feat.dtype)
    head_dim = math.prod(feat.shape[1:]) // max(num_heads, 1)
    out = feat.new_zeros((struct.num_edges, num_heads), dtype=dtype)
    if out.numel() == 0 or head_dim == 0:
        return out.to(feat.dtype)
    left = feat.reshape(-1, num_heads, head_dim).to(dtype)
    if src_scale is not None:
        left = left * src_scale.to(dtype).reshape(-1, 1, 1)
    right = scaled(struct, feat_dst.reshape(-1, num_heads, head_dim).to(dtype), dst_scale, mean)
    right = right.contiguous()  # as in edge_map
    adj = struct.in_adj
    if on_edges:
        _, dst = struct.edges()
        for at in edge_chunks(struct.num_edges, num_heads * head_dim, out.element_size()):
            out[at] = right.index_select(0, dst[at]).mul_(left[at]).sum(dim=-1)
    # Torch refuses patterns of more entries than a dense matrix has, which repeated edges can make.
    elif num_heads > 1 or adj.num_edges > adj.num_rows * adj.num_cols:
        _put(out, adj, _by_chunks(adj, right, left))
    else:
        _put(out, adj, _sampled_product(adj, right[:, 0], left[:, 0]).unsqueeze(1))
    return out.to(feat.dtype)


def _put(out: Tensor, adj: Adjacency, products: Tensor) -> None:
    """Bring rows from the order of the positions into that of the edge ids."""
    out[slice(None) if adj.eids is None else adj.eids.long()] = products


def _by_chunks(adj: Adjacency, rows: Tensor, columns: Tensor) -> Tensor:
    """Products of a chunk of the edges at a time: (E, H) in the order of the positions."""
    num_heads, head_dim = rows.shape[1:]
    out = rows.new_empty((adj.num_edges, num_heads))
    rows, columns = rows.flatten(1), columns.reshape(-1, num_heads * head_dim).contiguous()
    row_of = adj.rows()
    # Two operands lie in the cache.
    for at in edge_chunks(adj.num_edges, 2 * num_heads * head_dim, out.element_size()):
        terms = gather_rows(columns, adj.indices[at])
        terms *= rows.index_select(0, row_of[at])
        torch.sum(terms.view(-1, num_heads, head_dim), dim=-1, out=out[at])
    return out


def _sampled_product(adj: Adjacency, rows: Tensor, columns: Tensor) -> Tensor:
    """The entries of ``rows @ columns.T`` where there are edges, in the order of the positions."""
    zeros = rows.new_zeros(adj.num_edges)
    with quietly():
        where = csr_matrix(adj.indptr, adj.indices, zeros, adj.num_cols)
        return torch.sparse.sampled_addmm(where, rows, columns.t(), beta=0.0).values()
