"""PGExplainer: a network that weighs the edges of any graph for one model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dgl_flash.nn.explain.common import dgl_of, rows
from dgl_flash.nn.explain.edge_weigher import EdgeWeigher, marked, node_list, pairs_of

__all__ = ["HeteroPGExplainer", "PGExplainer"]


class PGExplainer(EdgeWeigher):
    r"""A network that explains a model, with the interface of ``dgl.nn.PGExplainer``.

    The weight of an edge :math:`u \to v` comes from the embeddings :math:`z` that the model has
    of its ends, and of the node :math:`i` whose prediction is explained, if it is one of a node:

    .. math::
        \omega_{uv} = \mathrm{MLP}(z_u \Vert z_v \Vert z_i), \qquad
        m_{uv} = \sigma\Big(\frac{\log \epsilon - \log(1 - \epsilon) + \omega_{uv}}{\tau}\Big)

    with :math:`\epsilon` uniform in (0, 1) for each edge during training, and
    :math:`m_{uv} = \sigma(\omega_{uv})` afterwards; an edge and its reverse share their mean.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph, feat, embed=True, **kwargs)`` for the embeddings (N, D), with
        ``embed=False`` for logits, and with ``edge_weight=`` for the logits of a masked graph.
    num_features : int
        D, the width of the embeddings.
    num_hops : int, optional
        How far the model sees: its number of layers; needed to explain nodes.
    explain_graph : bool
        Whether graphs are explained, or else nodes. Default True.
    coff_budget : float
        Weight of the sum of the edge weights, and what of it is free. Default 0.01.
    coff_connect : float
        Weight of the mean entropy of the edge weights. Default 5e-4.
    sample_bias : float
        How far from 0 and 1 :math:`\epsilon` stays. Default 0.

    Attributes
    ----------
    elayers : nn.Sequential
        The explanation network: all that is trained, and all that ``parameters()`` gives.
    edge_mask, sparse_mask_values : Tensor
        (E,): the last edge weights, with the two directions averaged and without.

    Notes
    -----
    Source: D. Luo, W. Cheng, D. Xu, W. Yu, B. Zong, H. Chen, X. Zhang, "Parameterized Explainer
    for Graph Neural Network", NeurIPS 2020, https://arxiv.org/abs/2011.04573.

    As in DGL, the edges need reverses, and the probabilities are cut off from the explanation
    network during training: the loss moves it by size and entropy alone. The mode of the model is
    left as it is; call ``model.eval()`` if it has dropout. The model is moved to the device of the
    features; it gets no gradients.

    **Fused path.** That of the layers of the model, with edge weights.
    """

    def explain_graph(
        self, graph: Any, feat: Any, temperature: float = 1.0, training: bool = False, **kwargs: Any
    ) -> tuple[Tensor, Any]:
        """Weigh the edges of a graph, and predict with these weights.

        Parameters
        ----------
        graph : DGLGraph
            A homogeneous graph, or a batch; it may stay on the CPU while the features are on a
            GPU.
        feat : Tensor
            (N, D)
        temperature : float
            As ``beta`` of :meth:`concrete_sample`. Default 1.
        training : bool
            Draw the weights, and keep them. Default False.
        **kwargs
            For the model.

        Returns
        -------
        probs : Tensor
            (B, L)
        edge_mask : Tensor
            (E,), in (0, 1)

        Raises
        ------
        AssertionError
            If the explainer was made for nodes.
        DGLError
            If an edge has no reverse.
        """
        self.prepare(feat, graphs=True)
        with torch.no_grad():
            embed = self.model(graph, feat, embed=True, **kwargs)
        edge_mask = self.weigh(graph, pairs_of(graph, embed), temperature, training)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not training):
            probs = self.model(graph, feat, edge_weight=edge_mask, **kwargs).softmax(dim=-1)
        if not training:
            self.clear_masks()
        return probs, edge_mask

    def explain_node(
        self,
        nodes: Any,
        graph: Any,
        feat: Any,
        temperature: float = 1.0,
        training: bool = False,
        **kwargs: Any,
    ) -> tuple[Any, Any, Any, Any]:
        """Weigh the edges around each of some nodes, and predict with these weights.

        Parameters
        ----------
        nodes : int, iterable of int or Tensor
            The nodes, each once.
        graph : DGLGraph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, D)
        temperature : float
            As ``beta`` of :meth:`concrete_sample`. Default 1.
        training : bool
            Draw the weights, and keep them. Default False.
        **kwargs
            For the model, as they are.

        Returns
        -------
        probs : Tensor
            (N, L) of the nodes of the batch.
        edge_mask : Tensor
            (E,) of the edges of the batch, in (0, 1).
        batched_graph : DGLGraph
            What lies within ``num_hops`` edges that lead to a node, for each of the nodes.
        batched_inverse_indices : Tensor
            The nodes in the batch.

        Raises
        ------
        AssertionError
            If the explainer was made for graphs, or without ``num_hops``.
        DGLError
            If an edge has no reverse, or there is no such node.
        """
        self.prepare(feat, graphs=False)
        dgl = dgl_of(self, graph)
        parts, pairs, feats = [], [], []
        for node in node_list(nodes):
            sg, center = dgl.khop_in_subgraph(graph, node, self.num_hops)
            feats.append(rows(feat, sg.ndata[dgl.NID]))
            sg.ndata["feat"] = feats[-1].to(sg.device)
            sg.ndata["train"] = marked(sg.num_nodes(), center, like=center)
            with torch.no_grad():
                embed = self.model(sg, feats[-1], embed=True, **kwargs)
            pairs.append(pairs_of(sg, embed, center))
            parts.append(sg)
        batched = dgl.batch(parts)
        batched_feats = torch.cat(feats)
        edge_mask = self.weigh(batched, torch.cat(pairs), temperature, training)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not training):
            logits = self.model(batched, batched_feats, edge_weight=edge_mask, **kwargs)
        if training:
            self.batched_feats = batched_feats
        else:
            self.clear_masks()
        inverse = batched.ndata["train"].nonzero().squeeze(1)
        return logits.softmax(dim=-1), edge_mask, batched, inverse


class HeteroPGExplainer(PGExplainer):
    r"""PGExplainer for several types, with the interface of ``dgl.nn.HeteroPGExplainer``.

    As :class:`PGExplainer`, with one explanation network for all types: embeddings of all types of
    nodes have the same width.

    Parameters
    ----------
    model : nn.Module
        As for :class:`PGExplainer`, with dicts: of features, embeddings and logits of nodes by
        type of node, of ``edge_weight`` by canonical type of edge.
    num_features : int
        D, the width of the embeddings.
    num_hops : int, optional
        How far the model sees: its number of layers; needed to explain nodes.
    explain_graph : bool
        Whether graphs are explained, or else nodes. Default True.
    coff_budget : float
        Weight of the sum of the edge weights, and what of it is free. Default 0.01.
    coff_connect : float
        Weight of the mean entropy of the edge weights. Default 5e-4.
    sample_bias : float
        How far from 0 and 1 the noise stays. Default 0.

    Notes
    -----
    Source: D. Luo, W. Cheng, D. Xu, W. Yu, B. Zong, H. Chen, X. Zhang, "Parameterized Explainer
    for Graph Neural Network", NeurIPS 2020, https://arxiv.org/abs/2011.04573.

    As in DGL, an edge needs a reverse of any type, and the embedding :math:`z_i` of a node to be
    explained is read at the number that it has among those of its type from the list of all
    nodes: another node's, unless its type is the first. Trained networks rest on that. The graph
    itself gets no ``emb``, which DGL's :meth:`explain_graph` leaves there.

    **Fused path.** That of the layers of the model, with edge weights.
    """

    def explain_graph(
        self,
        graph: Any,
        feat: Mapping[str, Tensor],
        temperature: float = 1.0,
        training: bool = False,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[tuple[str, str, str], Tensor]]:
        """Weigh the edges of a graph, and predict with these weights.

        Parameters
        ----------
        graph : DGLGraph
            It may stay on the CPU while the features are on a GPU.
        feat : dict of str to Tensor
            (N, D) for each type of nodes.
        temperature : float
            As ``beta`` of :meth:`concrete_sample`. Default 1.
        training : bool
            Draw the weights, and keep them. Default False.
        **kwargs
            For the model.

        Returns
        -------
        probs : Tensor
            (B, L)
        edge_mask : dict of tuple to Tensor
            (E,) for each canonical type of edges, in (0, 1).

        Raises
        ------
        AssertionError
            If the explainer was made for nodes.
        DGLError
            If an edge has no reverse.
        KeyError
            If the model gives no embeddings of a type of nodes.
        """
        self.prepare(feat, graphs=True)
        dgl = dgl_of(self, graph)
        with torch.no_grad():
            embed = self.model(graph, feat, embed=True, **kwargs)
        flat = dgl.to_homogeneous(graph)
        pairs = pairs_of(flat, _stacked(graph, embed))
        edge_mask = _by_type(
            graph, flat.edata[dgl.ETYPE], self.weigh(flat, pairs, temperature, training)
        )
        with torch.set_grad_enabled(torch.is_grad_enabled() and not training):
            probs = self.model(graph, feat, edge_weight=edge_mask, **kwargs).softmax(dim=-1)
        if not training:
            self.clear_masks()
        return probs, edge_mask

    def explain_node(
        self,
        nodes: Mapping[str, Any],
        graph: Any,
        feat: Mapping[str, Tensor],
        temperature: float = 1.0,
        training: bool = False,
        **kwargs: Any,
    ) -> tuple[dict[str, Tensor], dict[tuple[str, str, str], Tensor], Any, dict[str, Tensor]]:
        """Weigh the edges around each of some nodes, and predict with these weights.

        Parameters
        ----------
        nodes : dict of str to iterable of int
            The nodes, each once, by type.
        graph : DGLGraph
            It may stay on the CPU while the features are on a GPU.
        feat : dict of str to Tensor
            (N, D) for each type of nodes.
        temperature : float
            As ``beta`` of :meth:`concrete_sample`. Default 1.
        training : bool
            Draw the weights, and keep them. Default False.
        **kwargs
            For the model, as they are.

        Returns
        -------
        probs : dict of str to Tensor
            (N, L) of the nodes of the batch.
        edge_mask : dict of tuple to Tensor
            (E,) of the edges of the batch, in (0, 1).
        batched_graph : DGLGraph
            What lies within ``num_hops`` edges that lead to a node, for each of the nodes.
        batched_inverse_indices : dict of str to Tensor
            The nodes in the batch.

        Raises
        ------
        AssertionError
            If the explainer was made for graphs, or without ``num_hops``.
        DGLError
            If an edge has no reverse, or there is no such node.
        KeyError
            If the model gives no embeddings of a type of nodes.
        """
        self.prepare(feat, graphs=False)
        dgl = dgl_of(self, graph)
        parts, flats, pairs, feats = [], [], [], []
        for ntype, node in ((name, n) for name, ids in nodes.items() for n in node_list(ids)):
            sg, centers = dgl.khop_in_subgraph(graph, {ntype: node}, self.num_hops)
            here = {}
            for name in sg.ntypes:
                frame = sg.nodes[name].data
                here[name] = rows(feat[name], frame[dgl.NID])
                frame["feat"] = here[name].to(sg.device)
                frame["train"] = marked(sg.num_nodes(name), centers.get(name), frame[dgl.NID])
            with torch.no_grad():
                embed = self.model(sg, here, embed=True, **kwargs)
            for name, value in embed.items():
                sg.nodes[name].data["emb"] = value.detach().to(sg.device)
            flats.append(dgl.to_homogeneous(sg))
            pairs.append(pairs_of(flats[-1], _stacked(sg, embed), centers[ntype]))
            parts.append(sg)
            feats.append(here)
        flat, batched = dgl.batch(flats), dgl.batch(parts)
        batched_feats = {name: torch.cat([f[name] for f in feats]) for name in batched.ntypes}
        weights = self.weigh(flat, torch.cat(pairs), temperature, training)
        edge_mask = _by_type(batched, flat.edata[dgl.ETYPE], weights)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not training):
            logits = self.model(batched, batched_feats, edge_weight=edge_mask, **kwargs)
        if training:
            self.batched_feats = batched_feats
        else:
            self.clear_masks()
        inverse = {
            name: batched.nodes[name].data["train"].nonzero().squeeze(1) for name in batched.ntypes
        }
        return {k: v.softmax(dim=-1) for k, v in logits.items()}, edge_mask, batched, inverse


def _stacked(graph: Any, embed: Mapping[str, Tensor]) -> Tensor:
    """Embeddings of all nodes, in the order of the homogeneous graph."""
    for name in graph.ntypes:
        if name not in embed and graph.num_nodes(name):
            raise KeyError(
                f"HeteroPGExplainer: expected embeddings of every type of nodes from "
                f"model(..., embed=True), got none of {name!r}"
            )
    return torch.cat([embed[name] for name in graph.ntypes if name in embed])


def _by_type(graph: Any, types: Tensor, weights: Tensor) -> dict[tuple[str, str, str], Tensor]:
    """Weights of the edges of the homogeneous graph, for each type of the given one."""
    types = types.to(weights.device)
    return {etype: weights[types == graph.get_etype_id(etype)] for etype in graph.canonical_etypes}
