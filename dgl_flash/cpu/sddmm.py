"""Dot products of an edge's operands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import edge_chunks
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
    # Torch refuses patterns of more entries than a dense matrix has, which repeated edges can make.
    if on_edges or adj.num_edges > adj.num_rows * adj.num_cols:
        src, dst = struct.edges()
        for at in edge_chunks(struct.num_edges, num_heads * head_dim, out.element_size()):
            second = left[at] if on_edges else left.index_select(0, src[at])
            out[at] = right.index_select(0, dst[at]).mul_(second).sum(dim=-1)
        return out.to(feat.dtype)
    place = slice(None) if adj.eids is None else adj.eids.long()
    for head in range(num_heads):
        out[place, head] = _sampled_product(adj, right[:, head], left[:, head])
    return out.to(feat.dtype)


def _sampled_product(adj: Adjacency, rows: Tensor, columns: Tensor) -> Tensor:
    """The entries of ``rows @ columns.T`` where there are edges, in the order of the positions."""
    zeros = rows.new_zeros(adj.num_edges)
    with quietly():
        where = csr_matrix(adj.indptr, adj.indices, zeros, adj.num_cols)
        return torch.sparse.sampled_addmm(where, rows, columns.t(), beta=0.0).values()
