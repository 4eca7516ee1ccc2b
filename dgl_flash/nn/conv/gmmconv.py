"""GMMConv: neighbours weighted by Gaussians of their pseudo-coordinates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph, register_residual
from dgl_flash.nn.gaussians import gaussians


class GMMConv(nn.Module):
    r"""Mixture model convolution (MoNet), with the interface of ``dgl.nn.GMMConv``.

    .. math::
        h'_v = b + W_{res} h_v + \sum_{k=1}^{K} \operatorname*{aggregate}_{e=(u \to v)}
            w_k(p_e) \, W_k h_u, \qquad
        w_k(p) = \exp \Big( -\tfrac{1}{2} \sum_d \sigma_{kd}^{-2} (p_d - \mu_{kd})^2 \Big)

    with :math:`p_e` the pseudo-coordinates of an edge.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width, of the sources and of the destinations if a pair.
    out_feats : int
        Output width.
    dim : int
        Number of pseudo-coordinates of an edge.
    n_kernels : int
        Number of Gaussians, :math:`K`.
    aggregator_type : {"sum", "mean", "max"}
        Default ``"sum"``.
    residual : bool
        Add the destinations' input, projected unless it has the output width. Default False.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive bias and residual alone. Default False.

    Attributes
    ----------
    mu, inv_sigma : Parameter
        (n_kernels, dim)
    fc : nn.Linear
        :math:`W_1 \ldots W_K`, without bias.
    res_fc : nn.Module or None
        :math:`W_{res}`
    bias : Parameter or None
        (out_feats,)

    Raises
    ------
    KeyError
        If the aggregator is none of the three.

    Notes
    -----
    Source: F. Monti, D. Boscaini, J. Masci, E. Rodolà, J. Svoboda, M. M. Bronstein, "Geometric
    Deep Learning on Graphs and Manifolds Using Mixture Model CNNs", CVPR 2017,
    https://arxiv.org/abs/1611.08402.

    **Fused path.** The Gaussians weigh the :math:`K` parts of a source's row like attention weighs
    heads: that is one CUDA kernel in float64, float32, float16 and bfloat16, for the sum and the
    mean (``dgl_flash.ops.spmm``) as for the maximum (``dgl_flash.ops.gspmm``), which also saves
    where in its row each winner stands. No tensor of shape (E, K, out_feats) exists; the weights
    (E, K) and their gradient are what is edge-sized. Both the weights and what follows from their
    gradient are computed in plain torch, coordinate by coordinate, with one more tensor (E, K) at a
    time: none of shape (E, K, dim) exists. Only gradients of gradients keep some (E, K) for every
    coordinate. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GMMConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GMMConv(8, 5, dim=2, n_kernels=3)
    >>> conv(graph, torch.randn(4, 8), torch.rand(4, 2)).shape
    torch.Size([4, 5])
    """

    res_fc: nn.Module | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        dim: int,
        n_kernels: int,
        aggregator_type: str = "sum",
        residual: bool = False,
        bias: bool = True,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._dim = dim
        self._n_kernels = n_kernels
        self._allow_zero_in_degree = allow_zero_in_degree
        if aggregator_type not in ("sum", "mean", "max"):
            raise KeyError(f"Aggregator type {aggregator_type} not recognized.")
        self._reducer = aggregator_type
        self.mu = nn.Parameter(torch.empty(n_kernels, dim))
        self.inv_sigma = nn.Parameter(torch.empty(n_kernels, dim))
        self.fc = nn.Linear(self._in_src_feats, n_kernels * out_feats, bias=False)
        register_residual(self, self._in_dst_feats, out_feats, residual, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weights from Glorot's, means from a normal distribution; widths 1, bias 0."""
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_normal_(self.fc.weight, gain=gain)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=gain)
        nn.init.normal_(self.mu, 0, 0.1)
        nn.init.ones_(self.inv_sigma)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) destinations without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Tensor | tuple[Tensor, Tensor], pseudo: Tensor) -> Tensor:
        """Aggregate the neighbours under every Gaussian and sum over the Gaussians.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, in_src_feats) and (N_dst, in_dst_feats).
        pseudo : Tensor
            (E, dim), the pseudo-coordinates of the edges.

        Returns
        -------
        Tensor
            (N_dst, out_feats)

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False; with
            ``"max"`` also if the features do not fit the graph or the dtype of the coordinates.
        TypeError
            If ``graph`` is no graph, or the pseudo-coordinates are wider than the features.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the pseudo-coordinates do not fit the graph, or the features have another dtype than
            the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        feat_src, feat_dst = expand_as_pair(feat, graph)
        feat_src = self.fc(feat_src).reshape(-1, self._n_kernels, self._out_feats)
        pseudo = pseudo.reshape(struct.num_edges, self._dim)
        weight = gaussians(pseudo, self.mu, self.inv_sigma)
        if self._reducer == "max":
            parts = ops.gspmm(struct, "mul", "max", feat_src, weight.unsqueeze(-1))
        else:
            parts = ops.spmm(struct, feat_src, weight, reduce=self._reducer)
        out = parts.sum(dim=1)
        if self.res_fc is not None:
            out = out + self.res_fc(feat_dst)
        if self.bias is not None:
            out = out + self.bias
        return out
