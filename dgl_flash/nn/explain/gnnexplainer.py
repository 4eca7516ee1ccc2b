"""GNNExplainer: masks of edges and features, learned for one prediction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from torch import Tensor

from dgl_flash.nn.explain.common import dgl_of, evaluating, rows
from dgl_flash.nn.explain.mask_learner import MaskLearner, as_feat

__all__ = ["GNNExplainer", "HeteroGNNExplainer"]


class GNNExplainer(MaskLearner):
    r"""Edges and features a prediction rests on, with the interface of ``dgl.nn.GNNExplainer``.

    Masks :math:`M` of the edges and :math:`F` of the features are learned by Adam, as logits, for

    .. math::
        \min_{M, F}\; -\log p_{\hat y}\big(G \odot \sigma(M), X \odot \sigma(F)\big)
        + \alpha_1 \textstyle\sum \sigma(M) + \alpha_2 \overline{H}(\sigma(M))
        + \beta_1 \overline{\sigma(F)} + \beta_2 \overline{H}(\sigma(F))

    where :math:`\hat y` is the class predicted without masks, a bar is a mean and :math:`H` the
    entropy of a coin.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph=, feat=, eweight=, **kwargs)``, without ``eweight`` for the
        prediction to be explained; gives logits (N, L), or (B, L) of graphs.
    num_hops : int
        How far the model sees: its number of layers.
    lr : float
        Learning rate. Default 0.01.
    num_epochs : int
        Number of steps. Default 100.
    alpha1, alpha2 : float
        Weights of the size and the entropy of the edge mask. Default 0.005 and 1.
    beta1, beta2 : float
        Weights of the size and the entropy of the feature mask. Default 1 and 0.1.
    log : bool
        Show a progress bar. Default True.

    Notes
    -----
    Source: R. Ying, D. Bourgeois, J. You, M. Zitnik, J. Leskovec, "GNNExplainer: Generating
    Explanations for Graph Neural Networks", NeurIPS 2019, https://arxiv.org/abs/1903.03894.

    The model is moved to the device of the features and evaluated without dropout; it gets its
    modes back, and no gradients, both of which DGL's class leaves changed.

    **Fused path.** That of the layers of the model, with edge weights.

    Examples
    --------
    >>> import dgl_flash, torch
    >>> from dgl_flash.nn import GNNExplainer, GraphConv
    >>> class Model(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.conv = GraphConv(4, 2)
    ...     def forward(self, graph, feat, eweight=None):
    ...         return self.conv(graph, feat, edge_weight=eweight).mean(0, keepdim=True)
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> explainer = GNNExplainer(Model(), num_hops=1, log=False)
    >>> feat_mask, edge_mask = explainer.explain_graph(graph, torch.randn(3, 4))
    >>> feat_mask.shape, edge_mask.shape
    (torch.Size([4]), torch.Size([3]))
    """

    def explain_node(
        self, node_id: int, graph: Any, feat: Tensor, **kwargs: Any
    ) -> tuple[Tensor, Any, Tensor, Tensor]:
        """Explain the prediction for a node.

        Parameters
        ----------
        node_id : int
            The node.
        graph : DGLGraph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, D)
        **kwargs
            For the model. Of tensors with a row for each node or edge it gets the rows of the
            subgraph.

        Returns
        -------
        new_node_id : Tensor
            (1,): the node in the subgraph.
        sg : DGLGraph
            What lies within ``num_hops`` edges that lead to the node.
        feat_mask : Tensor
            (D,), in (0, 1); of no dimension if D is 1.
        edge_mask : Tensor
            (E,) of the edges of ``sg``, in (0, 1).

        Raises
        ------
        TypeError
            If the graph is not DGL's.
        ValueError
            If ``feat`` is no matrix.
        DGLError
            If there is no such node.
        """
        dgl = dgl_of(self, graph)
        sg, center = dgl.khop_in_subgraph(graph, node_id, self.num_hops)
        nodes, edges = sg.ndata[dgl.NID], sg.edata[dgl.EID]
        sizes = [(graph.num_nodes(), nodes), (graph.num_edges(), edges)]
        kwargs = {key: _of_subgraph(item, sizes) for key, item in kwargs.items()}
        row = center.long().to(feat.device)
        masks = self._explain(sg, rows(feat, nodes), row, f"Explain node {node_id}", kwargs)
        return center, sg, *masks

    def explain_graph(self, graph: Any, feat: Tensor, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Explain the prediction for a graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, D)
        **kwargs
            For the model.

        Returns
        -------
        feat_mask : Tensor
            (D,), in (0, 1); of no dimension if D is 1.
        edge_mask : Tensor
            (E,), in (0, 1).

        Raises
        ------
        ValueError
            If ``feat`` is no matrix.
        """
        return self._explain(graph, feat, 0, "Explain graph", kwargs)

    def _explain(
        self, graph: Any, feat: Tensor, row: int | Tensor, title: str, kwargs: dict[str, Any]
    ) -> tuple[Tensor, Tensor]:
        self.model = self.model.to(feat.device)
        call = partial(self.model, graph=graph, **kwargs)

        def predict(feats: Mapping[Any, Tensor], gates: Mapping[Any, Tensor] | None) -> Tensor:
            weight = {} if gates is None else {"eweight": as_feat(gates[None], feat)}
            return call(feat=feats[None], **weight)

        with evaluating(self.model):
            edges = {None: (graph.num_edges(), 2 * len(feat))}
            feat_mask, edge_mask = self.learn(predict, {None: feat}, edges, row, title)
        return feat_mask[None], edge_mask[None]


