"""SparseMHA: multi-head attention among the neighbours of a graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, expand_as_pair, read_graph
from dgl_flash.structure import graph as build_graph


class SparseMHA(nn.Module):
    r"""Multi-head attention of every node to its in-neighbours.

    .. math::
        \alpha_{uv} = \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            \frac{\langle Q h_v, K h_u \rangle}{\sqrt{D}} + b_{uv} \right), \qquad
        h'_v = O \sum_{u \in \mathcal{N}(v)} \alpha_{uv} \, V h_u

    with softmax and sum in each of :math:`H` heads of :math:`D = \mathrm{hidden\_size} / H`
    features. All four maps have a bias.

    ``dgl.nn`` has no such layer. This one takes the place of the class of the same name that users
    of DGL's tutorial on sparse graph transformers write for themselves, and loads its checkpoints:
    parameters have the same names, and feature :math:`i` of a projection belongs to head
    :math:`i \bmod H`.

    Parameters
    ----------
    hidden_size : int
        Input and output width. Default 80.
    num_heads : int
        Number of heads, :math:`H`, which has to divide ``hidden_size``. Default 8.
    attn_drop : float
        Dropout on the attention weights. Default 0.

    Attributes
    ----------
    q_proj, k_proj, v_proj, out_proj : Linear
        :math:`Q, K, V, O`, (hidden_size, hidden_size) each.

    Raises
    ------
    ValueError
        If ``num_heads`` does not divide ``hidden_size``.

    Notes
    -----
    Source: V. P. Dwivedi, X. Bresson, "A Generalization of Transformer Networks to Graphs", AAAI
    2021 Workshop on Deep Learning on Graphs, https://arxiv.org/abs/2012.09699.

    **Fused path.** Queries, keys and values come from one batched product; rows of the weights, not
    of the features, are put into the order of the heads. Scores, softmax and weighted sum, with
    ``edge_bias`` and dropout, run in the CUDA kernel of ``dgl_flash.ops.dot_attention``: nothing as
    large as edges x width is made or kept for the backward, and no two runs differ in a bit. On the
    CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SparseMHA
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> layer = SparseMHA(16, num_heads=4)
    >>> layer(graph, torch.randn(4, 16)).shape
    torch.Size([4, 16])
    """

    def __init__(self, hidden_size: int = 80, num_heads: int = 8, attn_drop: float = 0.0) -> None:
        super().__init__()
        if num_heads < 1 or hidden_size % num_heads:
            raise ValueError(
                f"{type(self).__name__}: expected `num_heads` to divide `hidden_size`, got "
                f"{num_heads} heads for a width of {hidden_size}"
            )
        self.hidden_size = hidden_size
        self.num_heads = num_heads
        self.head_dim = hidden_size // num_heads
        self.scaling = self.head_dim**-0.5
        self.attn_drop = attn_drop
        self.q_proj = nn.Linear(hidden_size, hidden_size)
        self.k_proj = nn.Linear(hidden_size, hidden_size)
        self.v_proj = nn.Linear(hidden_size, hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)

    def forward(self, graph: Any, h: Tensor, edge_bias: Tensor | None = None) -> Tensor:
        r"""Attend over the in-edges of every node.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock, dgl_flash.Graph or sparse matrix
            The graph; it may stay on the CPU while the features are on a GPU. On a block the first
            rows of ``h`` are the destinations. In a matrix, of torch or with the attributes
            ``row``, ``col``, ``val`` and ``shape`` as in ``dgl.sparse``, row :math:`v` attends to
            the columns :math:`u` of its entries, whose values multiply the scores, as in
            ``bsddmm``. A matrix is read anew on each call; make a graph of it, of one of torch by
            ``dgl_flash.graph(A.t())``, to read it once.
        h : Tensor
            (N, hidden_size)
        edge_bias : Tensor, optional
            :math:`b`, (E,) or (E, H) in edge-id order. It may require a gradient.

        Returns
        -------
        Tensor
            (N_dst, hidden_size); the bias of ``out_proj`` for nodes without in-edges.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, ``h`` no tensor, or dtypes differ.
        ValueError
            If the features do not fit the graph, sources and destinations are two sets of nodes, or
            both values of a matrix and an ``edge_bias`` are given.
        RuntimeError
            If the features have another dtype or width than the module.
        """
        bias_op = "add"
        if _is_matrix(graph) and isinstance(h, Tensor):
            if edge_bias is not None:
                raise ValueError(
                    f"{type(self).__name__}: expected no `edge_bias` beside a matrix, whose values "
                    "multiply the scores; pass a graph, such as dgl_flash.graph(A.t())"
                )
            graph, edge_bias = self._read_matrix(graph, h)
            bias_op = "mul"
        struct = read_graph(self, graph, h)
        is_block = getattr(graph, "is_block", False)
        one_set = getattr(graph, "is_homogeneous", True) and struct.num_src == struct.num_dst
        if not one_set and not is_block:
            raise ValueError(
                f"{type(self).__name__}: expected nodes that attend to each other, or a block, got "
                f"{struct.num_src} sources and {struct.num_dst} destinations of another kind"
            )
        q, k, v = self._project(h)
        out: Any = ops.dot_attention(
            struct,
            expand_as_pair(q, graph)[1],
            k,
            v,
            self.scaling,
            edge_bias=edge_bias,
            bias_op=bias_op,
            attn_drop=self.attn_drop if self.training else 0.0,
        )
        return self._merge(out)

    def _read_matrix(self, matrix: Any, h: Tensor) -> tuple[Any, Tensor]:
        """Graph and values of a matrix."""
        if isinstance(matrix, Tensor):
            matrix = matrix if matrix.layout == torch.sparse_coo else matrix.to_sparse_coo()
            matrix = matrix.coalesce()
            (row, col), values = matrix.indices(), matrix.values()
        else:
            row, col, values = matrix.row, matrix.col, matrix.val
        shape = tuple(matrix.shape)
        if shape != (h.shape[0], h.shape[0]):
            raise ValueError(
                f"{type(self).__name__}: expected a matrix of shape (N, N) with N = {h.shape[0]}, "
                f"the rows of `h`, got {shape}"
            )
        return build_graph((col, row), num_nodes=shape[0]), values.to(h)

    def _project(self, h: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values, (N, H, D) each."""
        parts = (self.q_proj, self.k_proj, self.v_proj)
        shape = (self.num_heads, self.head_dim)
        if not _are_plain(*parts):
            # Heads come last here.
            features = [part(h).unflatten(1, shape[::-1]) for part in parts]
            return [feature.transpose(1, 2) for feature in features]
        rows, bias = (
            torch.stack([self._by_head(getattr(part, name)) for part in parts]).flatten(1, 2)
            for name in ("weight", "bias")
        )
        found = torch.baddbmm(bias.unsqueeze(1), h.expand(3, *h.shape), rows.transpose(1, 2))
        return found.unflatten(2, shape).unbind(0)

    def _merge(self, values: Tensor) -> Tensor:
        """Mix what the heads have found: (N, H, D) to (N, hidden_size)."""
        if not _are_plain(self.out_proj):
            return self.out_proj(values.transpose(1, 2).flatten(1))
        columns = self._by_head(self.out_proj.weight.t()).flatten(0, 1).t()
        return F.linear(values.flatten(1), columns, self.out_proj.bias)

    def _by_head(self, rows: Tensor) -> Tensor:
        """Rows (D * H, ...) as (H, D, ...)."""
        return rows.unflatten(0, (self.head_dim, self.num_heads)).transpose(0, 1)


def _is_matrix(graph: Any) -> bool:
    if isinstance(graph, Tensor):
        return graph.layout != torch.strided
    return all(hasattr(graph, name) for name in ("row", "col", "val", "shape"))


def _are_plain(*parts: nn.Linear) -> bool:
    """Whether nothing but the weight and the bias of linear maps counts."""
    return all(computes_as(part, nn.Linear) and part.bias is not None for part in parts)
