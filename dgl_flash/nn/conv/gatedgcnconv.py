"""GatedGCNConv: edges with features of their own, through which they gate their messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import read_graph, require_one_node_set, require_rows

_EPSILON = 1e-6


class GatedGCNConv(nn.Module):
    r"""Gated graph convolution, with the interface of ``dgl.nn.GatedGCNConv``.

    .. math::
        y_{uv} &= D h_u + E h_v + C x_{uv}, \qquad
        z_v = A h_v + \frac{\sum_{u \to v} \sigma(y_{uv}) \circ B h_u}
            {\sum_{u \to v} \sigma(y_{uv}) + 10^{-6}}

        h'_v &= \mathrm{dropout} \big( h_v + \phi (\mathrm{BN}(z_v)) \big), \qquad
        x'_{uv} = \mathrm{dropout} \big( x_{uv} + \phi (\mathrm{BN}(y_{uv})) \big)

    with :math:`x` the features of the edges and :math:`\sigma` the sigmoid; every matrix has a
    bias.

    Parameters
    ----------
    input_feats : int
        Width of the node features.
    edge_feats : int
        Width of the edge features.
    output_feats : int
        Output width of both.
    dropout : float
        Default 0.
    batch_norm : bool
        Normalise nodes and edges over the batch. Default True. The two modules exist either way.
    residual : bool
        Add the input, where all three widths are equal. Default True.
    activation : callable, optional
        :math:`\phi`. Default ``torch.nn.functional.relu``.

    Attributes
    ----------
    A, B, D, E : nn.Linear
        From input_feats to output_feats.
    C : nn.Linear
        From edge_feats to output_feats.
    bn_node, bn_edge : nn.BatchNorm1d
        The normalisations.

    Notes
    -----
    Source: V. P. Dwivedi, C. K. Joshi, A. T. Luu, T. Laurent, Y. Bengio, X. Bresson, "Benchmarking
    Graph Neural Networks", JMLR 2023, https://arxiv.org/abs/2003.00982.

    **Fused path.** The sums over the two ends of an edge (``dgl_flash.ops.e_add_u``, ``e_add_v``),
    the gated sum over the neighbours (``u_mul_e_sum``) and the sum of the gates (``copy_e_sum``)
    are one CUDA kernel each; there are no messages. What is edge-sized is inherent, since the layer
    returns edge features: :math:`y`, the gates, and what normalisation, activation, residual and
    dropout make of :math:`y` in plain torch. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GatedGCNConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GatedGCNConv(8, 3, 5)
    >>> nodes, edges = conv(graph, torch.randn(4, 8), torch.randn(4, 3))
    >>> nodes.shape, edges.shape
    (torch.Size([4, 5]), torch.Size([4, 5]))
    """

    def __init__(
        self,
        input_feats: int,
        edge_feats: int,
        output_feats: int,
        dropout: float = 0,
        batch_norm: bool = True,
        residual: bool = True,
        activation: Callable[[Tensor], Tensor] | None = F.relu,
    ) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.batch_norm = batch_norm
        self.residual = residual and input_feats == edge_feats == output_feats
        self.A = nn.Linear(input_feats, output_feats)
        self.B = nn.Linear(input_feats, output_feats)
        self.D = nn.Linear(input_feats, output_feats)
        self.E = nn.Linear(input_feats, output_feats)
        self.C = nn.Linear(edge_feats, output_feats)
        self.bn_node = nn.BatchNorm1d(output_feats)
        self.bn_edge = nn.BatchNorm1d(output_feats)
        self.activation = activation

    def forward(self, graph: Any, feat: Tensor, edge_feat: Tensor) -> tuple[Tensor, Tensor]:
        """Update the features of nodes and edges.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, input_feats)
        edge_feat : Tensor
            (E, edge_feats)

        Returns
        -------
        Tensor, Tensor
            (N, output_feats) and (E, output_feats), in edge-id order.

        Raises
        ------
        DGLError
            If node or edge features do not fit the graph, or the graph has more than one set of
            nodes.
        TypeError
            If ``graph`` is no graph.
        RuntimeError
            If features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat)
        require_one_node_set(self, graph)
        require_rows(edge_feat, struct.num_edges, "edges")
        # One end after the other, and not both at first, which would make a third tensor of edges.
        edge_out = ops.e_add_u(struct, self.C(edge_feat), self.D(feat))
        edge_out = ops.e_add_v(struct, edge_out, self.E(feat))
        gate = torch.sigmoid(edge_out)
        gated = ops.u_mul_e_sum(struct, self.B(feat), gate)
        out = self.A(feat) + gated / (ops.copy_e_sum(struct, gate) + _EPSILON)
        return self._finish(out, feat, self.bn_node), self._finish(
            edge_out, edge_feat, self.bn_edge
        )

    def _finish(self, value: Tensor, before: Tensor, norm: nn.Module) -> Tensor:
        """What nodes and edges have in common."""
        if self.batch_norm:
            value = norm(value)
        if self.activation:
            value = self.activation(value)
        if self.residual:
            value = before + value
        return self.dropout(value)
