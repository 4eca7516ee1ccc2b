"""SubgraphX: the connected subgraph a prediction of a graph rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dgl_flash.nn.explain.common import dgl_of
from dgl_flash.nn.explain.tree_search import TreeSearch, drawn_before, masked

__all__ = ["HeteroSubgraphX", "SubgraphX"]


class SubgraphX(TreeSearch):
    r"""The subgraph a prediction rests on, with the interface of ``dgl.nn.SubgraphX``.

    Monte Carlo tree search: below a subgraph are those without one of its nodes. A subgraph
    :math:`S` is worth its Shapley value among the nodes around it, estimated from coalitions
    :math:`T` of these, drawn at random,

    .. math::
        R(S) = \overline{f(S \cup T) - f(T)}, \qquad
        \arg\max_{S'} \; \frac{W(S')}{C(S')}
        + c\, R(S') \frac{\sqrt{\sum_{S''} C(S'')}}{1 + C(S')}

    where :math:`f` is the probability of the class with features of 0 for all other nodes of the
    region, :math:`C` counts visits, :math:`W` sums the rewards of the leaves met, and the second
    formula is the way down among the subgraphs :math:`S'` below.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph, feat, **kwargs)``; gives logits (B, L).
    num_hops : int
        How far the model sees: its number of layers.
    coef : float
        Weight of what is expected of a subgraph against what was found below it. Default 10.
    high2low : bool
        Take away nodes of the most edges first, or else of the least. Default True.
    num_child : int
        How many nodes are tried to be taken away from a subgraph. Default 12.
    num_rollouts : int
        Number of descents from the whole graph to a leaf. Default 20.
    node_min : int
        A subgraph of as many nodes, or less, is a leaf. Default 3.
    shapley_steps : int
        Coalitions drawn for the value of a subgraph. Default 100.
    log : bool
        Print the progress. Default False.

    Notes
    -----
    Source: H. Yuan, H. Yu, J. Wang, K. Li, S. Ji, "On Explainability of Graph Neural Networks via
    Subgraph Explorations", ICML 2021, https://arxiv.org/abs/2102.05152.

    Coalitions are drawn by NumPy's global generator (``numpy.random.seed``), as in DGL, whose
    class fails under a current NumPy. Subgraphs of more than 1,000 nodes are told apart, and may
    be as deep as the graph has nodes. The model is evaluated without dropout and gets its modes
    back.

    **Fused path.** That of the layers of the model.
    """

    def shapley(self, subgraph_nodes: Tensor) -> float:
        """Estimate the Shapley value of a subgraph.

        Parameters
        ----------
        subgraph_nodes : Tensor
            Its nodes.

        Returns
        -------
        float
            The value.
        """
        nodes = subgraph_nodes.tolist()
        region = nodes
        for _ in range(self.num_hops - 1):
            sources, targets = self.graph.in_edges(region)[0], self.graph.out_edges(region)[1]
            region = list(set(region + sources.tolist() + targets.tolist()))
        count = self.graph.num_nodes()
        # The order of a set decides which coalitions a seed draws.
        space = [*(set(region) - set(nodes)), count]
        found = []
        for _ in range(self.shapley_steps):
            without = torch.ones(count)
            without[region] = 0.0
            without[drawn_before(space, count)] = 1.0
            with_it = without.clone()
            with_it[nodes] = 1.0
            found.append(self.contribution(masked(self.feat, without), masked(self.feat, with_it)))
        return torch.cat(found).mean().item()

    def parts_without_a_node(self, nodes: Tensor) -> list[Tensor]:
        """See :class:`TreeSearch`."""
        graph = self.graph
        src, dst = (ends.cpu().numpy() for ends in graph.edges())
        inside = np.zeros(graph.num_nodes(), dtype=bool)
        inside[nodes.cpu().numpy()] = True
        return [
            torch.from_numpy(part).to(graph.device, graph.idtype)
            for _, part, _ in self.largest_parts(src, dst, inside, graph.idtype)
        ]

    def explain_graph(self, graph: Any, feat: Tensor, target_class: int, **kwargs: Any) -> Tensor:
        """Find the subgraph that speaks most for a class.

        Parameters
        ----------
        graph : DGLGraph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, D)
        target_class : int
            The class.
        **kwargs
            For the model.

        Returns
        -------
        Tensor
            The nodes, in ascending order, of the graph's type of integers and on its device.

        Raises
        ------
        AssertionError
            If the graph has no more than ``node_min`` nodes.
        TypeError
            If the graph is not DGL's.
        ValueError
            If nothing was found, for want of rollouts or of finite logits.
        """
        dgl_of(self, graph)
        self.graph, self.feat, self.target_class, self.kwargs = graph, feat, target_class, kwargs
        return self.search(graph.nodes())


class HeteroSubgraphX(TreeSearch):
    r"""SubgraphX for several types, with the interface of ``dgl.nn.HeteroSubgraphX``.

    As :class:`SubgraphX`, with nodes of all types.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph, feat, **kwargs)`` with a dict of features by type of node; gives
        logits (B, L).
    num_hops : int
        How far the model sees: its number of layers.
    coef : float
        Weight of what is expected of a subgraph against what was found below it. Default 10.
    high2low : bool
        Take away nodes of the most edges first, or else of the least. Default True.
    num_child : int
        How many nodes are tried to be taken away from a subgraph. Default 12.
    num_rollouts : int
        Number of descents from the whole graph to a leaf. Default 20.
    node_min : int
        A subgraph of as many nodes, or less, is a leaf. Default 3.
    shapley_steps : int
        Coalitions drawn for the value of a subgraph. Default 100.
    log : bool
        Print the progress. Default False.

    Notes
    -----
    Source: H. Yuan, H. Yu, J. Wang, K. Li, S. Ji, "On Explainability of Graph Neural Networks via
    Subgraph Explorations", ICML 2021, https://arxiv.org/abs/2102.05152.

    DGL's class fails under a current NumPy, and under an older one gives no explanation: it
    subtracts with the subgraph from without, and counts types where it should count nodes, so that
    the whole graph is a leaf. Here values and leaves are those of the paper.

    **Fused path.** That of the layers of the model.
    """

    def shapley(self, subgraph_nodes: Mapping[str, Tensor]) -> float:
        """Estimate the Shapley value of a subgraph.

        Parameters
        ----------
        subgraph_nodes : dict of str to Tensor
            Its nodes.

        Returns
        -------
        float
            The value.
        """
        graph = self.graph
        nodes = {ntype: ids.tolist() for ntype, ids in subgraph_nodes.items()}
        region = dict(nodes)
        for _ in range(self.num_hops - 1):
            for etype in graph.canonical_etypes:
                start, _, end = etype
                if start in region and end in region:
                    sources = graph.in_edges(region[end], etype=etype)[0].tolist()
                    targets = graph.out_edges(region[start], etype=etype)[1].tolist()
                    region[start] = list(set(region[start] + sources))
                    region[end] = list(set(region[end] + targets))
        split = graph.num_nodes()
        # The order of a set decides which coalitions a seed draws.
        spaces = {ntype: [*(set(region[ntype]) - set(ids)), split] for ntype, ids in nodes.items()}
        found = []
        for _ in range(self.shapley_steps):
            drawn = {ntype: drawn_before(space, split) for ntype, space in spaces.items()}
            without, with_it = {}, {}
            for ntype in graph.ntypes:
                mask = torch.ones(graph.num_nodes(ntype))
                if ntype in nodes:
                    mask[region[ntype]] = 0.0
                    mask[drawn[ntype]] = 1.0
                without[ntype] = masked(self.feat[ntype], mask)
                if ntype in nodes:
                    mask[nodes[ntype]] = 1.0
                with_it[ntype] = masked(self.feat[ntype], mask)
            found.append(self.contribution(without, with_it))
        return torch.cat(found).mean().item()

    def parts_without_a_node(self, nodes: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
        """See :class:`TreeSearch`."""
        graph = self.graph
        counts = [graph.num_nodes(ntype) for ntype in graph.ntypes]
        first = dict(zip(graph.ntypes, np.cumsum([0, *counts]).tolist(), strict=False))
        inside = np.zeros(sum(counts), dtype=bool)
        for ntype, ids in nodes.items():
            inside[ids.cpu().numpy() + first[ntype]] = True
        ends = []
        for etype in graph.canonical_etypes:
            src, dst = (side.cpu().numpy() for side in graph.edges(etype=etype))
            ends.append((src + first[etype[0]], dst + first[etype[2]]))
        src, dst = (np.concatenate(side) for side in zip(*ends, strict=True))

        def of_type(ntype: str, part: Any) -> Any:
            ids = part - first[ntype]
            return ids[(ids >= 0) & (ids < graph.num_nodes(ntype))]

        def tensor(ids: Any) -> Tensor:
            return torch.from_numpy(ids).to(graph.device, graph.idtype)

        found = []
        for left, part, has_edges in self.largest_parts(src, dst, inside, torch.float32):
            if has_edges:
                found.append({ntype: tensor(of_type(ntype, part)) for ntype in graph.ntypes})
                continue
            # Single nodes, all of one size.
            present = [ntype for ntype in graph.ntypes if len(of_type(ntype, left))]
            chosen = str(np.random.choice(present))
            lone = np.random.choice(of_type(chosen, left))
            found.append({chosen: tensor(np.array([lone]))})
        return found

    def explain_graph(
        self, graph: Any, feat: Mapping[str, Tensor], target_class: int, **kwargs: Any
    ) -> dict[str, Tensor]:
        """Find the subgraph that speaks most for a class.

        Parameters
        ----------
        graph : DGLGraph
            It may stay on the CPU while the features are on a GPU.
        feat : dict of str to Tensor
            (N, D) for each type of nodes.
        target_class : int
            The class.
        **kwargs
            For the model.

        Returns
        -------
        dict of str to Tensor
            The nodes of each type, in ascending order and of the graph's type of integers; a
            single node without edges comes as its type alone.

        Raises
        ------
        AssertionError
            If the graph has no more than ``node_min`` nodes.
        TypeError
            If the graph is not DGL's.
        ValueError
            If nothing was found, for want of rollouts or of finite logits.
        """
        dgl_of(self, graph)
        self.graph, self.feat, self.target_class, self.kwargs = graph, feat, target_class, kwargs
        return self.search({ntype: graph.nodes(ntype) for ntype in graph.ntypes})
