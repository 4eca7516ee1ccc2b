"""APPNPConv, the propagation of personalised PageRank."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import as_floats, degree_scale, read_graph, require_one_node_set
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm


class APPNPConv(nn.Module):
    r"""Approximate personalised propagation, with the interface of ``dgl.nn.APPNPConv``.

    .. math::
        H^{(0)} = X, \qquad
        H^{(t+1)} = (1 - \alpha) \, D_{in}^{-1/2} A D_{out}^{-1/2} H^{(t)} + \alpha X

    where :math:`D` holds the degrees, 0 counting as 1. With edge weights the matrix is that of
    :class:`EdgeWeightNorm`. Self-loops are the business of the graph.

    Parameters
    ----------
    k : int
        Number of hops.
    alpha : float
        :math:`\alpha`, the probability of a jump back.
    edge_drop : float
        Dropout of the edges, drawn anew for each hop; those that stay count
        :math:`1 / (1 - p)` times. Default 0.

    Notes
    -----
    Source: J. Gasteiger (Klicpera), A. Bojchevski, S. Günnemann, "Predict then Propagate: Graph
    Neural Networks meet Personalized PageRank", ICLR 2019, https://arxiv.org/abs/1810.05997.

    Dropout is drawn on the device of the features; DGL draws it on the CPU if there are no edge
    weights.

    **Fused path.** A hop is one CUDA kernel (``dgl_flash.ops.spmm``) with both normalisations, the
    edge weights, the dropout and :math:`1 - \alpha` in it, and one pass over the nodes for the
    jump. No tensor of the size of the edges is made but (E,) weights, if there are any or dropout.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import APPNPConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = APPNPConv(k=3, alpha=0.1)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 8])
    """

    def __init__(self, k: int, alpha: float, edge_drop: float = 0.0) -> None:
        super().__init__()
        self._k = k
        self._alpha = alpha
        self.edge_drop = nn.Dropout(edge_drop)

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        r"""Propagate the features over ``k`` hops.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*); without edge weights integers become floats.
        edge_weight : Tensor, optional
            (E,), positive.

        Returns
        -------
        Tensor
            (N, \*)

        Raises
        ------
        DGLError
            If edge weights are not scalar, not positive or not one an edge, or the graph has two
            sets of nodes.
        TypeError
            If ``graph`` is no graph, or edge weights have another dtype than the features.
        ValueError
            If features do not fit the graph.
        """
        struct = read_graph(self, graph, feat)
        require_one_node_set(self, graph)
        src_scale = dst_scale = None
        stay = 1 - self._alpha
        if edge_weight is None:
            feat = as_floats(feat)
            src_scale = degree_scale(struct, "src", -0.5, feat)
            dst_scale = stay * degree_scale(struct, "dst", -0.5, feat)
            if self.edge_drop.training and self.edge_drop.p > 0:
                edge_weight = feat.new_ones(struct.num_edges)
        else:
            edge_weight = stay * EdgeWeightNorm("both")(struct, edge_weight)
        jump = self._alpha * feat
        for _ in range(self._k):
            weight = None if edge_weight is None else self.edge_drop(edge_weight)
            feat = jump + ops.spmm(struct, feat, weight, src_scale=src_scale, dst_scale=dst_scale)
        return feat
