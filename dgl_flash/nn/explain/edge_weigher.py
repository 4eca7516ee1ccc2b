"""The explanation network of PGExplainer, its sampling and its loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash.errors import dgl_error
from dgl_flash.nn.explain.common import rows

# Keeps the logarithm of the probability of a class finite.
_TINY = 1e-6
# Keeps the entropy of a saturated edge weight finite.
_SHRINK = 0.99


class EdgeWeigher(nn.Module):
    """What is the same for one type of nodes and many; see :class:`PGExplainer`."""

    edge_mask: Any  # (E,), or None
    sparse_mask_values: Tensor  # (E,)
    batched_feats: Any

    def __init__(
        self,
        model: nn.Module,
        num_features: int,
        num_hops: int | None = None,
        explain_graph: bool = True,
        coff_budget: float = 0.01,
        coff_connect: float = 5e-4,
        sample_bias: float = 0.0,
    ) -> None:
        super().__init__()
        self.model = model
        self.graph_explanation = explain_graph
        self.num_features = num_features * (2 if explain_graph else 3)
        self.num_hops = num_hops
        self.coff_budget = coff_budget
        self.coff_connect = coff_connect
        self.sample_bias = sample_bias
        self.init_bias = 0.0
        self.elayers = nn.Sequential(nn.Linear(self.num_features, 64), nn.ReLU(), nn.Linear(64, 1))

    def set_masks(self, graph: Any, edge_mask: Tensor | None = None) -> None:
        """Set ``edge_mask``.

        Parameters
        ----------
        graph : DGLGraph
            A homogeneous graph.
        edge_mask : Tensor, optional
            (E,). Default: drawn from a normal distribution.
        """
        if edge_mask is None:
            std = nn.init.calculate_gain("relu") * sqrt(2.0 / (2 * graph.num_nodes()))
            # Drawn on the CPU, so that a seed gives the same mask on any device.
            edge_mask = torch.randn(graph.num_edges()) * std + self.init_bias
            edge_mask = edge_mask.to(next(self.parameters()).device)
        # A graph on the CPU says nothing of where the features are.
        on_cpu = graph.device.type == "cpu"
        self.edge_mask = edge_mask if on_cpu else edge_mask.to(graph.device)

    def clear_masks(self) -> None:
        """Forget ``edge_mask``."""
        self.edge_mask = None

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Give the parameters of the explanation network, without those of the model.

        Parameters
        ----------
        recurse : bool
            As in torch.

        Returns
        -------
        iterator of Parameter
            What an optimizer is to train.
        """
        return self.elayers.parameters(recurse=recurse)

    def loss(self, prob: Tensor, ori_pred: Tensor) -> Tensor:
        """Loss of the last edge weights.

        Parameters
        ----------
        prob : Tensor
            (B, L): probabilities of the classes with these weights.
        ori_pred : Tensor
            (B,), int64: classes predicted without.

        Returns
        -------
        Tensor
            Cross entropy, size and entropy of the weights: a scalar.
        """
        chosen = prob.gather(-1, ori_pred.unsqueeze(-1))
        size = self.sparse_mask_values.sum()
        if self.coff_budget > 0:
            size = torch.relu(size - self.coff_budget)
        gate = self.edge_mask * (2 * _SHRINK - 1.0) + (1.0 - _SHRINK)
        entropy = -(gate * gate.log() + (1 - gate) * (1 - gate).log()).mean()
        error = -(chosen + _TINY).log().mean()
        return error + self.coff_budget * size + self.coff_connect * entropy

    def concrete_sample(self, w: Tensor, beta: float = 1.0, training: bool = True) -> Tensor:
        """Edge weights from the logits.

        Parameters
        ----------
        w : Tensor
            (E,): logits.
        beta : float
            Temperature: the lower, the closer are drawn weights to 0 and 1. Default 1.
        training : bool
            Draw, or give the logistic function of the logits. Default True.

        Returns
        -------
        Tensor
            (E,), in (0, 1)
        """
        if not training:
            return w.sigmoid()
        # Drawn on the CPU, so that a seed gives the same sample on any device.
        noise = self.sample_bias + (1 - 2 * self.sample_bias) * torch.rand(w.shape).to(w.device)
        return ((noise.log() - (1.0 - noise).log() + w) / beta).sigmoid()

    def train_step(self, graph: Any, feat: Any, temperature: float, **kwargs: Any) -> Tensor:
        """Loss of the explanations of graphs.

        Parameters
        ----------
        graph : DGLGraph
            A batch of graphs; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or dict of str to Tensor
            (N, D), with several types of nodes for each.
        temperature : float
            As ``beta`` of :meth:`concrete_sample`.
        **kwargs
            For the model.

        Returns
        -------
        Tensor
            A scalar

        Raises
        ------
        AssertionError
            If the explainer was made for nodes.
        """
        self.prepare(feat, graphs=True)
        with torch.no_grad():
            pred = self.model(graph, feat, embed=False, **kwargs).argmax(-1)
        prob, _ = self.explain_graph(graph, feat, temperature, training=True, **kwargs)
        return self.loss(prob, pred)

    def train_step_node(
        self, nodes: Any, graph: Any, feat: Any, temperature: float, **kwargs: Any
    ) -> Tensor:
        """Loss of the explanations of nodes.

        Parameters
        ----------
        nodes : int, iterable of int or Tensor, or dict of them
            Nodes to train with, each once; with several types of nodes by type.
        graph : DGLGraph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or dict of str to Tensor
            (N, D), with several types of nodes for each.
        temperature : float
            As ``beta`` of :meth:`concrete_sample`.
        **kwargs
            For the model, as they are.

        Returns
        -------
        Tensor
            A scalar

        Raises
        ------
        AssertionError
            If the explainer was made for graphs.
        """
        self.prepare(feat, graphs=False)
        prob, _, batched, inverse = self.explain_node(
            nodes, graph, feat, temperature, training=True, **kwargs
        )
        with torch.no_grad():
            pred = self.model(batched, self.batched_feats, embed=False, **kwargs)
        if not isinstance(pred, Mapping):
            return self.loss(rows(prob, inverse), rows(pred.argmax(-1), inverse))
        return self.loss(
            torch.cat([rows(prob[ntype], ids) for ntype, ids in inverse.items()]),
            torch.cat([rows(pred[ntype].argmax(-1), ids) for ntype, ids in inverse.items()]),
        )

    def explain_graph(self, graph: Any, feat: Any, *given: Any, **kwargs: Any) -> Any:
        """Weigh the edges of a graph."""
        raise NotImplementedError

    def explain_node(self, nodes: Any, graph: Any, feat: Any, *given: Any, **kwargs: Any) -> Any:
        """Weigh the edges around nodes."""
        raise NotImplementedError

    def weigh(self, graph: Any, pairs: Tensor, temperature: float, training: bool) -> Tensor:
        """Weigh the edges of a homogeneous graph, and keep the weights.

        Parameters
        ----------
        graph : DGLGraph
            Every edge needs a reverse.
        pairs : Tensor
            (E, num_features), of :func:`pairs_of`.
        temperature : float
            As ``beta`` of :meth:`concrete_sample`.
        training : bool
            Whether to draw.

        Returns
        -------
        Tensor
            (E,): the mean over the two directions.

        Raises
        ------
        DGLError
            If an edge has no reverse.
        """
        values = self.concrete_sample(self.elayers(pairs).reshape(-1), temperature, training)
        self.sparse_mask_values = values
        src, dst = graph.edges()
        try:
            reverse = graph.edge_ids(dst, src)
        except Exception as error:
            # DGL fails at the text of its own error where several edges have none.
            if graph.has_edges_between(dst, src).all():
                raise
            raise dgl_error(
                f"{type(self).__name__}: expected a reverse of every edge; "
                f"dgl.to_bidirected or dgl.AddReverse adds them"
            ) from error
        edge_mask = (values + rows(values, reverse)) / 2
        self.set_masks(graph, edge_mask)
        return edge_mask

    def prepare(self, feat: Tensor | Mapping[str, Tensor], graphs: bool) -> None:
        """Refuse what the explainer was not made for, and move it to the features."""
        if self.graph_explanation is not graphs:
            # Word for word DGL's.
            raise AssertionError(f'"explain_graph" must be {graphs} when initializing the module.')
        if not graphs and self.num_hops is None:
            raise AssertionError('"num_hops" must be provided when initializing the module.')
        device = (feat if isinstance(feat, Tensor) else next(iter(feat.values()))).device
        self.model = self.model.to(device)
        self.elayers = self.elayers.to(device)


def pairs_of(graph: Any, embed: Tensor, center: Tensor | None = None) -> Tensor:
    """Embeddings that the weight of an edge is computed from.

    Parameters
    ----------
    graph : DGLGraph
        A homogeneous graph.
    embed : Tensor
        (N, D)
    center : Tensor, optional
        (1,): the node whose prediction is explained.

    Returns
    -------
    Tensor
        (E, 2 D), or (E, 3 D) with `center`.
    """
    embed = embed.detach()
    parts = [rows(embed, ends) for ends in graph.edges()]
    if center is not None:
        parts.append(rows(embed, center[:1]).expand(graph.num_edges(), -1))
    return torch.cat(parts, dim=-1)


def marked(count: int, ids: Tensor | None, like: Tensor) -> Tensor:
    """Mask of `count` nodes that is true at the ids, on the device of `like`."""
    mask = torch.zeros(count, dtype=torch.bool, device=like.device)
    if ids is not None:
        mask[ids.long()] = True
    return mask


def node_list(nodes: Any) -> list[Any]:
    """What DGL takes as nodes: one, several, or a tensor."""
    if isinstance(nodes, Tensor):
        nodes = nodes.tolist()
    return [nodes] if isinstance(nodes, int) else list(nodes)
