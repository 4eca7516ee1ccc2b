"""Orders of the nodes of a graph: by bandwidth, by degree, by community."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from dgl_flash.reordering.communities import communities, links_of
from dgl_flash.structure import GraphStructure

Order = Tensor  # (N,), int64: at each new place, the node that comes there


class Undirected:
    """A graph without self-loops whose edges go both ways, for all orders of a search.

    Parameters
    ----------
    struct : GraphStructure
        The graph, with one set of nodes.
    """

    def __init__(self, struct: GraphStructure) -> None:
        self.struct = struct
        self.num_nodes = struct.num_src

    @functools.cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Ends of all edges, int64, each in both directions."""
        src, dst = self.struct.edges()
        apart = (src != dst).nonzero().flatten()
        src, dst = src[apart], dst[apart]
        return torch.cat([dst, src]), torch.cat([src, dst])

    @functools.cached_property
    def rcm(self) -> Order:
        """Reverse Cuthill-McKee by SciPy, on the host."""
        from scipy.sparse import csr_matrix
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        if self.num_nodes == 0:
            return torch.zeros(0, dtype=torch.int64, device=self.struct.device)
        rows, columns = (part.cpu().numpy() for part in self.ends)
        # Entries of several edges are added up: wider than a byte, or 256 of them would be none.
        ones = np.ones(rows.shape[0], dtype=np.int32)
        matrix = csr_matrix((ones, (rows, columns)), shape=(self.num_nodes, self.num_nodes))
        order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
        return torch.from_numpy(order.astype(np.int64)).to(self.struct.device)


def rcm_order(graph: Undirected) -> Order:
    """Reverse Cuthill-McKee: neighbours get close numbers."""
    return graph.rcm


def degree_order(graph: Undirected) -> Order:
    """Most edges first, in and out; of several in the order that they have."""
    degrees = graph.struct.in_degrees().long() + graph.struct.out_degrees()
    return torch.sort(degrees, descending=True, stable=True).indices


def community_order(graph: Undirected) -> Order:
    """Communities within communities, side by side; the order of RCM among and in them."""
    order = graph.rcm
    place = torch.empty_like(order)
    place[order] = torch.arange(order.numel(), device=order.device)
    for labels in communities(links_of(*graph.ends, graph.num_nodes)):
        rank = _rank(labels, place)[order]
        order = order[torch.sort(rank, stable=True).indices]
    return order


ORDERS: dict[str, Callable[[Undirected], Order]] = {
    "rcm": rcm_order,
    "degree": degree_order,
    "community": community_order,
}


def _rank(labels: Tensor, place: Tensor) -> Tensor:
    """A number for each node by which communities sort as their members lie on average."""
    count = int(labels.max()) + 1 if labels.numel() else 0
    sizes, sums = (place.new_zeros(count) for _ in range(2))
    sizes.index_add_(0, labels, torch.ones_like(place))
    sums.index_add_(0, labels, place)
    mean = torch.div(sums, sizes.clamp(min=1), rounding_mode="floor")
    # Two communities may have one mean, and must not mix.
    return (mean * count + torch.arange(count, device=place.device))[labels]
