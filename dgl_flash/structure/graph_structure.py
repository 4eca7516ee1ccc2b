"""The structure of one relation: both directions of its edges, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from dgl_flash.structure import traced
from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.fence import Fence
from dgl_flash.structure.places import places_in_rows, positions_in_rows

_SIDES = {"dst": 0, "src": 1}


def resolve_device(device: torch.device | str) -> torch.device:
    """Name the device in full: ``cuda`` becomes the current ``cuda:N``, so that it can be a key."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


class _Edges:
    """The edges that a structure and its reverse share, with all that is cached about them.

    Side 0 has destinations as rows, side 1 sources. At least one of the two adjacencies is there;
    the other is built when asked for.
    """

    __slots__ = (
        "__weakref__",
        "adjacencies",
        "coo",
        "copies",
        "counts",
        "device",
        "empty_rows",
        "fence",
        "looped",
        "places",
        "scales",
    )

    def __init__(self, adjacencies: list[Adjacency | None]):
        self.adjacencies = adjacencies
        self.coo: tuple[Tensor, Tensor] | None = None
        self.copies: dict[torch.device, _Edges] = {}
        self.looped: GraphStructure | None = None  # with one self-loop at each node
        self.counts: dict[int, Tensor] = {}
        self.scales: dict[tuple[int, float, torch.dtype], Tensor] = {}
        self.places: dict[tuple[int, Callable[..., Tensor]], Tensor] = {}
        self.device = self.known()[1].device
        # What layers ask for first; here it costs little, and torch.compile could not find it out.
        self.empty_rows = [
            adjacency.has_empty_rows if adjacency and self.device.type == "cpu" else None
            for adjacency in adjacencies
        ]
        self.fence = Fence(self.device) if self.device.type == "cuda" else None
        for adjacency in adjacencies:
            if adjacency is not None:
                adjacency.fence = self.fence
        traced.register(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # One side is enough, and everything else is derived.
        side, adjacency = self.known()
        kept: list[Adjacency | None] = [None, None]
        kept[side] = adjacency
        return _Edges, (kept,)

    def known(self) -> tuple[int, Adjacency]:
        """Find a side that is there, destinations first."""
        for side, adjacency in enumerate(self.adjacencies):
            if adjacency is not None:
                return side, adjacency
        raise AssertionError("a structure has at least one adjacency")

    def cached_tensors(self) -> Iterator[Tensor]:
        """Visit all tensors that another stream may have built."""
        for adjacency in self.adjacencies:
            if adjacency is not None:
                yield from adjacency.tensors()
        yield from self.counts.values()
        yield from self.scales.values()
        yield from self.places.values()

    def wait(self) -> None:
        """Before cached tensors are read."""
        if self.fence is not None:
            self.fence.wait(self.cached_tensors())

    def mark(self) -> None:
        """After a tensor was built and cached."""
        if self.fence is not None:
            self.fence.mark()

    def adjacency(self, side: int) -> Adjacency:
        self.wait()
        built = self.adjacencies[side]
        if built is None:
            with torch.inference_mode(False):  # what is kept will be used in training too
                built = self.adjacencies[side] = self.known()[1].transpose()
            built.fence = self.fence
            traced.register(self)  # by the side that is now the first one
            self.mark()
        return built

    def degrees(self, side: int) -> Tensor:
        self.wait()
        if side not in self.counts:
            built = self.adjacencies[side]
            with torch.inference_mode(False):
                if built is not None:
                    self.counts[side] = built.degrees()
                else:
                    self.counts[side] = _count_columns(self.known()[1])
            self.mark()
        return self.counts[side]

    def degree_scale(self, side: int, exponent: float, dtype: torch.dtype) -> Tensor:
        key = (side, exponent, dtype)
        self.wait()
        if key not in self.scales:
            # Half types cannot hold the degree of a hub (fp16 ends at 65504): round the result.
            acc_dtype = torch.float64 if dtype == torch.float64 else torch.float32
            with torch.inference_mode(False):
                degrees = self.degrees(side).clamp(min=1).to(acc_dtype)
                self.scales[key] = degrees.pow(exponent).to(dtype)
            self.mark()
        return self.scales[key]

    def places_of(self, side: int, find: Callable[..., Tensor]) -> Tensor:
        rows, other = self.adjacency(side), self.adjacency(1 - side)
        if (side, find) not in self.places:
            with torch.inference_mode(False):
                self.places[side, find] = find(rows, other)
            self.mark()
        return self.places[side, find]

    @torch.inference_mode(False)
    def build_coo(self) -> tuple[Tensor, Tensor]:
        """Destination and source of each edge as side 0 and side 1 see them, int64."""
        self.wait()
        side, adjacency = self.known()
        rows, columns = adjacency.rows().long(), adjacency.indices.long()
        if adjacency.eids is not None:
            eids = adjacency.eids.long()
            rows, columns = (
                torch.empty_like(end).scatter_(0, eids, end) for end in (rows, columns)
            )
        return (rows, columns) if side == 0 else (columns, rows)

    def to(self, device: torch.device) -> _Edges:
        if device not in self.copies:
            self.wait()
            side, adjacency = self.known()
            moved: list[Adjacency | None] = [None, None]
            with torch.inference_mode(False):
                moved[side] = adjacency.to(device)
            copy = self.copies[device] = _Edges(moved)
            copy.empty_rows = list(self.empty_rows)
        return self.copies[device]


def _find_empty_rows(edges: _Edges, side: int) -> None:
    edges.empty_rows[side] = edges.adjacency(side).has_empty_rows


_find_outside = traced.outside_trace(_find_empty_rows)


def _count_columns(adjacency: Adjacency) -> Tensor:
    """Edges in each column, without the transpose."""
    indices, size = adjacency.indices, adjacency.num_cols
    if indices.device.type == "cpu":
        return torch.bincount(indices, minlength=size).to(adjacency.index_dtype)
    # bincount asks the device for the maximum; integer atomics give the same counts unasked.
    counts = torch.zeros(size, dtype=adjacency.index_dtype, device=indices.device)
    ones = torch.ones(1, dtype=counts.dtype, device=indices.device).expand(indices.numel())
    return counts.index_add_(0, indices, ones)


class GraphStructure:
    """Edges ``u -> v`` of one relation on one device, as the ops read them; immutable.

    Build one with `dgl_flash.structure(graph)`, `from_adjacency` or `from_coo`.

    Attributes
    ----------
    num_src, num_dst, num_edges : int
        Numbers of sources, destinations and edges.
    device : torch.device
        Device of the adjacencies.
    """

    __slots__ = (
        "__weakref__",
        "_dst_side",
        "_edges",
        "device",
        "num_dst",
        "num_edges",
        "num_src",
    )

    def __init__(self, edges: _Edges, dst_side: int = 0):
        self._edges = edges
        self._dst_side = dst_side
        side, adjacency = edges.known()
        sizes = (adjacency.num_rows, adjacency.num_cols)
        self.num_dst, self.num_src = sizes if side == dst_side else sizes[::-1]
        self.num_edges = adjacency.num_edges
        self.device = adjacency.device

    @classmethod
    def from_adjacency(
        cls, in_adj: Adjacency | None = None, out_adj: Adjacency | None = None
    ) -> GraphStructure:
        """Wrap compressed edges, rows being destinations (`in_adj`) or sources (`out_adj`)."""
        if in_adj is None and out_adj is None:
            raise ValueError("GraphStructure: expected `in_adj` or `out_adj`, got neither")
        return cls(_Edges([in_adj, out_adj]))

    @classmethod
    def from_coo(cls, src: Tensor, dst: Tensor, num_src: int, num_dst: int) -> GraphStructure:
        """Compress the edges ``src[e] -> dst[e]``; the arguments are trusted."""
        return cls.from_adjacency(Adjacency.from_coo(dst, src, num_dst, num_src))

    def __reduce__(self) -> tuple[Any, ...]:
        return GraphStructure, (self._edges, self._dst_side)

    def __repr__(self) -> str:
        return (
            f"GraphStructure(num_src={self.num_src}, num_dst={self.num_dst}, "
            f"num_edges={self.num_edges}, device={self.device})"
        )

    @property
    def in_adj(self) -> Adjacency:
        """Rows are destinations, columns are sources."""
        return self._edges.adjacency(self._dst_side)

    @property
    def out_adj(self) -> Adjacency:
        """Rows are sources, columns are destinations; built on this device at the first use."""
        return self._edges.adjacency(1 - self._dst_side)

    def out_places(self) -> Tensor:
        """Where each position of `out_adj` stands in its row of `in_adj`; see ``places_in_rows``.

        Returns
        -------
        Tensor
            Shape ``(num_edges,)``, index dtype; cached.
        """
        return self._edges.places_of(self._dst_side, places_in_rows)

    def out_positions(self) -> Tensor:
        """Which position of `in_adj` each position of `out_adj` is the same edge as.

        Returns
        -------
        Tensor
            Shape ``(num_edges,)``, index dtype; cached.
        """
        return self._edges.places_of(self._dst_side, positions_in_rows)

    def bound_in_degree(self) -> int:
        """Bound the in-degrees without any work: the largest if it is known, else all edges."""
        adjacency = self._edges.adjacencies[self._dst_side]
        known = None if adjacency is None else adjacency.known_max_degree
        return self.num_edges if known is None else known

    @property
    def has_zero_in_degree(self) -> bool:
        """Whether some destination has no in-edge; never reads a device for a CPU graph."""
        edges, side = self._edges, self._dst_side
        if edges.empty_rows[side] is None:
            find = _find_outside if traced.is_tracing() else _find_empty_rows
            find(edges, side)
        return bool(edges.empty_rows[side])

    def in_degrees(self) -> Tensor:
        """In-edges of each destination: shape ``(num_dst,)``, index dtype."""
        if traced.is_tracing():
            return traced.in_degrees(self)
        return self._edges.degrees(self._dst_side)

    def out_degrees(self) -> Tensor:
        """Out-edges of each source: shape ``(num_src,)``, index dtype; builds no `out_adj`."""
        if traced.is_tracing():
            return traced.in_degrees(self.reverse())
        return self._edges.degrees(1 - self._dst_side)

    def degree_scale(self, side: str, exponent: float, dtype: torch.dtype) -> Tensor:
        """``max(degree, 1) ** exponent``, cached.

        Parameters
        ----------
        side : {"src", "dst"}
            Out-degrees of the sources, or in-degrees of the destinations.
        exponent : float
            -1 or -0.5 in the layers.
        dtype : torch.dtype
            Floating dtype of the result; computed in float32 at least.

        Returns
        -------
        Tensor
            Shape ``(num_src,)`` or ``(num_dst,)``.
        """
        if traced.is_tracing():
            return traced.degree_scale(self, side, exponent, dtype)
        return self._edges.degree_scale(_SIDES[side] ^ self._dst_side, exponent, dtype)

    def edges(self) -> tuple[Tensor, Tensor]:
        """Source and destination of each edge, in edge-id order.

        Returns
        -------
        src, dst : Tensor
            Shape ``(num_edges,)`` each, int64. Kept on the CPU, where every reference op asks for
            them; built anew on a GPU, where memory is dear.
        """
        if traced.is_tracing():
            return traced.ends(self)
        pair = self._edges.coo or self._edges.build_coo()
        if self.device.type == "cpu":
            self._edges.coo = pair
        dst, src = pair if self._dst_side == 0 else pair[::-1]
        return src, dst

    def reverse(self) -> GraphStructure:
        """Edges ``v -> u`` with the same ids; shares adjacencies and caches with this one."""
        return GraphStructure(self._edges, 1 - self._dst_side)

    def to(self, device: torch.device | str) -> GraphStructure:
        """Copy to a device, once for each."""
        if device == self.device:
            return self
        device = resolve_device(device)
        if device == self.device:
            return self
        return GraphStructure(self._edges.to(device), self._dst_side)

    def known_copy(self, device: torch.device | str) -> GraphStructure | None:
        """The copy on a device if there is one already."""
        if device == self.device:
            return self
        edges = self._edges.copies.get(resolve_device(device))
        return None if edges is None else GraphStructure(edges, self._dst_side)

    def edge_subgraph(self, eids: Tensor) -> GraphStructure:
        """Keep some edges and all nodes; edge ``k`` of the result is edge ``eids[k]``.

        Parameters
        ----------
        eids : Tensor
            Shape ``(K,)``, int32 or int64, on this device, values in ``[0, num_edges)``.

        Returns
        -------
        GraphStructure
            Same nodes, ``K`` edges.
        """
        src, dst = self.edges()
        eids = eids.long()
        return GraphStructure.from_coo(src[eids], dst[eids], self.num_src, self.num_dst)
