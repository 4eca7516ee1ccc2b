"""EGNNConv: features and coordinates of nodes, equivariant to motions of space."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, read_graph, require_one_node_set, require_rows
from dgl_flash.nn.mailbox import edge_batch
from dgl_flash.structure import GraphStructure


class EGNNConv(nn.Module):
    r"""E(n)-equivariant graph convolution, with the interface of ``dgl.nn.EGNNConv``.

    .. math::
        m_{uv} &= \phi_e (h_u, h_v, \|x_u - x_v\|^2, a_{uv}) \\
        x'_v &= x_v + \frac{1}{d_v} \sum_{u \to v}
            \frac{x_u - x_v}{\|x_u - x_v\|} \, \phi_x (m_{uv}) \\
        h'_v &= \phi_h \Big( h_v, \sum_{u \to v} m_{uv} \Big)

    with :math:`d_v` the in-degree, :math:`a` the features of the edges, and networks of two layers
    with SiLU for :math:`\phi`. Nodes without in-edges keep their coordinates. Points that
    coincide have no direction: theirs is 0, and so is its derivative.

    Parameters
    ----------
    in_size : int
        Width of the node features.
    hidden_size : int
        Width of the messages and of the hidden layers.
    out_size : int
        Output width of the node features.
    edge_feat_size : int
        Width of the edge features; with 0 they are not read. Default 0.

    Attributes
    ----------
    edge_mlp, node_mlp, coord_mlp : nn.Sequential
        :math:`\phi_e`, :math:`\phi_h` and :math:`\phi_x`.

    Notes
    -----
    Source: V. G. Satorras, E. Hoogeboom, M. Welling, "E(n) Equivariant Graph Neural Networks", ICML
    2021, https://arxiv.org/abs/2102.09844. That the direction has length 1, and that it points to
    the source, is DGL's.

    Where DGL is wrong: at self-loops and between points that coincide, its gradients of the
    coordinates are NaN, and with float16 so are its results.

    **Fused path.** The first layer of :math:`\phi_e` is linear in each of its arguments: it is
    applied to the nodes, and its sum over the two ends of an edge is one CUDA kernel
    (``dgl_flash.ops.u_add_v``), so that no row (E, 2 * in_size + ...) is put together. Sum and mean
    over the neighbours (``copy_e_sum``, ``copy_e_mean``) are one CUDA kernel each. The rest of
    :math:`\phi_e`, :math:`\phi_x` and the lengths are plain torch, and their activations (E,
    hidden_size) are inherent: each edge goes through networks of its own, and autograd keeps them.
    Where ``message`` is overridden, or ``edge_mlp`` or its first layer has hooks or has been
    replaced, ``message`` is called with the ends of all edges spelled out. On the CPU plain torch
    computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import EGNNConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = EGNNConv(8, 16, 5, edge_feat_size=2)
    >>> h, x = conv(graph, torch.randn(4, 8), torch.randn(4, 3), torch.randn(4, 2))
    >>> h.shape, x.shape
    (torch.Size([4, 5]), torch.Size([4, 3]))
    """

    def __init__(
        self, in_size: int, hidden_size: int, out_size: int, edge_feat_size: int = 0
    ) -> None:
        super().__init__()
        self.in_size = in_size
        self.hidden_size = hidden_size
        self.out_size = out_size
        self.edge_feat_size = edge_feat_size
        activation = nn.SiLU()
        self.edge_mlp = nn.Sequential(
            nn.Linear(2 * in_size + edge_feat_size + 1, hidden_size),
            activation,
            nn.Linear(hidden_size, hidden_size),
            activation,
        )
        self.node_mlp = nn.Sequential(
            nn.Linear(in_size + hidden_size, hidden_size),
            activation,
            nn.Linear(hidden_size, out_size),
        )
        self.coord_mlp = nn.Sequential(
            nn.Linear(hidden_size, hidden_size),
            activation,
            nn.Linear(hidden_size, 1, bias=False),
        )

    def message(self, edges: Any) -> dict[str, Tensor]:
        """Compute the messages of edges whose ends are spelled out.

        Parameters
        ----------
        edges : edge batch
            With ``h`` in ``src`` and ``dst``, and ``radial``, ``x_diff`` and ``a`` in ``data``,
            one row an edge.

        Returns
        -------
        dict of str to Tensor
            ``msg_h`` (E, hidden_size) for the features and ``msg_x`` (E, D) for the coordinates.
        """
        parts = [edges.src["h"], edges.dst["h"], edges.data["radial"]]
        if self.edge_feat_size > 0:
            parts.append(edges.data["a"])
        msg_h = self.edge_mlp(torch.cat(parts, dim=-1))
        return {"msg_x": self.coord_mlp(msg_h) * edges.data["x_diff"], "msg_h": msg_h}

    def forward(
        self, graph: Any, node_feat: Tensor, coord_feat: Tensor, edge_feat: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Update the features and the coordinates of the nodes.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        node_feat : Tensor
            (N, in_size)
        coord_feat : Tensor
            (N, D) with any number D of coordinates.
        edge_feat : Tensor, optional
            (E, edge_feat_size) in edge-id order.

        Returns
        -------
        Tensor, Tensor
            (N, out_size) and (N, D).

        Raises
        ------
        AssertionError
            If the layer reads edge features and there are none, as in DGL.
        DGLError
            If there is not one row a node or edge, or the graph has more than one set of nodes.
        TypeError
            If ``graph`` is no graph.
        RuntimeError
            If features have another width or dtype than the module.
        """
        struct = read_graph(self, graph, node_feat)
        require_one_node_set(self, graph)
        require_rows(coord_feat, struct.num_src)
        data = {}
        if self.edge_feat_size > 0:
            if edge_feat is None:
                raise AssertionError("Edge features must be provided.")
            require_rows(edge_feat, struct.num_edges, "edges")
            data["a"] = edge_feat
        offset = ops.u_sub_v(struct, coord_feat, coord_feat)
        data["radial"] = offset.square().sum(dim=1).unsqueeze(-1)
        data["x_diff"] = offset * _inverse_root(data["radial"])
        if self._is_split():
            msg_h = self._message_of_nodes(struct, node_feat, data)
            messages = {"msg_x": self.coord_mlp(msg_h) * data["x_diff"], "msg_h": msg_h}
        else:
            nodes = {"h": node_feat, "x": coord_feat}
            messages = self.message(edge_batch(struct, nodes, data))
        coord_out = coord_feat + ops.copy_e_mean(struct, messages["msg_x"])
        summed = ops.copy_e_sum(struct, messages["msg_h"])
        return self.node_mlp(torch.cat([node_feat, summed], dim=-1)), coord_out

    def _is_split(self) -> bool:
        """Whether the first layer of the edges may be applied to the nodes."""
        return (
            type(self).message is EGNNConv.message
            and computes_as(self.edge_mlp, nn.Sequential)
            and computes_as(self.edge_mlp[0], nn.Linear)
        )

    def _message_of_nodes(
        self, struct: GraphStructure, node_feat: Tensor, data: dict[str, Tensor]
    ) -> Tensor:
        first: Any = self.edge_mlp[0]
        width = node_feat.shape[-1]
        of_src, of_dst, of_edge = first.weight.tensor_split([width, 2 * width], dim=1)
        msg = ops.u_add_v(
            struct, F.linear(node_feat, of_src), F.linear(node_feat, of_dst, first.bias)
        )
        given = [data[name] for name in ("radial", "a") if name in data]
        msg = torch.addmm(msg, torch.cat(given, dim=-1), of_edge.t())
        for module in list(self.edge_mlp)[1:]:
            msg = module(msg)
        return msg


def _inverse_root(square: Tensor) -> Tensor:
    """1 / sqrt(x); at 0 it is 0, and so are its derivatives."""
    is_zero = square == 0
    return square.masked_fill(is_zero, 1).rsqrt().masked_fill(is_zero, 0)
