"""DotGatConv: graph attention whose scores are dot products of the two ends."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph


class DotGatConv(nn.Module):
    r"""Graph attention by dot products, with the interface of ``dgl.nn.DotGatConv``.

    .. math::
        h'_v &= \sum_{u \in \mathcal{N}(v)} \alpha_{uv} \, W_{src} h_u

        \alpha_{uv} &= \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            \frac{(W_{src} h_u)^T (W_{dst} h_v)}{\sqrt{D}} \right)

    independently in each of :math:`H` heads.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width: an int for one matrix, :math:`W_{src} = W_{dst}`, a pair for one a side.
    out_feats : int
        Output width of one head, :math:`D`.
    num_heads : int
        Number of heads, :math:`H`.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive zeros. Default False.

    Notes
    -----
    Source: P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio, "Graph Attention
    Networks", ICLR 2018, https://arxiv.org/abs/1710.10903, with dot products for scores as in
    A. Vaswani et al., "Attention Is All You Need", NeurIPS 2017, https://arxiv.org/abs/1706.03762.

    As in DGL a module for one width takes a tensor, one for two widths a pair, and the other one
    raises an AttributeError. Given a pair on a homogeneous graph, DGL puts both sides into one
    place, where the destinations overwrite the sources; here each side is used for itself.

    **Fused path.** Scores, softmax and weighted sum run in one CUDA kernel
    (``dgl_flash.ops.dot_attention``), in float64, float32, float16 and bfloat16, for any number of
    heads and a head width up to 512. Keys are values, so an edge reads one row. Attention is
    written when it is asked for; memory for edges times width is never needed. On the CPU plain
    torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import DotGatConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = DotGatConv(8, 5, num_heads=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 2, 5])
    """

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        num_heads: int,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._allow_zero_in_degree = allow_zero_in_degree
        self._num_heads = num_heads
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)

    def forward(
        self, graph: Any, feat: Tensor | tuple[Tensor, Tensor], get_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Attend over the in-edges of every destination.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, in_feats), if that is an int; on a block the first rows are the destinations. Else
            a pair of (N_src, in_src_feats) and (N_dst, in_dst_feats).
        get_attention : bool
            Also return the attention weights. Default False.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            (N_dst, H, D) and, if asked for, (E, H, 1) in edge-id order.

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False.
        AttributeError
            If one of ``in_feats`` and ``feat`` is a pair and the other one is not.
        TypeError
            If ``graph`` is no graph.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        self._check_sides(feat)
        if isinstance(feat, tuple):
            feat_src = self._split_heads(self.fc_src(feat[0]))
            feat_dst = self._split_heads(self.fc_dst(feat[1]))
        else:
            feat_src, feat_dst = expand_as_pair(self._split_heads(self.fc(feat)), graph)
        return ops.dot_attention(
            struct, feat_dst, feat_src, feat_src, return_attention=get_attention
        )

    def _check_sides(self, feat: Tensor | tuple[Tensor, Tensor]) -> None:
        if isinstance(feat, tuple) and hasattr(self, "fc"):
            widths = self._in_src_feats, self._in_dst_feats
            raise AttributeError(
                "DotGatConv: expected one tensor, since `in_feats` is an int, got a pair; build "
                f"the layer with in_feats={widths}, which has a matrix for each side"
            )
        if not isinstance(feat, tuple) and not hasattr(self, "fc"):
            raise AttributeError(
                "DotGatConv: expected a pair of features, since `in_feats` is a pair, got one "
                "tensor; pass (feat_src, feat_dst)"
            )

    def _split_heads(self, values: Tensor) -> Tensor:
        return values.reshape(-1, self._num_heads, self._out_feats)
