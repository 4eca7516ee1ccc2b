"""EdgeConv: the maximum, over the neighbours, of a linear map of differences."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import (
    centre_of,
    computes_as,
    expand_as_pair,
    read_graph,
    require_rows,
)
from dgl_flash.structure import GraphStructure


class EdgeConv(nn.Module):
    r"""Edge convolution of dynamic graph CNNs, with the interface of ``dgl.nn.EdgeConv``.

    .. math::
        h'_v = \max_{u \to v} \nu \big( \Theta (x_v - x_u) + \Phi x_v \big)

    with a bias in both maps, and :math:`\nu` a batch normalisation over the edges if one is asked
    for, else the identity. The maximum is taken for each feature; it is 0 without in-edges.

    Parameters
    ----------
    in_feat : int
        Input width.
    out_feat : int
        Output width.
    batch_norm : bool
        Normalise the messages over all edges. Default False.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive 0. Default False.

    Attributes
    ----------
    theta, phi : nn.Linear
        :math:`\Theta` and :math:`\Phi`.
    bn : nn.BatchNorm1d
        :math:`\nu`, with ``batch_norm`` only.

    Notes
    -----
    Source: Y. Wang, Y. Sun, Z. Liu, S. E. Sarma, M. M. Bronstein, J. M. Solomon, "Dynamic Graph CNN
    for Learning on Point Clouds", ACM Transactions on Graphics 2019,
    https://arxiv.org/abs/1801.07829. The formula is DGL's, whose difference is that of destination
    and source and not the other way round.

    Where DGL is wrong: on a homogeneous graph the parts of a pair stay apart, where DGL lets the
    destinations overwrite the sources. If a graph has no edge at all, there is a gradient, and it
    is 0; DGL's backward pass fails. An infinite or undefined :math:`x_v` is seen in the result,
    where DGL makes 0 of such a maximum.

    **Fused path.** :math:`\Theta` is linear: it is applied to the nodes, and what remains of the
    maximum is the minimum of :math:`\Theta x_u` over the sources (``dgl_flash.ops.gspmm``); there
    are no differences and no messages. The rows are measured from their mean, which cancels, so
    that point clouds far from 0 lose no digits. On CUDA the minimum is one kernel and its gradient
    another; no tensor has the size of the edges, on the CPU neither. With batch normalisation the
    messages (E, out_feat) exist, made from both ends by one CUDA kernel (``dgl_flash.ops.gsddmm``),
    and so do the normalised ones, whose maximum is one more. Where ``theta`` has hooks or has been
    replaced, it is called on the differences, an edge each.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import EdgeConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = EdgeConv(8, 5)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        batch_norm: bool = False,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        self.batch_norm = batch_norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.theta = nn.Linear(in_feat, out_feat)
        self.phi = nn.Linear(in_feat, out_feat)
        if batch_norm:
            self.bn = nn.BatchNorm1d(out_feat)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept destinations without in-edges, or refuse them.

        Parameters
        ----------
        set_value : bool
            Whether to accept them.
        """
        self._allow_zero_in_degree = set_value

    def forward(self, g: Any, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        r"""Find the largest message of every destination.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*, in_feat); on a block the first rows are the destinations. A pair holds
            (N_src, \*, in_feat) and (N_dst, \*, in_feat).

        Returns
        -------
        Tensor
            (N_dst, \*, out_feat)

        Raises
        ------
        DGLError
            If there are nodes without in-edges and they are not allowed, or there is not one row a
            node.
        TypeError
            If ``g`` is no graph.
        RuntimeError
            If features have another width or dtype than the module.
        """
        struct = read_graph(self, g, feat, self._allow_zero_in_degree)
        feat_src, feat_dst = expand_as_pair(feat, g)
        require_rows(feat_dst, struct.num_dst)
        if computes_as(self.theta, nn.Linear):
            of_src, of_dst = self._split(feat_src, feat_dst)
            if not self.batch_norm:
                return self._without_messages(struct, of_src, of_dst)
            messages = ops.v_sub_u(struct, of_dst, of_src)
        else:
            differences = ops.v_sub_u(struct, feat_dst, feat_src)
            messages = ops.e_add_v(struct, self.theta(differences), self.phi(feat_dst))
        if self.batch_norm:
            messages = self.bn(messages)
        return ops.copy_e_max(struct, messages)

    def _split(self, feat_src: Tensor, feat_dst: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of sources and destinations whose difference is the message."""
        centre = centre_of(feat_src)
        of_src = F.linear(feat_src - centre, self.theta.weight)
        if feat_dst is feat_src:
            of_dst = of_src
        else:
            of_dst = F.linear(feat_dst - centre, self.theta.weight)
        if self.theta.bias is not None:
            of_dst = of_dst + self.theta.bias
        return of_src, of_dst + self.phi(feat_dst)

    def _without_messages(self, struct: GraphStructure, of_src: Tensor, of_dst: Tensor) -> Tensor:
        out = of_dst - ops.copy_u_min(struct, of_src)
        if not self._allow_zero_in_degree:
            return out
        is_alone = struct.in_degrees() == 0
        return out.masked_fill(is_alone.reshape(-1, *(1,) * (out.dim() - 1)), 0)
