"""GlobalAttentionPooling: a sum over the nodes of each graph, weighted by a softmax."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.glob.common import read_members, softmax_members, weighted_sum


class GlobalAttentionPooling(nn.Module):
    r"""Sum weighted by attention, with the interface of ``dgl.nn.GlobalAttentionPooling``.

    .. math::
        \alpha_v = \mathrm{softmax}_{v \in G_i} (f_{gate}(h_v)), \qquad
        r_i = \sum_{v \in G_i} \alpha_v \, f_{feat}(h_v)

    Parameters
    ----------
    gate_nn : nn.Module
        :math:`f_{gate}`, from the features to one number a node.
    feat_nn : nn.Module, optional
        :math:`f_{feat}`; without it the features themselves are summed up.

    Notes
    -----
    Source: Y. Li, D. Tarlow, M. Brockschmidt, R. Zemel, "Gated Graph Sequence Neural Networks",
    ICLR 2016, https://arxiv.org/abs/1511.05493.

    **Fused path.** Two CUDA kernels: ``dgl_flash.ops.edge_softmax`` over the nodes of each graph,
    and ``dgl_flash.ops.gspmm``, which multiplies and adds in one pass, so that no product of
    features and attention is written, forward or backward. Two runs do not differ in a bit.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GlobalAttentionPooling
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> pool = GlobalAttentionPooling(torch.nn.Linear(4, 1), torch.nn.Linear(4, 6))
    >>> pool(graph, torch.randn(3, 4)).shape
    torch.Size([1, 6])
    """

    def __init__(
        self,
        gate_nn: Callable[[Tensor], Tensor],
        feat_nn: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.gate_nn = gate_nn
        self.feat_nn = feat_nn

    def forward(
        self, graph: Any, feat: Tensor, get_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Weigh and add up the nodes of each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*, D)
        get_attention : bool, optional
            Also return :math:`\alpha`.

        Returns
        -------
        Tensor
            (B, \*, D'), with the width of what ``feat_nn`` gives; zero for a graph without nodes.
        Tensor
            :math:`\alpha`, (N, \*, 1), only with ``get_attention``.

        Raises
        ------
        AssertionError
            If ``gate_nn`` does not give one number a node, as in DGL.
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        RuntimeError
            If the features have another dtype or width than ``gate_nn``.
        """
        members = read_members(self, graph, feat)
        gate = self.gate_nn(feat)
        if gate.shape[-1] != 1:
            raise AssertionError("The output of gate_nn should have size 1 at the last axis.")
        feat = self.feat_nn(feat) if self.feat_nn else feat
        gate = softmax_members(members, gate)
        readout = weighted_sum(members, feat, gate)
        return (readout, gate) if get_attention else readout
