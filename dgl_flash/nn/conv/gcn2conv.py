"""GCN2Conv: a graph convolution for deep stacks, with initial residual and identity mapping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import as_floats, degree_scale, read_graph, require_one_node_set
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm


class GCN2Conv(nn.Module):
    r"""Layer :math:`l` of GCNII, with the interface of ``dgl.nn.GCN2Conv``.

    .. math::
        S &= (1 - \alpha) \, D^{-1/2} A D^{-1/2} H + \alpha H^0

        H' &= \sigma \big( (1 - \beta) \, S + \beta \, S W + b \big), \qquad
        \beta = \log ( \lambda / l + 1 )

    with :math:`D` the in-degrees, of which 0 counts as 1; add self-loops to the graph yourself.
    With ``project_initial_features=False`` the two parts of :math:`S` have a matrix each,
    :math:`(1 - \alpha) D^{-1/2} A D^{-1/2} H \, W_1 + \alpha H^0 W_2` in place of :math:`S W`.
    Edge weights replace the degrees: they are normalised by :class:`EdgeWeightNorm`.

    Parameters
    ----------
    in_feats : int
        Input and output width.
    layer : int
        Index of the layer from 1, :math:`l`.
    alpha : float
        Share of the initial features, :math:`\alpha`. Default 0.1.
    lambda_ : float
        Strength of the mapping, :math:`\lambda`. Default 1.
    project_initial_features : bool
        Use one matrix for both parts. Default True.
    allow_zero_in_degree : bool
        Accept nodes without in-edges; they keep their initial features alone. Default False.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    weight1 : Parameter
        (in_feats, in_feats)
    weight2 : Parameter or None
        (in_feats, in_feats)
    bias : Parameter or None
        (in_feats,)

    Notes
    -----
    Source: M. Chen, Z. Wei, Z. Huang, B. Ding, Y. Li, "Simple and Deep Graph Convolutional
    Networks", ICML 2020, https://arxiv.org/abs/2007.02133.

    **Fused path.** The normalised sum over the neighbours is one CUDA kernel
    (``dgl_flash.ops.spmm``) in float64, float32, float16 and bfloat16, with the degrees or the
    edge weights applied on the way; there is no edge-sized tensor beyond the weights themselves.
    On the CPU plain torch computes the same.

    Features (N, \*, in_feats) of more than two dimensions work; in DGL they do so with edge weights
    only.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GCN2Conv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> first, feat = GCN2Conv(8, layer=1), torch.randn(4, 8)
    >>> first(graph, feat, feat).shape
    torch.Size([4, 8])
    """

    weight2: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int,
        layer: int,
        alpha: float = 0.1,
        lambda_: float = 1,
        project_initial_features: bool = True,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._in_feats = in_feats
        self._project_initial_features = project_initial_features
        self.alpha = alpha
        self.beta = math.log(lambda_ / layer + 1)
        self._bias = bias
        self._activation = activation
        self._allow_zero_in_degree = allow_zero_in_degree
        shape = (in_feats, in_feats)
        self.weight1 = nn.Parameter(torch.empty(shape))
        self.register_parameter(
            "weight2", None if project_initial_features else nn.Parameter(torch.empty(shape))
        )
        self.register_parameter("bias", nn.Parameter(torch.empty(in_feats)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices from a standard normal distribution and set the bias to 0."""
        nn.init.normal_(self.weight1)
        if self.weight2 is not None:
            nn.init.normal_(self.weight2)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) nodes without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(
        self, graph: Any, feat: Tensor, feat_0: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        r"""Convolve the features and mix them with the initial ones.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*, in_feats), the features of this layer; without edge weights integers become
            floats.
        feat_0 : Tensor
            (N, \*, in_feats), the features of the first layer; rows after N are not read.
        edge_weight : Tensor, optional
            (E,), positive.

        Returns
        -------
        Tensor
            (N, \*, in_feats)

        Raises
        ------
        DGLError
            If there are nodes without in-edges and ``allow_zero_in_degree`` is False, if edge
            weights are not scalar, not positive or not one an edge, or if there is more than one
            set of nodes.
        TypeError
            If ``graph`` is no graph, or edge weights have another dtype than the features.
        ValueError
            If features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        require_one_node_set(self, graph)
        if edge_weight is None:
            feat = as_floats(feat)
            # DGL takes the in-degrees for both ends, also where the graph is directed.
            scale = degree_scale(struct, "dst", -0.5, feat)
            smoothed = ops.spmm(struct, feat, src_scale=scale, dst_scale=scale)
        else:
            weight = EdgeWeightNorm("both")(struct, edge_weight)
            smoothed = ops.spmm(struct, feat, weight)
        smoothed = (1 - self.alpha) * smoothed
        initial = self.alpha * feat_0[: smoothed.shape[0]]
        mixed = smoothed + initial
        if self.weight2 is None:
            projected = mixed @ self.weight1
        else:
            projected = smoothed @ self.weight1 + initial @ self.weight2
        out = (1 - self.beta) * mixed + self.beta * projected
        if self.bias is not None:
            out = out + self.bias
        return out if self._activation is None else self._activation(out)

    def extra_repr(self) -> str:
        """Return the description that printing the module shows."""
        return f"in={self._in_feats}, alpha={self.alpha}, beta={self.beta}"
