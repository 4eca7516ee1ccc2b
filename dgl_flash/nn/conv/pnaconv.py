"""PNAConv: several statistics of the neighbours, each scaled by the degree in several ways."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.aggregators import (
    AGGREGATORS,
    SCALERS,
    STATISTICS,
    aggregate_max,
    aggregate_mean,
    aggregate_min,
    aggregate_moment_3,
    aggregate_moment_4,
    aggregate_moment_5,
    aggregate_std,
    aggregate_sum,
    aggregate_var,
    scale_amplification,
    scale_attenuation,
    scale_identity,
)
from dgl_flash.nn.common import (
    centre_of,
    computes_as,
    read_graph,
    require_one_node_set,
    require_rows,
)
from dgl_flash.nn.mailbox import edge_batch, reduce_mailboxes
from dgl_flash.nn.messages import Messages
from dgl_flash.structure import GraphStructure

__all__ = [
    "AGGREGATORS",
    "SCALERS",
    "PNAConv",
    "PNAConvTower",
    "aggregate_max",
    "aggregate_mean",
    "aggregate_min",
    "aggregate_moment_3",
    "aggregate_moment_4",
    "aggregate_moment_5",
    "aggregate_std",
    "aggregate_sum",
    "aggregate_var",
    "scale_amplification",
    "scale_attenuation",
    "scale_identity",
]


_OWN_SCALERS = (scale_identity, scale_amplification, scale_attenuation)


class PNAConvTower(nn.Module):
    r"""One tower of :class:`PNAConv`: a share of the features, aggregated on its own.

    .. math::
        h'_v = \mathrm{dropout} \Big( \mathrm{BN} \Big( \frac{1}{\sqrt{n}} \, U \big( h_v,
        \textstyle\bigoplus_{u \to v} M (h_u, h_v, a_{uv}) \big) \Big) \Big)

    with :math:`n` the number of nodes of the graph, of a batch that of each graph in it.

    Parameters
    ----------
    in_size, out_size : int
        Widths of the tower's share.
    aggregators, scalers : list of str
        Keys of ``AGGREGATORS`` and ``SCALERS``.
    delta : float
        The number that the scalers take.
    dropout : float
        Default 0.
    edge_feat_size : int
        Width of the edge features; with 0 they are not read. Default 0.
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        aggregators: Sequence[str],
        scalers: Sequence[str],
        delta: Any,
        dropout: float = 0.0,
        edge_feat_size: int = 0,
    ) -> None:
        super().__init__()
        self.in_size = in_size
        self.out_size = out_size
        self.aggregators = aggregators
        self.scalers = scalers
        self.delta = delta
        self.edge_feat_size = edge_feat_size
        self.M = nn.Linear(2 * in_size + edge_feat_size, in_size)
        self.U = nn.Linear((len(aggregators) * len(scalers) + 1) * in_size, out_size)
        self.dropout = nn.Dropout(dropout)
        self.batchnorm = nn.BatchNorm1d(out_size)

    def message(self, edges: Any) -> dict[str, Tensor]:
        """Compute the messages ``msg`` of edges whose ends are spelled out: a message function."""
        parts = [edges.src["h"], edges.dst["h"]]
        if self.edge_feat_size > 0:
            parts.append(edges.data["a"])
        return {"msg": self.M(torch.cat(parts, dim=-1))}

    def reduce_func(self, nodes: Any) -> dict[str, Tensor]:
        """Aggregate ``msg`` to ``h_neigh`` for nodes of one in-degree: a reduce function."""
        msg = nodes.mailbox["msg"]
        found = [self._aggregate(name, nodes) for name in self.aggregators]
        return {"h_neigh": self._scaled(torch.cat(found, dim=1), msg.shape[1])}

    def forward(self, graph: Any, node_feat: Tensor, edge_feat: Tensor | None = None) -> Tensor:
        """Aggregate the neighbours of all nodes.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph.
        node_feat : Tensor
            (N, in_size)
        edge_feat : Tensor, optional
            (E, edge_feat_size)

        Returns
        -------
        Tensor
            (N, out_size)
        """
        return self._run(graph, {"h": node_feat}, edge_feat)

    def _run(self, graph: Any, nodes: Mapping[str, Tensor], edge_feat: Tensor | None) -> Tensor:
        node_feat = nodes["h"]
        struct = read_graph(self, graph, node_feat)
        require_one_node_set(self, graph)
        for rows in nodes.values():
            require_rows(rows, struct.num_src)
        edges = {}
        if self.edge_feat_size > 0:
            if edge_feat is None:
                raise AssertionError("Edge features must be provided.")
            require_rows(edge_feat, struct.num_edges, "edges")
            edges["a"] = edge_feat
        if self._is_as_defined():
            h_neigh = self._from_statistics(struct, nodes, edges)
        else:
            h_neigh = self._from_mailboxes(struct, nodes, edges)
        out = self.U(torch.cat([node_feat, h_neigh], dim=-1))
        return self.dropout(self.batchnorm(_normalise(out, graph)))

    def _is_as_defined(self) -> bool:
        """Whether nobody has put a function of their own into the place of one of ours."""
        return (
            (type(self).message, type(self).reduce_func) == self._own_functions()
            and all(self._is_own(AGGREGATORS[name]) for name in self.aggregators)
            and all(SCALERS[name] in _OWN_SCALERS for name in self.scalers)
        )

    def _own_functions(self) -> tuple[Callable[..., Any], ...]:
        return PNAConvTower.message, PNAConvTower.reduce_func

    def _is_own(self, aggregator: Callable[..., Tensor]) -> bool:
        return aggregator in STATISTICS

    def _aggregate(self, name: str, nodes: Any) -> Tensor:
        return AGGREGATORS[name](nodes.mailbox["msg"])

    def _statistic(self, name: str, messages: Messages, nodes: Mapping[str, Tensor]) -> Tensor:
        return messages.statistic(STATISTICS[AGGREGATORS[name]])

    def _scaled(self, h: Tensor, degree: Any) -> Tensor:
        scaled = [
            h if name == "identity" else SCALERS[name](h, D=degree, delta=self.delta)
            for name in self.scalers
        ]
        return torch.cat(scaled, dim=1)

    def _from_statistics(
        self, struct: GraphStructure, nodes: Mapping[str, Tensor], edges: Mapping[str, Tensor]
    ) -> Tensor:
        messages = self._messages(struct, nodes, edges)
        found = [self._statistic(name, messages, nodes) for name in self.aggregators]
        degrees = struct.in_degrees().unsqueeze(1)
        h = torch.cat(found, dim=1).masked_fill(degrees == 0, 0)
        return self._scaled(h, degrees.clamp(min=1))

    def _messages(
        self, struct: GraphStructure, nodes: Mapping[str, Tensor], edges: Mapping[str, Tensor]
    ) -> Messages:
        functions = [AGGREGATORS[name] for name in self.aggregators]
        names = [STATISTICS[function] for function in functions if function in STATISTICS]
        if not computes_as(self.M, nn.Linear):
            msg = self.message(edge_batch(struct, nodes, edges))["msg"]
            return Messages(struct, msg, on_edges=True, names=names)
        node_feat = nodes["h"]
        width = node_feat.shape[-1]
        of_src, of_dst, of_edge = self.M.weight.tensor_split([width, 2 * width], dim=1)
        rows = F.linear(node_feat, of_src)
        centre = centre_of(rows)
        rows = rows - centre
        shift = F.linear(node_feat, of_dst, self.M.bias) + centre
        if not edges:
            return Messages(struct, rows, shift, names=names)
        rows = ops.e_add_u(struct, F.linear(edges["a"], of_edge), rows)
        return Messages(struct, rows, shift, on_edges=True, names=names)

    def _from_mailboxes(
        self, struct: GraphStructure, nodes: Mapping[str, Tensor], edges: Mapping[str, Tensor]
    ) -> Tensor:
        messages = self.message(edge_batch(struct, nodes, edges))
        found = reduce_mailboxes(
            struct, nodes, messages, lambda batch: self.reduce_func(batch)["h_neigh"]
        )
        if found is None:
            h = nodes["h"]
            found = h.new_zeros(struct.num_dst, self.U.in_features - self.in_size)
        return found


