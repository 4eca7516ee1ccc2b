"""Communities by moving labels, level after level, in whole numbers.

Each node takes the label that most of its edges lead to, less what they would by chance
(modularity, Blondel et al. 2008), at the same time as half of the others (label propagation,
Raghavan et al. 2007); then communities are nodes. Sorting and counting only: the same on every
device, in every run.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

RESOLUTION = 4  # chance counts so often: communities of the size of windows, not of the whole graph
MOST_STEPS = 20
MOST_LEVELS = 5
FEW = 200  # a level ends when fewer than one node of so many would move


class Links(NamedTuple):
    """An undirected graph with weights, each link in both directions; up to 7e8 of them.

    Beyond that, products of weights could pass the largest int64.

    Attributes
    ----------
    rows, columns, weights : Tensor
        Shape ``(M,)``, int64.
    degrees : Tensor
        Shape ``(num_nodes,)``, int64: weights of all links of a node, also of those within it.
    """

    rows: Tensor
    columns: Tensor
    weights: Tensor
    degrees: Tensor

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.degrees.numel()


def links_of(rows: Tensor, columns: Tensor, num_nodes: int) -> Links:
    """Links of weight 1, one for each pair that is given; pairs must come in both directions."""
    weights = torch.ones_like(rows)
    degrees = rows.new_zeros(num_nodes).index_add_(0, rows, weights)
    return Links(rows, columns, weights, degrees)


def communities(links: Links) -> list[Tensor]:
    """Find communities, communities of communities, and so on.

    Parameters
    ----------
    links : Links
        The graph.

    Returns
    -------
    list of Tensor
        For each level the community of each node, shape ``(num_nodes,)``, int64, numbered from 0.
    """
    levels: list[Tensor] = []
    for level in range(MOST_LEVELS):
        _, labels = torch.unique(_move(links, seed=level), return_inverse=True)
        levels.append(labels if not levels else labels[levels[-1]])
        count = int(labels.max()) + 1 if labels.numel() else 0
        if count <= 1 or 20 * count > 19 * links.num_nodes:  # hardly any have joined
            break
        links = _contract(links, labels, count)
    return levels


def _move(links: Links, seed: int) -> Tensor:
    """Labels of the nodes after they have followed their neighbours for a while."""
    num_nodes, device = links.num_nodes, links.rows.device
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(num_nodes, device=device)
    for _ in range(MOST_STEPS):
        best = _best_labels(links, labels)
        unhappy = (best >= 0) & (best != labels)
        if FEW * int(unhappy.sum()) < num_nodes:
            break
        # If all moved at once, two neighbours would swap their labels for ever.
        free = (torch.rand(num_nodes, generator=generator) < 0.5).to(device)
        labels = torch.where(unhappy & free, best, labels)
    return labels


def _best_labels(links: Links, labels: Tensor) -> Tensor:
    """The label that each node would gain most by, -1 if by none."""
    num_nodes = links.num_nodes
    total = links.degrees.sum()
    node, label, weight = _sums(links.rows, labels[links.columns], links.weights, num_nodes)
    volumes = torch.zeros_like(links.degrees).index_add_(0, labels, links.degrees)
    degree = links.degrees[node]
    others = volumes[label] - torch.where(labels[node] == label, degree, 0)
    gain = weight * total - RESOLUTION * degree * others
    most = torch.zeros_like(labels).scatter_reduce(0, node, gain, "amax")
    # Of several the smallest.
    label = torch.where((gain == most[node]) & (gain > 0), label, num_nodes)
    best = torch.full_like(labels, num_nodes).scatter_reduce(0, node, label, "amin")
    return torch.where(best < num_nodes, best, -1)


def _sums(rows: Tensor, columns: Tensor, weights: Tensor, count: int) -> tuple[Tensor, ...]:
    """Rows, columns and weights of a matrix whose repeated entries are added up."""
    key, order = torch.sort(rows * count + columns)
    begins = torch.ones_like(key, dtype=torch.bool)
    begins[1:] = key[1:] != key[:-1]
    first = begins.nonzero().flatten()
    before = pad(weights[order].cumsum(0), (1, 0))
    bounds = pad(first, (0, 1), value=key.numel())
    key = key[first]
    return key // max(count, 1), key % max(count, 1), before[bounds].diff()


def _contract(links: Links, labels: Tensor, count: int) -> Links:
    """Communities as nodes."""
    rows, columns, weights = _sums(labels[links.rows], labels[links.columns], links.weights, count)
    between = (rows != columns).nonzero().flatten()
    degrees = links.degrees.new_zeros(count).index_add_(0, labels, links.degrees)
    return Links(rows[between], columns[between], weights[between], degrees)
