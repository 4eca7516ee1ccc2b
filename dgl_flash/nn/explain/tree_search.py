"""The search of SubgraphX in a tree of subgraphs."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from math import sqrt
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dgl_flash.nn.explain.common import evaluating


class MCTSNode:
    """A subgraph in the tree of the search.

    Parameters
    ----------
    nodes : Tensor or dict of str to Tensor
        Its nodes.
    """

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes
        self.num_visit = 0
        self.total_reward = 0.0
        self.immediate_reward = 0.0
        self.children: list[MCTSNode] = []

    def __repr__(self) -> str:
        """The nodes."""
        return str(self.nodes)


class TreeSearch(nn.Module):
    """Hyperparameters and the search, for one type of nodes or many."""

    graph: Any
    feat: Any
    target_class: int
    kwargs: dict[str, Any]
    mcts_node_maps: dict[Hashable, MCTSNode]

    def __init__(
        self,
        model: nn.Module,
        num_hops: int,
        coef: float = 10.0,
        high2low: bool = True,
        num_child: int = 12,
        num_rollouts: int = 20,
        node_min: int = 3,
        shapley_steps: int = 100,
        log: bool = False,
    ) -> None:
        super().__init__()
        self.num_hops = num_hops
        self.coef = coef
        self.high2low = high2low
        self.num_child = num_child
        self.num_rollouts = num_rollouts
        self.node_min = node_min
        self.shapley_steps = shapley_steps
        self.log = log
        self.model = model

    def shapley(self, subgraph_nodes: Any) -> float:
        """Estimate the Shapley value of a subgraph."""
        raise NotImplementedError

    def parts_without_a_node(self, nodes: Any) -> list[Any]:
        """Subgraphs of the subgraph, one node or more smaller."""
        raise NotImplementedError

    @staticmethod
    def _by_type(nodes: Any) -> Mapping[str | None, Tensor]:
        """One type of nodes is a dict with one entry."""
        return nodes if isinstance(nodes, Mapping) else {None: nodes}

    def _is_leaf(self, mcts_node: MCTSNode) -> bool:
        # Nothing is left of a node without itself.
        count = sum(map(len, self._by_type(mcts_node.nodes).values()))
        return count <= max(self.node_min, 1)

    def _tree_node(self, nodes: Any) -> MCTSNode:
        """Subgraphs that can be reached in several ways are one node of the tree."""
        key = tuple((ntype, *ids.tolist()) for ntype, ids in self._by_type(nodes).items())
        return self.mcts_node_maps.setdefault(key, MCTSNode(nodes))

    def get_mcts_children(self, mcts_node: MCTSNode) -> list[MCTSNode]:
        """Expand a node of the tree.

        Parameters
        ----------
        mcts_node : MCTSNode
            The node.

        Returns
        -------
        list of MCTSNode
            The largest connected parts of what is left without one node of the subgraph, for
            ``num_child`` nodes.
        """
        if not mcts_node.children:
            found = map(self._tree_node, self.parts_without_a_node(mcts_node.nodes))
            mcts_node.children = list(dict.fromkeys(found))
            for child in mcts_node.children:
                if child.immediate_reward == 0:
                    child.immediate_reward = self.shapley(child.nodes)
        return mcts_node.children

    def mcts_rollout(self, mcts_node: MCTSNode) -> float:
        """Descend to a leaf, and tell the nodes on the way what it is worth.

        Parameters
        ----------
        mcts_node : MCTSNode
            Where to begin.

        Returns
        -------
        float
            Reward of the leaf.
        """
        path = []
        while not self._is_leaf(mcts_node):
            children = self.get_mcts_children(mcts_node)
            visits = sqrt(sum(child.num_visit for child in children))
            scores = [
                child.total_reward / max(child.num_visit, 1)
                + self.coef * child.immediate_reward * visits / (1 + child.num_visit)
                for child in children
            ]
            mcts_node = children[scores.index(max(scores))]
            path.append(mcts_node)
        reward = mcts_node.immediate_reward
        for visited in path:
            visited.num_visit += 1
            visited.total_reward += reward
        return reward

    def search(self, root: Any) -> Any:
        """The best leaf that the rollouts from the whole graph meet."""
        if self.graph.num_nodes() <= self.node_min:
            raise AssertionError(
                f"The number of nodes in the graph {self.graph.num_nodes()} should be bigger "
                f"than {self.node_min}."
            )
        self.mcts_node_maps = {}
        start = self._tree_node(root)
        with evaluating(self.model):
            for i in range(self.num_rollouts):
                if self.log:
                    explored = len(self.mcts_node_maps)
                    print(
                        f"Rollout {i}/{self.num_rollouts}, {explored} subgraphs have been explored."
                    )
                self.mcts_rollout(start)
        best, most = None, float("-inf")
        for found in self.mcts_node_maps.values():
            if self._is_leaf(found) and found.immediate_reward > most:
                best, most = found.nodes, found.immediate_reward
        if best is None:
            raise ValueError(
                f"{type(self).__name__}: no subgraph was found in {self.num_rollouts} rollouts; "
                f"num_rollouts has to be positive and the model's logits finite"
            )
        return best

    def largest_parts(self, src: Any, dst: Any, inside: Any, degree_type: torch.dtype) -> Any:
        """Largest connected part of a subgraph without each node of the most or least edges.

        Parameters
        ----------
        src, dst : array of int
            Edges of the whole graph, the types of nodes numbered one after the other.
        inside : array of bool
            Nodes of the subgraph.
        degree_type : torch.dtype
            Of degrees, where it decides among equal ones.

        Yields
        ------
        tuple of array
            Nodes that are left, those of the part, and whether it has an edge at all.
        """
        # As late as elsewhere: importing the layers does not import SciPy.
        from scipy import sparse
        from scipy.sparse.csgraph import connected_components

        kept = inside[src] & inside[dst]
        src, dst = src[kept], dst[kept]
        nodes = np.flatnonzero(inside)
        size = len(inside)
        degree = np.bincount(src, minlength=size) + np.bincount(dst, minlength=size)
        degrees = torch.from_numpy(degree[nodes]).to(degree_type)
        count = min(len(nodes), self.num_child)
        for i in torch.topk(degrees, count, largest=self.high2low).indices.tolist():
            kept = (src != nodes[i]) & (dst != nodes[i])
            ends = (src[kept], dst[kept])
            links = sparse.coo_matrix((np.ones(len(ends[0])), ends), shape=(size, size))
            part = connected_components(links, directed=False)[1]
            left = np.delete(nodes, i)
            # Parts are numbered by their first nodes: of equal ones the first is taken.
            largest = np.bincount(part[left]).argmax()
            yield left, left[part[left] == largest], bool(kept.any())

    def contribution(self, without: Any, with_it: Any) -> Tensor:
        """What a subgraph adds to the probability of the class, from features without and with."""
        with torch.no_grad():
            values = [
                self.model(self.graph, feat, **self.kwargs).softmax(dim=-1)[:, self.target_class]
                for feat in (without, with_it)
            ]
        return values[1] - values[0]


def drawn_before(space: list[int], split: int) -> Any:
    """What stands before `split` in a random order: a coalition."""
    order = np.random.permutation(space)
    return order[: int(np.flatnonzero(order == split)[0])]


def masked(feat: Tensor, mask: Tensor) -> Tensor:
    """Rows of 0 where the mask is 0."""
    kind = feat.dtype if feat.is_floating_point() else mask.dtype
    return feat * mask.unsqueeze(1).to(device=feat.device, dtype=kind)