def _normalise(h: Tensor, graph: Any) -> Tensor:
    """Divide by the square root of the number of nodes, of each graph of a batch on its own."""
    sizes = graph.batch_num_nodes() if hasattr(graph, "batch_num_nodes") else None
    if sizes is None or len(sizes) == 1:
        return h * max(h.shape[0], 1) ** -0.5
    sizes = sizes.to(h.device)
    scale = sizes.double().rsqrt().to(h.dtype)
    return h * scale.repeat_interleave(sizes, output_size=h.shape[0]).unsqueeze(1)


class PNAConv(nn.Module):
    r"""Principal neighbourhood aggregation, with the interface of ``dgl.nn.PNAConv``.

    .. math::
        h'_v &= h_v + \mathrm{LeakyReLU} \big( W \, [h^{(1)}_v, \ldots, h^{(T)}_v] + b \big)

        h^{(t)}_v &= \mathrm{dropout} \Big( \mathrm{BN} \Big( \frac{1}{\sqrt{n}} \, U_t \big[ h_v,
        (s (d_v) \, A \{ M_t [h_u, h_v, a_{uv}] : u \to v \})_{s, A} \big] \Big) \Big)

    Each of the :math:`T` towers reads its share of the features; :math:`A` runs over the
    aggregators and :math:`s` over the scalers, :math:`d` is the in-degree, :math:`n` the number of
    nodes (in a batch: of each graph) and :math:`a` the features of the edges. Nodes without
    in-edges aggregate 0.

    Parameters
    ----------
    in_size : int
        Input width, a multiple of ``num_towers``.
    out_size : int
        Output width, a multiple of ``num_towers``.
    aggregators : list of str
        Among ``"mean"``, ``"sum"``, ``"max"``, ``"min"``, ``"var"``, ``"std"``, and ``"moment3"``,
        ``"moment4"``, ``"moment5"``: :math:`\sqrt[n]{E[(x - E[x])^n]}` with the sign of the
        radicand.
    scalers : list of str
        Among ``"identity"``, ``"amplification"`` :math:`\log (d + 1) / \delta` and
        ``"attenuation"`` :math:`\delta / \log (d + 1)`.
    delta : float
        :math:`\delta`, the mean of :math:`\log (d + 1)` over the nodes of the training set.
    dropout : float
        Default 0.
    num_towers : int
        :math:`T`. Default 1.
    edge_feat_size : int
        Width of the edge features; with 0 they are not read. Default 0.
    residual : bool
        Add the input, where it has the output width. Default True.

    Attributes
    ----------
    towers : nn.ModuleList of PNAConvTower
        With ``M``, ``U`` and ``batchnorm`` each.
    mixing_layer : nn.Sequential
        :math:`W`, :math:`b` and the activation.

    Raises
    ------
    AssertionError
        If a width is no multiple of ``num_towers``.

    Notes
    -----
    Source: G. Corso, L. Cavalleri, D. Beaini, P. Liò, P. Veličković, "Principal Neighbourhood
    Aggregation for Graph Nets", NeurIPS 2020, https://arxiv.org/abs/2004.05718.

    Where DGL is wrong: a graph without edges works. Where a variance or a moment is 0, as with one
    in-edge, root and gradient are 0 in float16 too, where they are NaN in DGL.

    **Fused path.** :math:`M` is linear: it is applied to the nodes, and the part of the destination
    is added to the aggregates. Mean, sum, maximum, minimum, variance and standard deviation come
    from one call (``dgl_flash.ops.statistics``): on CUDA its kernel reads each neighbour's row once
    for all of them, and so does its backward; no tensor of the size of the edges exists for these.
    Moments make the deviations from the mean (E, F) once for all and a power of them each. With
    edge features the messages without their destination are one tensor (E, F), and each power of
    them another. On the CPU one statistic is taken after the other, and a variance of messages with
    edge features makes their squares (E, F). Scaling, the two linear maps and the normalisations
    are plain torch, one tower after the other. Where ``M`` has hooks or has been replaced, it is
    called on the ends of all edges; where ``message`` or ``reduce_func`` is overridden, or
    ``AGGREGATORS`` or ``SCALERS`` hold a function of the user, these are called on the mailboxes of
    one in-degree at a time, as in DGL.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import PNAConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = PNAConv(8, 6, ["mean", "max", "std"], ["identity", "amplification"], delta=2.5)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 6])
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        aggregators: Sequence[str],
        scalers: Sequence[str],
        delta: Any,
        dropout: float = 0.0,
        num_towers: int = 1,
        edge_feat_size: int = 0,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.in_size = in_size
        self.out_size = out_size
        for name, size in (("in_size", in_size), ("out_size", out_size)):
            if size % num_towers != 0:
                raise AssertionError(f"{name} must be divisible by num_towers")
        self.tower_in_size = in_size // num_towers
        self.tower_out_size = out_size // num_towers
        self.edge_feat_size = edge_feat_size
        self.residual = residual and in_size == out_size
        sizes = self.tower_in_size, self.tower_out_size
        self.towers = nn.ModuleList(
            PNAConvTower(*sizes, aggregators, scalers, delta, dropout, edge_feat_size)
            for _ in range(num_towers)
        )
        self.mixing_layer = nn.Sequential(nn.Linear(out_size, out_size), nn.LeakyReLU())

    def forward(self, graph: Any, node_feat: Tensor, edge_feat: Tensor | None = None) -> Tensor:
        """Aggregate the neighbours of all nodes, tower by tower, and mix the results.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph, or a batch of them; it may stay on the CPU while the features are
            on a GPU.
        node_feat : Tensor
            (N, in_size)
        edge_feat : Tensor, optional
            (E, edge_feat_size) in edge-id order.

        Returns
        -------
        Tensor
            (N, out_size)

        Raises
        ------
        AssertionError
            If the layer reads edge features and there are none, as in DGL.
        DGLError
            If there is not one row a node or edge, or the graph has more than one set of nodes.
        KeyError
            If an aggregator or scaler is unknown.
        TypeError
            If ``graph`` is no graph.
        RuntimeError
            If features have another width or dtype than the module.
        """
        return self._mix(graph, node_feat, edge_feat)

    def _mix(self, graph: Any, node_feat: Tensor, *others: Tensor | None) -> Tensor:
        read_graph(self, graph, node_feat)  # and refuse what is none before features are cut
        size = self.tower_in_size
        shares = [
            tower(graph, node_feat[:, i * size : (i + 1) * size], *others)
            for i, tower in enumerate(self.towers)
        ]
        out = self.mixing_layer(torch.cat(shares, dim=1))
        return out + node_feat if self.residual else out
