"""DGNConv: neighbours weighed by the direction in which they lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.conv.pnaconv import AGGREGATORS, PNAConv, PNAConvTower
from dgl_flash.nn.messages import Messages
from dgl_flash.structure import GraphStructure


def aggregate_dir_av(h: Tensor, eig_s: Tensor, eig_d: Tensor, eig_idx: int) -> Tensor:
    """Average over the second dimension along a direction, whose sign does not count.

    Parameters
    ----------
    h : Tensor
        Messages, (B, degree, F).
    eig_s, eig_d : Tensor
        Eigenvectors at both ends of their edges, (B, degree, K).
    eig_idx : int
        Which one of K.

    Returns
    -------
    Tensor
        (B, F)
    """
    weight = _shares(eig_s[:, :, eig_idx] - eig_d[:, :, eig_idx]).abs()
    return (h * weight.unsqueeze(-1)).sum(dim=1)


def aggregate_dir_dx(h: Tensor, eig_s: Tensor, eig_d: Tensor, h_in: Tensor, eig_idx: int) -> Tensor:
    """Size of the derivative along a direction.

    Parameters
    ----------
    h : Tensor
        Messages, (B, degree, F).
    eig_s, eig_d : Tensor
        Eigenvectors at both ends of their edges, (B, degree, K).
    h_in : Tensor
        Features of the nodes themselves, (B, F).
    eig_idx : int
        Which one of K.

    Returns
    -------
    Tensor
        (B, F)
    """
    weight = _shares(eig_s[:, :, eig_idx] - eig_d[:, :, eig_idx]).unsqueeze(-1)
    return ((h * weight).sum(dim=1) - weight.sum(dim=1) * h_in).abs()


def _shares(steps: Tensor) -> Tensor:
    """Each of the second dimension in proportion to the sum of the sizes."""
    return steps * _reciprocal(steps.abs().sum(dim=1, keepdim=True))


def _reciprocal(total: Tensor) -> Tensor:
    """1 / x, and 0 at 0, where all edges of a node stay on one level and none has a direction."""
    return total.masked_fill(total == 0, torch.inf).reciprocal()


# Which eigenvector, and whether its sign counts.
_DIRECTIONS: dict[Callable[..., Tensor], tuple[int, bool]] = {}
for _index in range(3):
    _average = partial(aggregate_dir_av, eig_idx=_index)
    _derivative = partial(aggregate_dir_dx, eig_idx=_index)
    AGGREGATORS[f"dir{_index + 1}-av"] = _average
    AGGREGATORS[f"dir{_index + 1}-dx"] = _derivative
    _DIRECTIONS[_average] = _index, False
    _DIRECTIONS[_derivative] = _index, True


class DGNConvTower(PNAConvTower):
    """One tower of :class:`DGNConv`: that of PNA, which can look into directions too."""

    def message(self, edges: Any) -> dict[str, Tensor]:
        """Compute the messages ``msg`` of edges, and bring eigenvectors, if there are any, along.

        Parameters
        ----------
        edges : edge batch
            With ``h``, and perhaps ``eig``, in ``src`` and ``dst``, and ``a`` in ``data``.

        Returns
        -------
        dict of str to Tensor
            ``msg``, and with ``eig`` also ``eig_s`` and ``eig_d``.
        """
        messages = super().message(edges)
        if "eig" in edges.src:
            messages.update(eig_s=edges.src["eig"], eig_d=edges.dst["eig"])
        return messages

    def forward(
        self,
        graph: Any,
        node_feat: Tensor,
        edge_feat: Tensor | None = None,
        eig_vec: Tensor | None = None,
    ) -> Tensor:
        """Aggregate the neighbours of all nodes.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph.
        node_feat : Tensor
            (N, in_size)
        edge_feat : Tensor, optional
            (E, edge_feat_size)
        eig_vec : Tensor, optional
            (N, K), default ``graph.ndata["eig"]`` if it is there.

        Returns
        -------
        Tensor
            (N, out_size)
        """
        if eig_vec is None:
            eig_vec = getattr(graph, "ndata", {}).get("eig")
        nodes = {"h": node_feat}
        if eig_vec is not None:
            nodes["eig"] = eig_vec
        return self._run(graph, nodes, edge_feat)

    def _own_functions(self) -> tuple[Callable[..., Any], ...]:
        return DGNConvTower.message, PNAConvTower.reduce_func

    def _is_own(self, aggregator: Callable[..., Tensor]) -> bool:
        return aggregator in _DIRECTIONS or super()._is_own(aggregator)

    def _aggregate(self, name: str, nodes: Any) -> Tensor:
        if not name.startswith("dir"):
            return super()._aggregate(name, nodes)
        given = [nodes.mailbox[key] for key in ("msg", "eig_s", "eig_d")]
        if not name.endswith("av"):
            given.append(nodes.data["h"])
        return AGGREGATORS[name](*given)

    def _statistic(self, name: str, messages: Messages, nodes: Mapping[str, Tensor]) -> Tensor:
        if AGGREGATORS[name] not in _DIRECTIONS:
            return super()._statistic(name, messages, nodes)
        index, is_signed = _DIRECTIONS[AGGREGATORS[name]]
        node_feat = nodes["h"]
        weight, total = _weights(messages.struct, nodes["eig"][:, index], is_signed)
        weight, total = weight.to(messages.dtype), total.to(messages.dtype)
        found = messages.weighted_sum(weight, total)
        return (found - total * node_feat).abs() if is_signed else found


def _weights(struct: GraphStructure, level: Tensor, is_signed: bool) -> tuple[Tensor, Tensor]:
    """Share of each edge in the steps up and down, (E, 1), and their sum at each node, (N, 1)."""
    level = level.unsqueeze(1)
    # Neighbours differ little: autocast would round the levels and not the steps.
    with torch.autocast(level.device.type, enabled=False):
        step = ops.u_sub_v(struct, level, level)
        size = step.abs()
        weight = step if is_signed else size
        share = _reciprocal(ops.copy_e_sum(struct, size))
        weight = ops.e_mul_v(struct, weight, share)
        return weight, ops.copy_e_sum(struct, weight)


class DGNConv(PNAConv):
    r"""Directional graph network, with the interface of ``dgl.nn.DGNConv``.

    As :class:`PNAConv`, with aggregators along the eigenvectors :math:`\phi_k` of the Laplacian:

    .. math::
        F_{uv} = \frac{\phi_k (u) - \phi_k (v)}{\sum_{w \to v} |\phi_k (w) - \phi_k (v)|}, \qquad
        \mathrm{av} = \sum_{u \to v} |F_{uv}| \, m_{uv}, \qquad
        \mathrm{dx} = \Big| \sum_{u \to v} F_{uv} (m_{uv} - h_v) \Big|

    with the messages :math:`m`; :math:`F` is 0 where all neighbours are on the level of :math:`v`.

    Parameters
    ----------
    in_size : int
        Input width, a multiple of ``num_towers``.
    out_size : int
        Output width, a multiple of ``num_towers``.
    aggregators : list of str
        Those of :class:`PNAConv`, and ``"dir1-av"``, ``"dir1-dx"`` and so on, for the first,
        second and third eigenvector.
    scalers : list of str
        Those of :class:`PNAConv`.
    delta : float
        The mean of :math:`\log (d + 1)` over the nodes of the training set.
    dropout : float
        Default 0.
    num_towers : int
        Default 1.
    edge_feat_size : int
        Width of the edge features; with 0 they are not read. Default 0.
    residual : bool
        Add the input, where it has the output width. Default True.

    Attributes
    ----------
    towers : nn.ModuleList of DGNConvTower
        With ``M``, ``U`` and ``batchnorm`` each.
    mixing_layer : nn.Sequential
        The last linear map and its activation.

    Raises
    ------
    AssertionError
        If a width is no multiple of ``num_towers``.

    Notes
    -----
    Source: D. Beaini, S. Passaro, V. Létourneau, W. L. Hamilton, G. Corso, P. Liò, "Directional
    Graph Networks", ICML 2021, https://arxiv.org/abs/2010.02863.

    Where DGL is wrong: a layer without directional aggregators works, and so does a graph without
    edges. Where all neighbours of a node are on its level, the gradient of the eigenvectors is 0,
    where DGL's is of the order of 1e30.

    **Fused path.** That of :class:`PNAConv`. A directional aggregator makes weights of one number
    an edge from the eigenvectors, in four small CUDA kernels (``dgl_flash.ops.u_sub_v``,
    ``e_mul_v`` and two ``copy_e_sum``), anew for each aggregator and tower; autocast leaves them in
    the dtype of the eigenvectors. Their products with the messages are summed in one kernel
    (``u_mul_e_sum``): no tensor of messages exists. With edge features there is one, and the
    products are another. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import DGNConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = DGNConv(8, 6, ["dir1-av", "dir1-dx", "sum"], ["identity", "attenuation"], delta=2.5)
    >>> conv(graph, torch.randn(4, 8), eig_vec=torch.randn(4, 1)).shape
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
        super().__init__(
            in_size,
            out_size,
            aggregators,
            scalers,
            delta,
            dropout,
            num_towers,
            edge_feat_size,
            residual,
        )
        sizes = self.tower_in_size, self.tower_out_size
        # After towers of the other kind, as in DGL: weights follow from how often one has drawn.
        self.towers = nn.ModuleList(
            DGNConvTower(*sizes, aggregators, scalers, delta, dropout, edge_feat_size)
            for _ in range(num_towers)
        )
        self.use_eig_vec = any(name.startswith("dir") for name in aggregators)

    def forward(
        self,
        graph: Any,
        node_feat: Tensor,
        edge_feat: Tensor | None = None,
        eig_vec: Tensor | None = None,
    ) -> Tensor:
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
        eig_vec : Tensor, optional
            (N, K), the eigenvectors of the Laplacian as ``dgl.LapPE`` computes them; only
            directional aggregators read them.

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
        IndexError
            If there are fewer eigenvectors than an aggregator needs.
        TypeError
            If ``graph`` is no graph, or an aggregator reads eigenvectors and there are none.
        RuntimeError
            If features have another width or dtype than the module.
        """
        if not self.use_eig_vec:
            return self._mix(graph, node_feat, edge_feat)
        if not isinstance(eig_vec, Tensor):
            raise TypeError(
                f"DGNConv: expected `eig_vec` to be a tensor (N, K), as its aggregators are "
                f"directional, got {type(eig_vec).__name__}; pass the eigenvectors that "
                f"dgl.LapPE computes"
            )
        return self._mix(graph, node_feat, edge_feat, eig_vec)
