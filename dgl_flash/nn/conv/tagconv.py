"""TAGConv, the topology adaptive graph convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import as_floats, degree_scale, read_graph
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm


class TAGConv(nn.Module):
    r"""Topology adaptive graph convolution, with the interface of ``dgl.nn.TAGConv``.

    .. math::
        H' = \sigma \left( b + \sum_{i=0}^{k} (D^{-1/2} A D^{-1/2})^i X W_i \right)

    where :math:`D` holds the in-degrees, 0 counting as 1. With edge weights the matrix is that of
    :class:`EdgeWeightNorm`.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    k : int
        Number of hops. Default 2.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    lin : Linear
        All :math:`W_i`, side by side, and :math:`b`.

    Notes
    -----
    Source: J. Du, S. Zhang, G. Wu, J. M. F. Moura, S. Kar, "Topology Adaptive Graph Convolutional
    Networks", 2017, https://arxiv.org/abs/1710.10370.

    **Fused path.** A hop is one CUDA kernel (``dgl_flash.ops.spmm``) with both normalisations or
    the edge weights in it; no tensor of the size of the edges is made but the weights themselves.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import TAGConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = TAGConv(8, 5, k=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int = 2,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._k = k
        self._activation = activation
        self.lin = nn.Linear(in_feats * (k + 1), out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from Glorot's normal distribution; the bias stays as it is."""
        nn.init.xavier_normal_(self.lin.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        r"""Propagate the features over ``k`` hops and project all of them.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*, in_feats); without edge weights integers become floats.
        edge_weight : Tensor, optional
            (E,), positive.

        Returns
        -------
        Tensor
            (N, \*, out_feats)

        Raises
        ------
        AssertionError
            If the graph has two sets of nodes, as in DGL.
        DGLError
            If edge weights are not scalar, not positive or not one an edge.
        TypeError
            If ``graph`` is no graph, or edge weights have another dtype than the features.
        ValueError
            If features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat)
        if not getattr(graph, "is_homogeneous", True):
            raise AssertionError("Graph is not homogeneous")
        scale = None
        if edge_weight is None:
            feat = as_floats(feat)
            scale = degree_scale(struct, "dst", -0.5, feat)
        else:
            edge_weight = EdgeWeightNorm("both")(struct, edge_weight)
        hops = [feat]
        for _ in range(self._k):
            feat = ops.spmm(struct, feat, edge_weight, src_scale=scale, dst_scale=scale)
            hops.append(feat)
        out = self.lin(torch.cat(hops, dim=-1))
        return out if self._activation is None else self._activation(out)
