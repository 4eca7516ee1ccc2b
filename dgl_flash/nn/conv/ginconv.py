"""GINConv, the layer of the graph isomorphism network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash.nn.common import expand_as_pair, read_graph, reduce_neighbors


class GINConv(nn.Module):
    r"""Graph isomorphism layer, with the interface of ``dgl.nn.GINConv``.

    .. math::
        h'_v = \sigma \left( f \left( (1 + \epsilon) h_v +
        R_{e=(u \to v)} \, w_e h_u \right) \right)

    where :math:`R` is a sum, mean or maximum, 0 without in-edges, and :math:`w` are edge weights,
    1 if none are given.

    Parameters
    ----------
    apply_func : callable, optional
        :math:`f`, usually a module: a linear layer or a multilayer perceptron.
    aggregator_type : {"sum", "max", "mean"}
        :math:`R`. Default ``"sum"``.
    init_eps : float
        First value of :math:`\epsilon`. Default 0.
    learn_eps : bool
        Whether :math:`\epsilon` is a parameter. Default False.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    eps : Parameter or buffer
        (1,)

    Raises
    ------
    KeyError
        If ``aggregator_type`` is none of the three.

    Notes
    -----
    Source: K. Xu, W. Hu, J. Leskovec, S. Jegelka, "How Powerful are Graph Neural Networks?", ICLR
    2019, https://arxiv.org/abs/1810.00826.

    If a graph has no edge at all, a maximum passes no gradient; DGL passes it to node 0.

    **Fused path.** Weights and reduction run in ``dgl_flash.ops.gspmm``, whose sum, mean and
    maximum are one CUDA kernel each without any tensor of the size of the edges. The maximum saves
    where in its row each winner stands, in as few bytes as the largest in-degree allows. On the CPU
    plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GINConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GINConv(torch.nn.Linear(8, 5), "max")
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    eps: Tensor

    def __init__(
        self,
        apply_func: Callable[[Tensor], Tensor] | None = None,
        aggregator_type: str = "sum",
        init_eps: float = 0,
        learn_eps: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.apply_func = apply_func
        self._aggregator_type = aggregator_type
        self.activation = activation
        if aggregator_type not in ("sum", "max", "mean"):
            raise KeyError(f"Aggregator type {aggregator_type} not recognized.")
        eps = torch.tensor([init_eps], dtype=torch.float32)
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def forward(
        self,
        graph: Any,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Add every destination and what its in-edges bring.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*); on a block the first rows are the destinations. A pair holds (N_src, \*) and
            (N_dst, \*).
        edge_weight : Tensor, optional
            (E,), or (E, ...) aligned with the last dimensions of the features.

        Returns
        -------
        Tensor
            (N_dst, \*), or what ``apply_func`` makes of it.

        Raises
        ------
        AssertionError
            If there is not one weight an edge, as in DGL.
        DGLError
            If edge weights do not broadcast or have another dtype, or there is not one row a
            source.
        TypeError
            If ``graph`` is no graph.
        """
        struct = read_graph(self, graph, feat)
        feat_src, feat_dst = expand_as_pair(feat, graph)
        if edge_weight is not None and edge_weight.shape[0] != struct.num_edges:
            raise AssertionError
        neigh = reduce_neighbors(struct, self._aggregator_type, feat_src, edge_weight)
        out = (1 + self.eps) * feat_dst + neigh
        if self.apply_func is not None:
            out = self.apply_func(out)
        if self.activation is not None:
            out = self.activation(out)
        return out
