"""SGConv, the layer of simplified graph convolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import as_floats, degree_scale, read_graph, require_one_node_set
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm


class SGConv(nn.Module):
    r"""Simplified graph convolution, with the interface of ``dgl.nn.SGConv``.

    .. math::
        H' = \nu \left( (D^{-1/2} A D^{-1/2})^k X \right) W + b

    where :math:`D` holds the in-degrees, 0 counting as 1. With edge weights the matrix is that of
    :class:`EdgeWeightNorm`. Self-loops are the business of the graph.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    k : int
        Number of hops. Default 1.
    cached : bool
        Keep what the first forward has propagated (``_cached_h``) and take it in all later ones,
        whatever graph, features and edge weights they get: for one graph whose features never
        change. As in DGL the cache keeps the autograd graph of features that require a gradient,
        is not part of the ``state_dict``, and is emptied by ``conv._cached_h = None`` alone.
        Default False.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    norm : callable, optional
        :math:`\nu`, before the linear map.
    allow_zero_in_degree : bool
        Accept nodes without in-edges; they receive the bias alone. Default False.

    Attributes
    ----------
    fc : Linear
        :math:`W` and :math:`b`.

    Notes
    -----
    Source: F. Wu, T. Zhang, A. H. de Souza Jr., C. Fifty, T. Yu, K. Q. Weinberger, "Simplifying
    Graph Convolutional Networks", ICML 2019, https://arxiv.org/abs/1902.07153.

    Features may have more than two dimensions, on which DGL fails.

    **Fused path.** A hop is one CUDA kernel (``dgl_flash.ops.spmm``) with both normalisations or
    the edge weights in it; no tensor of the size of the edges is made but the weights themselves.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SGConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = SGConv(8, 5, k=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int = 1,
        cached: bool = False,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self.fc = nn.Linear(in_feats, out_feats, bias=bias)
        self._cached = cached
        self._cached_h: Tensor | None = None
        self._k = k
        self.norm = norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution and set the bias to 0."""
        nn.init.xavier_uniform_(self.fc.weight)
        if self.fc.bias is not None:
            nn.init.zeros_(self.fc.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) nodes without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        r"""Propagate the features over ``k`` hops and project them.

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
        DGLError
            If there are nodes without in-edges and ``allow_zero_in_degree`` is False, or if edge
            weights are not scalar, not positive or not one an edge, or the graph has two sets of
            nodes.
        TypeError
            If ``graph`` is no graph, or edge weights have another dtype than the features.
        ValueError
            If features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        if edge_weight is not None:
            edge_weight = EdgeWeightNorm("both")(struct, edge_weight)
        if self._cached_h is not None:
            return self.fc(self._cached_h)
        require_one_node_set(self, graph)
        scale = None
        if edge_weight is None:
            feat = as_floats(feat)
            scale = degree_scale(struct, "dst", -0.5, feat)
        for _ in range(self._k):
            feat = ops.spmm(struct, feat, edge_weight, src_scale=scale, dst_scale=scale)
        if self.norm is not None:
            feat = self.norm(feat)
        if self._cached:
            self._cached_h = feat
        return self.fc(feat)
