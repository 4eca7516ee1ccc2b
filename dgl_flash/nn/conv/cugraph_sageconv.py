"""CuGraphSAGEConv: SAGEConv with one matrix for neighbours and self."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from dgl_flash.nn.common import computes_as, reduce_neighbors
from dgl_flash.nn.conv.cugraph_base import CuGraphBaseConv, read_inputs


class CuGraphSAGEConv(CuGraphBaseConv):
    r"""GraphSAGE layer, with the interface of ``dgl.nn.CuGraphSAGEConv`` and without cuGraph.

    .. math::
        h'_v = W \left( R_{u \in \mathcal{N}(v)} \, h_u \; \Vert \; h_v \right) + b

    Parameters
    ----------
    in_feats : int
        D, width of the features.
    out_feats : int
        Width of the result.
    aggregator_type : {"mean", "sum", "min", "max"}
        :math:`R`, 0 without in-edges. Default ``"mean"``.
    feat_drop : float
        Dropout of the features. Default 0.
    bias : bool
        Whether there is a bias :math:`b`. Default True.

    Attributes
    ----------
    linear : nn.Linear
        :math:`W` and :math:`b`. The first D columns are for the neighbours (``fc_neigh`` of
        :class:`SAGEConv`), the others for the node itself (``fc_self``).

    Raises
    ------
    ValueError
        If ``aggregator_type`` is none of the four.

    Notes
    -----
    Source: W. L. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large
    Graphs", NeurIPS 2017, https://arxiv.org/abs/1706.02216.

    DGL's class needs pylibcugraphops 23.04, thus Python 3.8 or 3.10 and a GPU. This one reads its
    checkpoints and runs wherever this package does.

    **Fused path.** The neighbours are reduced in ``dgl_flash.ops.gspmm``: a mean or sum is one CUDA
    kernel on the narrower of input and output, a minimum or maximum one on the input; no tensor has
    the size of the edges. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import CuGraphSAGEConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = CuGraphSAGEConv(8, 5, "mean")
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    MAX_IN_DEGREE_MFG = 500

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        aggregator_type: str = "mean",
        feat_drop: float = 0.0,
        bias: bool = True,
    ) -> None:
        # A set as in DGL, whose text has its order, which changes from process to process.
        known = {"max", "min", "mean", "sum"}
        if aggregator_type not in known:
            raise ValueError(
                f"Invalid aggregator_type. Must be one of {known}. "
                f"But got '{aggregator_type}' instead."
            )
        super().__init__()
        self.in_feats = in_feats
        self.out_feats = out_feats
        self.aggr = aggregator_type
        self.feat_drop = nn.Dropout(feat_drop)
        self.linear = nn.Linear(2 * in_feats, out_feats, bias=bias)

    def reset_parameters(self) -> None:
        """Draw the matrix as ``torch.nn.Linear`` does."""
        self.linear.reset_parameters()

    def forward(self, g: Any, feat: Tensor, max_in_degree: int | None = None) -> Tensor:
        """Combine every destination with what its in-edges bring.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N_src, D), the first rows are the destinations.
        max_in_degree : int, optional
            Not needed: no kernel here has a limit, and nothing asks for it.

        Returns
        -------
        Tensor
            (N_dst, out_feats)

        Raises
        ------
        TypeError
            If ``g`` is no graph, or ``feat`` no tensor.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features do not fit the module, in width or dtype.
        """
        struct = read_inputs(self, g, feat)
        feat = self.feat_drop(feat)
        feat_dst = feat[: struct.num_dst]
        narrows = self.aggr in ("mean", "sum") and self.in_feats > self.out_feats
        if narrows and computes_as(self.linear, nn.Linear):
            w_neigh, w_self = self.linear.weight.split(self.in_feats, dim=1)
            neigh = reduce_neighbors(struct, self.aggr, linear(feat, w_neigh), None)
            return neigh + linear(feat_dst, w_self, self.linear.bias)
        neigh = reduce_neighbors(struct, self.aggr, feat, None)
        return self.linear(torch.cat([neigh, feat_dst], dim=-1))
