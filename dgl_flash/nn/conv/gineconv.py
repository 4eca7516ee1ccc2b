"""GINEConv, the layer of the graph isomorphism network with edge features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph, require_rows


class GINEConv(nn.Module):
    r"""Graph isomorphism layer with edge features, with the interface of ``dgl.nn.GINEConv``.

    .. math::
        h'_v = f \left( (1 + \epsilon) h_v + \sum_{e=(u \to v)} \mathrm{relu}(h_u + x_e) \right)

    Parameters
    ----------
    apply_func : callable, optional
        :math:`f`, usually a module: a linear layer or a multilayer perceptron.
    init_eps : float
        First value of :math:`\epsilon`. Default 0.
    learn_eps : bool
        Whether :math:`\epsilon` is a parameter. Default False.

    Attributes
    ----------
    eps : Parameter or buffer
        (1,)

    Notes
    -----
    Source: W. Hu, B. Liu, J. Gomes, M. Zitnik, P. Liang, V. Pande, J. Leskovec, "Strategies for
    Pre-training Graph Neural Networks", ICLR 2020, https://arxiv.org/abs/1905.12265.

    **Fused path.** The messages are made by one CUDA kernel (``dgl_flash.ops.u_add_e``), rectified
    in place and summed by a second one (``dgl_flash.ops.copy_e_sum``): one tensor of the size of
    the edges beside the edge features, kept for the backward pass.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GINEConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GINEConv(torch.nn.Linear(8, 5))
    >>> conv(graph, torch.randn(4, 8), torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    eps: Tensor

    def __init__(
        self,
        apply_func: Callable[[Tensor], Tensor] | None = None,
        init_eps: float = 0,
        learn_eps: bool = False,
    ) -> None:
        super().__init__()
        self.apply_func = apply_func
        eps = torch.tensor([init_eps], dtype=torch.float32)
        if learn_eps:
            self.eps = nn.Parameter(eps)
        else:
            self.register_buffer("eps", eps)

    def message(self, edges: Any) -> dict[str, Tensor]:
        """Messages of a batch of edges, for ``DGLGraph.apply_edges`` and ``update_all``.

        Parameters
        ----------
        edges : dgl.udf.EdgeBatch
            With ``hn`` at the sources and ``he`` at the edges.

        Returns
        -------
        dict
            ``m``. :meth:`forward` computes the same by itself: in a subclass, override that.
        """
        return {"m": functional.relu(edges.src["hn"] + edges.data["he"])}

    def forward(
        self, graph: Any, node_feat: Tensor | tuple[Tensor, Tensor], edge_feat: Tensor
    ) -> Tensor:
        r"""Add every destination and the messages of its in-edges.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        node_feat : Tensor or pair of Tensor
            (N, \*); on a block the first rows are the destinations. A pair holds (N_src, \*) and
            (N_dst, \*).
        edge_feat : Tensor
            (E, \*); its dimensions and those of the features may be 1 where the others are not. Of
            two dtypes, one of which may be of integers, the result has the wider one, as in DGL.

        Returns
        -------
        Tensor
            (N_dst, \*), or what ``apply_func`` makes of it.

        Raises
        ------
        DGLError
            If the features do not broadcast, or have not one row a source or edge.
        TypeError
            If ``graph`` is no graph.
        """
        struct = read_graph(self, graph, node_feat)
        require_rows(edge_feat, struct.num_edges, "edges")
        feat_src, feat_dst = expand_as_pair(node_feat, graph)
        if isinstance(edge_feat, Tensor) and edge_feat.dtype != feat_src.dtype:
            dtype = torch.promote_types(feat_src.dtype, edge_feat.dtype)
            feat_src, edge_feat = feat_src.to(dtype), edge_feat.to(dtype)
        messages = functional.relu(ops.u_add_e(struct, feat_src, edge_feat), inplace=True)
        out = (1 + self.eps) * feat_dst + ops.copy_e_sum(struct, messages)
        return out if self.apply_func is None else self.apply_func(out)
