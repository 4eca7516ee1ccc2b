"""SortPooling: the nodes with the largest features of each graph, in order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from dgl_flash.errors import dgl_error
from dgl_flash.nn.glob.common import read_members
from dgl_flash.structure.members import Members


class SortPooling(nn.Module):
    r"""The ``k`` nodes of each graph with the largest feature, as ``dgl.nn.SortPooling``.

    .. math::
        r_i = \big\Vert_{j=1}^{k} \mathrm{sort}(h_{v_j}), \qquad
        \max h_{v_1} \ge \max h_{v_2} \ge \dots, \quad v_j \in G_i

    where the features of each node are sorted upwards, and zeros stand for nodes that a graph of
    fewer than ``k`` does not have.

    Parameters
    ----------
    k : int
        Number of nodes of each graph.

    Notes
    -----
    Source: M. Zhang, Z. Cui, M. Neumann, Y. Chen, "An End-to-End Deep Learning Architecture for
    Graph Classification", AAAI 2018, https://www.cse.wustl.edu/~ychen/public/DGCNN.pdf.

    Of several equal nodes the first comes first, on every device; DGL leaves it open. Infinite
    features are replaced by 0, as in DGL.

    Where DGL is wrong: a graph without nodes is k rows of 0 wherever it stands in the batch. DGL
    raises an IndexError if it is the last one, and otherwise mixes up the nodes of the others.

    **Fused path.** Plain torch: two sorts of N numbers order the nodes of all graphs at once, and
    only B * k rows are gathered and sorted. No batch is filled up to its largest graph, so that
    memory does not depend on how sizes differ, and the host waits for nothing if the graph is on
    the CPU.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SortPooling
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> SortPooling(2)(graph, torch.tensor([[1.0, 6.0], [9.0, 4.0], [5.0, 2.0]]))
    tensor([[4., 9., 1., 6.]])
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Gather the first nodes of each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, D)

        Returns
        -------
        Tensor
            (B, k * D), zero where a graph has too few nodes.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor of floats.
        DGLError
            If ``feat`` has more than two dimensions, there is not one row a node, or there are
            several sets of nodes.
        ValueError
            If ``feat`` has one dimension.
        """
        members = read_members(self, graph, feat)
        if feat.dim() > 2:
            raise dgl_error("Only support nodes feature `h` with dimension less than or equal to 2")
        if feat.dim() < 2:
            raise ValueError(
                f"SortPooling: expected `feat` of shape (N, D), got {tuple(feat.shape)}; "
                "pass feat.unsqueeze(1)"
            )
        if not feat.is_floating_point():
            raise TypeError(
                f"SortPooling: expected `feat` of a floating-point dtype, got {feat.dtype}; "
                "pass feat.float()"
            )
        nodes = _first_nodes(members, feat.detach().amax(dim=-1), self.k)
        # The row after the last node stands for nodes that are not there.
        rows = pad(feat, (0, 0, 0, 1))[nodes].sort(dim=-1).values
        return rows.masked_fill(rows.isinf(), 0).reshape(members.num_members, -1)


def _first_nodes(members: Members, key: Tensor, k: int) -> Tensor:
    """Nodes of each member with the largest keys, (B, k); N where there is none."""
    adj = members.struct.in_adj
    order = key.argsort(descending=True, stable=True)
    # Another stable sort brings members together and keeps that order within each.
    order = order[adj.rows()[order].argsort(stable=True)]
    starts, ends = adj.indptr[:-1].long().unsqueeze(1), adj.indptr[1:].long().unsqueeze(1)
    places = starts + torch.arange(k, device=key.device)
    places = places.where(places < ends, key.numel())
    return pad(order, (0, 1), value=key.numel())[places]