class HeteroGNNExplainer(MaskLearner):
    r"""GNNExplainer for several types, with the interface of ``dgl.nn.HeteroGNNExplainer``.

    As :class:`GNNExplainer`, with a mask for each type of nodes and each type of edges, whose
    sizes and entropies are added up.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph=, feat=, eweight=, **kwargs)`` with dicts of features by type of
        node and of edge weights by canonical type of edge, and without ``eweight`` for the
        prediction to be explained; gives logits (B, L) of graphs, or a dict by type of node.
    num_hops : int
        How far the model sees: its number of layers.
    lr : float
        Learning rate. Default 0.01.
    num_epochs : int
        Number of steps. Default 100.
    alpha1, alpha2 : float
        Weights of the sizes and the entropies of the edge masks. Default 0.005 and 1.
    beta1, beta2 : float
        Weights of the sizes and the entropies of the feature masks. Default 1 and 0.1.
    log : bool
        Show a progress bar. Default True.

    Notes
    -----
    Source: R. Ying, D. Bourgeois, J. You, M. Zitnik, J. Leskovec, "GNNExplainer: Generating
    Explanations for Graph Neural Networks", NeurIPS 2019, https://arxiv.org/abs/1903.03894.

    **Fused path.** That of the layers of the model, with edge weights.
    """

    def explain_node(
        self, ntype: str, node_id: int, graph: Any, feat: Mapping[str, Tensor], **kwargs: Any
    ) -> tuple[Tensor, Any, dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
        """Explain the prediction for a node.

        Parameters
        ----------
        ntype : str
            Type of the node, one of those the model predicts.
        node_id : int
            The node.
        graph : DGLGraph
            It may stay on the CPU while the features are on a GPU.
        feat : dict of str to Tensor
            (N, D) for each type of nodes.
        **kwargs
            For the model, as they are.

        Returns
        -------
        new_node_id : Tensor
            (1,): the node in the subgraph.
        sg : DGLGraph
            What lies within ``num_hops`` edges that lead to the node.
        feat_mask : dict of str to Tensor
            (D,) for each type of nodes, in (0, 1).
        edge_mask : dict of tuple to Tensor
            (E,) for each canonical type of edges of ``sg``, in (0, 1).

        Raises
        ------
        TypeError
            If the graph is not DGL's.
        KeyError
            If a type of nodes has no features.
        ValueError
            If features are no matrix.
        DGLError
            If there is no such node.
        """
        dgl = dgl_of(self, graph)
        sg, centers = dgl.khop_in_subgraph(graph, {ntype: node_id}, self.num_hops)
        feat = {name: rows(feat[name], sg.nodes[name].data[dgl.NID]) for name in sg.ntypes}
        row = centers[ntype].long().to(feat[ntype].device)
        title = f"Explain node {node_id} with type {ntype}"
        masks = self._explain(sg, feat, row, title, kwargs, ntype)
        return centers[ntype], sg, *masks

    def explain_graph(
        self, graph: Any, feat: Mapping[str, Tensor], **kwargs: Any
    ) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
        """Explain the prediction for a graph.

        Parameters
        ----------
        graph : DGLGraph
            It may stay on the CPU while the features are on a GPU.
        feat : dict of str to Tensor
            (N, D) for each type of nodes.
        **kwargs
            For the model.

        Returns
        -------
        feat_mask : dict of str to Tensor
            (D,) for each type of nodes, in (0, 1).
        edge_mask : dict of tuple to Tensor
            (E,) for each canonical type of edges, in (0, 1).

        Raises
        ------
        ValueError
            If features are no matrix.
        """
        return self._explain(graph, feat, 0, "Explain graph", kwargs, None)

    def _explain(
        self,
        graph: Any,
        feat: Mapping[str, Tensor],
        row: int | Tensor,
        title: str,
        kwargs: dict[str, Any],
        ntype: str | None,
    ) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor]]:
        self.model = self.model.to(next(iter(feat.values())).device)
        call = partial(self.model, graph=graph, **kwargs)

        def predict(feats: Mapping[Any, Tensor], gates: Mapping[Any, Tensor] | None) -> Tensor:
            weights: dict[str, Any] = {}
            if gates is not None:
                weights["eweight"] = {
                    etype: as_feat(gate, feat[etype[0]]) if etype[0] in feat else gate
                    for etype, gate in gates.items()
                }
            found = call(feat=feats, **weights)
            return found if ntype is None else found[ntype]

        edges = {
            (src, etype, dst): (
                graph.num_edges((src, etype, dst)),
                graph.num_nodes(src) + graph.num_nodes(dst),
            )
            for src, etype, dst in graph.canonical_etypes
        }
        with evaluating(self.model):
            return self.learn(predict, feat, edges, row, title)


def _of_subgraph(item: Any, sizes: Iterable[tuple[int, Tensor]]) -> Any:
    """Rows of a tensor with a row for each node or edge of the whole graph."""
    if isinstance(item, Tensor) and item.dim() > 0:
        for size, ids in sizes:
            if len(item) == size:
                return rows(item, ids)
    return item
