"""EdgeGATConv: graph attention whose messages and scores contain features of the edges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, expand_as_pair, read_graph, require_rows
from dgl_flash.nn.conv.gatconv import attend, dot_heads, finish, project, score_ends
from dgl_flash.ops.broadcast import fit, spread
from dgl_flash.ops.gradients import NO_SCALING
from dgl_flash.ops.products import products_of
from dgl_flash.structure import GraphStructure


class EdgeGATConv(nn.Module):
    r"""Graph attention with edge features, with the interface of ``dgl.nn.EdgeGATConv``.

    .. math::
        h'_v &= W_s h_v + \sum_{e = (u \to v)} \alpha_e \left( W_n h_u + W_e x_e \right)

        \alpha_e &= \mathrm{softmax}_{e \in \mathrm{in}(v)} \left( \mathrm{LeakyReLU}(
            a_l^T W_n h_u + a_r^T W_n h_v + a_e^T W_e x_e) \right)

    independently in each of :math:`H` heads, with :math:`x` the features of the edges.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width: an int for one matrix :math:`W_n`, a pair for one a side.
    edge_feats : int
        Width of the edge features, :math:`F`.
    out_feats : int
        Output width of one head, :math:`D`.
    num_heads : int
        Number of heads, :math:`H`.
    feat_drop : float
        Dropout on the features of the nodes. Default 0.
    attn_drop : float
        Dropout on the attention weights. Default 0.
    negative_slope : float
        Slope of the leaky ReLU below 0. Default 0.2.
    residual : bool
        Add the destinations' input, projected by :math:`W_s`. Default True.
    activation : callable, optional
        Applied last.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive residual and bias alone.
        Default False.
    bias : bool
        Whether there is a bias, added after the residual. Default True.

    Notes
    -----
    Source: T. Monninger, J. Schmidt, J. Rupprecht, D. Raba, J. Jordan, D. Frank, S. Staab,
    K. Dietmayer, "SCENE: Reasoning about Traffic Scenes using Heterogeneous Graph Neural Networks",
    IEEE Robotics and Automation Letters 2023, https://arxiv.org/abs/2301.03512.

    **Fused path.** The edges are never projected. Their part of the score is
    :math:`x_e^T (W_e^T a_e)`, numbers for edges times heads, and their part of the result
    :math:`W_e \sum_e \alpha_e x_e`: one weighted sum of the features as they are for each head,
    numbers for nodes times :math:`F`. Scores, softmax, attention dropout and the sum over the
    sources run in one CUDA kernel (``dgl_flash.ops.gat``), which writes the attention too; the sums
    over the edges are the kernel of ``dgl_flash.ops.spmm``. All dtypes and any number of heads, a
    head width up to 512. On the CPU plain torch computes the same. A hook on, or another module
    for, ``fc_edge`` is called, which makes a tensor of edges times heads times width.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import EdgeGATConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = EdgeGATConv(8, 3, 5, num_heads=2)
    >>> conv(graph, torch.randn(4, 8), torch.randn(4, 3)).shape
    torch.Size([4, 2, 5])
    """

    bias: nn.Parameter | None
    res_fc: nn.Module | None

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        edge_feats: int,
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads = num_heads
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._allow_zero_in_degree = allow_zero_in_degree
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        if bias:
            self.bias = nn.Parameter(torch.empty(width))
        else:
            self.register_buffer("bias", None)
        if residual:
            self.res_fc = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.register_buffer("res_fc", None)
        self._edge_feats = edge_feats
        self.fc_edge = nn.Linear(edge_feats, width, bias=False)
        self.attn_edge = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.reset_parameters()
        self.activation = activation

    def reset_parameters(self) -> None:
        """Draw all weights from Glorot's normal distribution and set the bias to 0."""
        gain = nn.init.calculate_gain("relu")
        linears = [self.fc] if hasattr(self, "fc") else [self.fc_src, self.fc_dst]
        weights = [linear.weight for linear in linears]
        weights += [self.attn_l, self.attn_r, self.fc_edge.weight, self.attn_edge]
        for weight in weights:
            nn.init.xavier_normal_(weight, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=gain)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) destinations without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(
        self,
        graph: Any,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_feat: Tensor,
        get_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Attend over the in-edges of every destination.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, \*, in_src_feats) and (N_dst, \*, in_dst_feats).
        edge_feat : Tensor
            (E, \*, edge_feats) in edge-id order. The dimensions between the first and the last one
            broadcast with those of ``feat``.
        get_attention : bool
            Also return the attention weights. Default False.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            (N_dst, \*, H, D) and, if asked for, (E, \*, H, 1) in edge-id order, after dropout.

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False, or
            there is not one row of features an edge.
        TypeError
            If ``graph`` is no graph, or the edge features are no tensor.
        ValueError
            If the features do not fit the graph.
        AttributeError
            If ``in_feats`` is a pair and ``feat`` is not.
        RuntimeError
            If features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        h_dst, feat_src, feat_dst = project(self, graph, feat)
        # A matrix alone goes past the edges, and is applied to sums; anything more is called.
        is_matrix = computes_as(self.fc_edge, nn.Linear) and self.fc_edge.bias is None
        if is_matrix:
            matrix = self.fc_edge.weight.unflatten(0, (self._num_heads, self._out_feats))
            score_matrix = (matrix * self.attn_edge.squeeze(0).unsqueeze(-1)).sum(dim=1)
            score_edge = F.linear(edge_feat, score_matrix)
        else:
            feat_edge = self.fc_edge(edge_feat)
            feat_edge = feat_edge.unflatten(-1, (self._num_heads, self._out_feats))
            score_edge = dot_heads(feat_edge, self.attn_edge)
        require_rows(edge_feat, struct.num_edges, "edges")
        scores = *score_ends(self, feat_src, feat_dst), score_edge
        out, attention = attend(self, struct, feat_src, *scores, return_attention=True)
        assert attention is not None
        if is_matrix:
            out = out + _attended_edges(struct, edge_feat, attention, matrix)
        else:
            out = out + ops.copy_e_sum(struct, feat_edge * attention)
        out = finish(self, out, h_dst)
        return (out, attention) if get_attention else out


def _attended_edges(
    struct: GraphStructure, edge_feat: Tensor, attention: Tensor, matrix: Tensor
) -> Tensor:
    """Sum (E, *, F) features, weighted by (E, *, H, 1), and project them by (H, D, F)."""
    products, edges = products_of(struct)
    shape = tuple(attention.shape[1:-2])
    edge_feat = edge_feat.to(attention.dtype)  # which differ under autocast only
    fitted = fit("mul", attention.select(-2, 0), edge_feat)
    rows = spread(fitted.rhs, (*shape, edge_feat.shape[-1]))
    parts = []
    for factors, matrix_of_head in zip(attention.squeeze(-1).unbind(-1), matrix, strict=True):
        weight = factors if shape == () else factors.flatten(1)
        sums = products.sum(edges, rows, weight, NO_SCALING, True)
        parts.append(F.linear(sums, matrix_of_head))
    return torch.stack(parts, dim=-2)
