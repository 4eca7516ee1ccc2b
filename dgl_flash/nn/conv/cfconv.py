"""CFConv, the continuous-filter convolution of SchNet, and its activation."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph, require_rows


class ShiftedSoftplus(nn.Module):
    r"""Softplus, shifted by a constant, with the interface of DGL's.

    .. math::
        \mathrm{SSP}(x) = \frac{1}{\beta} \log (1 + e^{\beta x}) - \log(\text{shift})

    Parameters
    ----------
    beta : float
        :math:`\beta`. Default 1.
    shift : float
        Default 2, with which :math:`\mathrm{SSP}(0) = 0`.
    threshold : float
        From :math:`\beta x` above it on, softplus is the identity. Default 20.
    """

    def __init__(self, beta: float = 1, shift: float = 2, threshold: float = 20) -> None:
        super().__init__()
        self.shift = shift
        self.softplus = nn.Softplus(beta=beta, threshold=threshold)

    def forward(self, inputs: Tensor) -> Tensor:
        """Apply the function to every number.

        Parameters
        ----------
        inputs : Tensor
            Any shape.

        Returns
        -------
        Tensor
            The same shape.
        """
        return self.softplus(inputs) - math.log(self.shift)


class CFConv(nn.Module):
    r"""Continuous-filter convolution, with the interface of ``dgl.nn.CFConv``.

    .. math::
        h'_v = \mathrm{SSP} \Big( W_{out} \sum_{e=(u \to v)} (W_{node} h_u) \circ f(x_e) + b \Big),
        \qquad f = \mathrm{SSP} \circ W_2 \circ \mathrm{SSP} \circ W_1

    with :math:`x_e` the features of an edge, such as an expansion of a distance, and
    :class:`ShiftedSoftplus` as SSP; every :math:`W` has a bias.

    Parameters
    ----------
    node_in_feats : int
        Width of the node features.
    edge_in_feats : int
        Width of the edge features.
    hidden_feats : int
        Width of the products.
    out_feats : int
        Output width.

    Notes
    -----
    Source: K. T. Schütt, P.-J. Kindermans, H. E. Sauceda, S. Chmiela, A. Tkatchenko, K.-R. Müller,
    "SchNet: A Continuous-Filter Convolutional Neural Network for Modeling Quantum Interactions",
    NeurIPS 2017, https://arxiv.org/abs/1706.08566.

    **Fused path.** Products and sum run in one CUDA kernel (``dgl_flash.ops.u_mul_e_sum``): there
    are no messages (E, hidden_feats) beside the filters (E, hidden_feats). The network that makes
    the filters is plain torch, and autograd keeps its activations. On the CPU plain torch computes
    the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import CFConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = CFConv(8, 3, 16, 5)
    >>> conv(graph, torch.randn(4, 8), torch.randn(4, 3)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self, node_in_feats: int, edge_in_feats: int, hidden_feats: int, out_feats: int
    ) -> None:
        super().__init__()
        self.project_edge = nn.Sequential(
            nn.Linear(edge_in_feats, hidden_feats),
            ShiftedSoftplus(),
            nn.Linear(hidden_feats, hidden_feats),
            ShiftedSoftplus(),
        )
        self.project_node = nn.Linear(node_in_feats, hidden_feats)
        self.project_out = nn.Sequential(nn.Linear(hidden_feats, out_feats), ShiftedSoftplus())

    def forward(
        self, g: Any, node_feats: Tensor | tuple[Tensor, Tensor], edge_feats: Tensor
    ) -> Tensor:
        """Convolve the features of the sources with the filters of the edges.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        node_feats : Tensor or pair of Tensor
            (N_src, node_in_feats). Of a pair only the source part is read.
        edge_feats : Tensor
            (E, edge_in_feats)

        Returns
        -------
        Tensor
            (N_dst, out_feats)

        Raises
        ------
        DGLError
            If node or edge features do not fit the graph.
        TypeError
            If ``g`` is no graph.
        RuntimeError
            If features have another dtype than the module.
        """
        struct = read_graph(self, g, node_feats)
        require_rows(edge_feats, struct.num_edges, "edges")
        feat_src, _ = expand_as_pair(node_feats)
        summed = ops.u_mul_e_sum(struct, self.project_node(feat_src), self.project_edge(edge_feats))
        return self.project_out(summed)
