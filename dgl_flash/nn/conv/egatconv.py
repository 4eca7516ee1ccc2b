"""EGATConv: graph attention that updates the features of the edges too."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.nn.common import ZERO_IN_DEGREE, computes_as, expand_as_pair, read_graph
from dgl_flash.nn.conv.gatconv import as_edge_weight, dot_heads
from dgl_flash.ops import check


class EGATConv(nn.Module):
    r"""Graph attention with edge features, with the interface of ``dgl.nn.EGATConv``.

    .. math::
        x'_e &= \mathrm{LeakyReLU}(A_i h_u + A_{ij} x_e + A_j h_v + b), \qquad e = (u \to v)

        h'_v &= \sum_{e = (u \to v)} \alpha_e \, W h_u, \qquad
        \alpha_e = \mathrm{softmax}_{e \in \mathrm{in}(v)} (a^T x'_e)

    independently in each of :math:`H` heads, with :math:`x` the features of the edges and a slope
    of 0.01.

    Parameters
    ----------
    in_node_feats : int or (int, int)
        Width of the node features, of the sources and of the destinations if a pair.
    in_edge_feats : int
        Width of the edge features.
    out_node_feats : int
        Output width of one head at the nodes, :math:`D`.
    out_edge_feats : int
        Output width of one head at the edges, :math:`D_e`.
    num_heads : int
        Number of heads, :math:`H`.
    bias : bool
        Whether there is a bias :math:`b`. Default True.

    Notes
    -----
    Source: K. Kamiński, J. Ludwiczak, M. Jasiński, A. Bukala, R. Madaj, K. Szczepaniak,
    S. Dunin-Horkawicz, "Rossmann-toolbox: a deep learning-based protocol for the prediction and
    design of cofactor specificity in Rossmann fold proteins", Briefings in Bioinformatics 2022,
    https://pubmed.ncbi.nlm.nih.gov/34571541/; see also J. Chen, H. Chen, "Edge-Featured Graph
    Attention Network", 2021, https://arxiv.org/abs/2101.07671.

    Two things are more than DGL does: ``bias=False``, with which DGL's constructor fails, and a
    single tensor on a block, whose first rows are the destinations.

    **Fused path.** The result contains one tensor of edges times heads times :math:`D_e`, and the
    forward makes no second one: ``dgl_flash.ops.u_add_v`` allocates it, the matrix product of the
    edge features adds to it, the leaky ReLU overwrites it. The backward makes up to two more.
    Softmax, edge weights and the sum over the sources are one CUDA kernel (``dgl_flash.ops.gat``,
    with scores from the edges alone), in float64, float32, float16 and bfloat16, for any number of
    heads and :math:`D` up to 512. On the CPU plain torch computes the same. A hook on, or another
    module for, ``fc_fij`` is called, which makes a second tensor of edges.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import EGATConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = EGATConv(8, 3, 5, 6, num_heads=2)
    >>> nodes, edges = conv(graph, torch.randn(4, 8), torch.randn(4, 3))
    >>> nodes.shape, edges.shape
    (torch.Size([4, 2, 5]), torch.Size([4, 2, 6]))
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_node_feats: int | tuple[int, int],
        in_edge_feats: int,
        out_node_feats: int,
        out_edge_feats: int,
        num_heads: int,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._num_heads = num_heads
        self._in_src_node_feats, self._in_dst_node_feats = expand_as_pair(in_node_feats)
        self._out_node_feats = out_node_feats
        self._out_edge_feats = out_edge_feats
        node_width, edge_width = num_heads * out_node_feats, num_heads * out_edge_feats
        self.fc_node_src = nn.Linear(self._in_src_node_feats, node_width, bias=False)
        self.fc_ni = nn.Linear(self._in_src_node_feats, edge_width, bias=False)
        self.fc_nj = nn.Linear(self._in_dst_node_feats, edge_width, bias=False)
        self.fc_fij = nn.Linear(in_edge_feats, edge_width, bias=False)
        self.attn = nn.Parameter(torch.empty(1, num_heads, out_edge_feats))
        if bias:
            self.bias = nn.Parameter(torch.empty(edge_width))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from Glorot's normal distribution and set the bias to 0."""
        gain = nn.init.calculate_gain("relu")
        for linear in (self.fc_node_src, self.fc_ni, self.fc_fij, self.fc_nj):
            nn.init.xavier_normal_(linear.weight, gain=gain)
        nn.init.xavier_normal_(self.attn, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self,
        graph: Any,
        nfeats: Tensor | tuple[Tensor, Tensor],
        efeats: Tensor,
        edge_weight: Tensor | None = None,
        get_attention: bool = False,
    ) -> tuple[Tensor, ...]:
        """Update the features of edges and nodes.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        nfeats : Tensor or pair of Tensor
            (N, in_node_feats); on a block the first rows are the destinations. A pair holds
            (N_src, in_src_node_feats) and (N_dst, in_dst_node_feats).
        efeats : Tensor
            (E, in_edge_feats) in edge-id order.
        edge_weight : Tensor, optional
            (E,), factors of the attention after the softmax. It may require a gradient.
        get_attention : bool
            Also return the attention weights. Default False.

        Returns
        -------
        tuple of Tensor
            (N_dst, H, D), (E, H, D_e) in edge-id order and, if asked for, (E, H, 1) in the same
            order, after edge weights. Gradients flow through all of them.

        Raises
        ------
        DGLError
            If there are destinations without in-edges, or features do not fit the nodes.
        TypeError
            If ``graph`` is no graph, the edge features are no tensor, or edge weights have a wider
            dtype than the features.
        ValueError
            If the edge weights do not fit the graph.
        RuntimeError
            If features have another dtype than the module, or there is not one row of them an edge.
        """
        struct = read_graph(self, graph, nfeats)
        if struct.has_zero_in_degree:
            # DGL's layer has no flag to mention.
            raise dgl_error(ZERO_IN_DEGREE.partition(" Setting")[0])
        feat_src, feat_dst = expand_as_pair(nfeats, graph)
        f_out = self._edge_features(struct, feat_src, feat_dst, efeats)
        h_src = self.fc_node_src(feat_src).reshape(-1, self._num_heads, self._out_node_feats)
        # Nothing comes from the nodes, and a leaky ReLU of slope 1 leaves the score as it is.
        result = ops.gat(
            struct,
            h_src,
            h_src.new_zeros(struct.num_src, self._num_heads),
            h_src.new_zeros(struct.num_dst, self._num_heads),
            1.0,
            edge_bias=dot_heads(f_out, self.attn),
            edge_weight=as_edge_weight(edge_weight, struct.num_edges, h_src),
            return_attention=get_attention,
        )
        h_out, *attention = result if isinstance(result, tuple) else (result,)
        return h_out, f_out, *attention

    def _edge_features(self, struct: Any, feat_src: Any, feat_dst: Any, efeats: Any) -> Tensor:
        """Make (E, H, D_e), the only tensor of edges times width."""
        f_dst = self.fc_nj(feat_dst)
        if self.bias is not None:
            f_dst = f_dst + self.bias
        f_out = ops.u_add_v(struct, self.fc_ni(feat_src), f_dst)
        if computes_as(self.fc_fij, nn.Linear) and self.fc_fij.bias is None:
            # Autocast does not reach what works in place.
            _, rows, matrix = check.autocast(f_out, efeats, self.fc_fij.weight)
            f_out.addmm_(rows, matrix.t())
        else:
            f_out = f_out + self.fc_fij(efeats)
        f_out = F.leaky_relu(f_out, inplace=True)
        return f_out.reshape(-1, self._num_heads, self._out_edge_feats)
