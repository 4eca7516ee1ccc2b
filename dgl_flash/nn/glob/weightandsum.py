"""WeightAndSum: a sum over the nodes of each graph, weighted by learned importance."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.glob.common import read_members, weighted_sum


class WeightAndSum(nn.Module):
    r"""Sum of nodes by their importance, with the interface of ``dgl.nn.WeightAndSum``.

    .. math::
        r_i = \sum_{v \in G_i} \mathrm{sigmoid}(\langle w, h_v \rangle + b) \, h_v

    Parameters
    ----------
    in_feats : int
        Width of the features and of the result.

    Attributes
    ----------
    atom_weighting : Sequential
        A Linear from ``in_feats`` to 1 with :math:`w` and :math:`b`, and the sigmoid.

    Notes
    -----
    Source: M. Li et al., "DGL-LifeSci: An Open-Source Toolkit for Deep Learning on Graphs in Life
    Science", ACS Omega 2021, https://arxiv.org/abs/2106.14232.

    **Fused path.** One CUDA kernel (``dgl_flash.ops.gspmm``) multiplies and adds in one pass: no
    product of features and weights is written, forward or backward. Two runs do not differ in a
    bit.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import WeightAndSum
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> WeightAndSum(4)(graph, torch.randn(3, 4)).shape
    torch.Size([1, 4])
    """

    def __init__(self, in_feats: int) -> None:
        super().__init__()
        self.in_feats = in_feats
        self.atom_weighting = nn.Sequential(nn.Linear(in_feats, 1), nn.Sigmoid())

    def forward(self, g: Any, feats: Tensor) -> Tensor:
        r"""Weigh and add up the nodes of each graph.

        Parameters
        ----------
        g : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feats : Tensor
            (N, \*, in_feats)

        Returns
        -------
        Tensor
            (B, \*, in_feats), zero for a graph without nodes.

        Raises
        ------
        TypeError
            If ``g`` is no graph, or ``feats`` no tensor.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        RuntimeError
            If the features have another dtype or width than the module.
        """
        members = read_members(self, g, feats)
        return weighted_sum(members, feats, self.atom_weighting(feats))
