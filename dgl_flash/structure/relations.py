"""Edges grouped by relation: what a sum over typed edges needs, in memory for nodes.

All edges of one relation that end in one node share a matrix, which is applied once to their sum.
Such a (relation, destination) pair has a slot. A chunk is a range of slots: its edges lead from
sources to slots, its pairs from slots to destinations.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from torch.utils.weak import WeakTensorKeyDictionary

from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.fence import Fence, copy_to_device
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.grouping import group_by_key
from dgl_flash.structure.plan import RowFacts
from dgl_flash.structure.tiles import Layout, Runs, Tiles, choose_height, tile, use_tiles

# Edges of a chunk on a graph of fewer nodes: below this, a GPU waits for launches.
FEWEST_EDGES = 2**17
# One height for layers of all widths, so that they share the pairs; it matters little.
USUAL_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some edges of a graph, sorted by relation.

    Attributes
    ----------
    gather : GraphStructure
        From sources to slots; edge ids are positions in the chunk.
    scatter : GraphStructure
        From slots to destinations, an edge a pair.
    layout : Runs or Tiles
        Relations of the slots.
    """

    gather: GraphStructure
    scatter: GraphStructure
    layout: Layout


@dataclass(frozen=True, slots=True)
class Relations:
    """All edges of a graph, sorted by relation and cut into chunks.

    Attributes
    ----------
    order : Tensor
        Shape ``(E,)``, the edge id at each position.
    chunks : tuple of Chunk
        At least one, consecutive.
    fence : Fence or None
        Orders the streams that share these tensors.
    """

    order: Tensor
    chunks: tuple[Chunk, ...]
    fence: Fence | None

    def wait(self) -> None:
        """Before the tensors are read, perhaps on another stream than they were built on."""
        if self.fence is not None:
            self.fence.wait(self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        yield self.order
        for chunk in self.chunks:
            if isinstance(chunk.layout, Tiles):
                yield chunk.layout.types
                yield chunk.layout.bounds


class _Known:
    """What was built from one tensor of edge types, for as long as its values stand."""

    __slots__ = ("by_edges", "version")

    def __init__(self, version: int):
        self.version = version
        self.by_edges: weakref.WeakKeyDictionary[Any, dict[Any, Relations]] = (
            weakref.WeakKeyDictionary()
        )


_known = WeakTensorKeyDictionary()


def relations(
    struct: GraphStructure, etypes: Tensor, num_types: int, merge: bool = True
) -> Relations:
    """Sort the edges of a graph by relation, once for each graph and tensor of types.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    etypes : Tensor
        Shape ``(E,)``, int32 or int64, values in ``[0, num_types)``, on any device.
    num_types : int
        Number of relations.
    merge : bool
        Whether edges of one relation and one destination share a slot; otherwise each edge has one.

    Returns
    -------
    Relations
        Kept until the graph or the tensor of types goes, or the tensor is written to; it keeps
        neither alive. Building reads the device once.

    Raises
    ------
    IndexError
        A type is out of range.
    """
    if etypes.is_inference():  # nothing tells whether such a tensor has been written to
        return _build(struct, etypes, num_types, merge)
    known = _known.get(etypes)
    if known is None or known.version != etypes._version:
        known = _known[etypes] = _Known(etypes._version)
    of_graph = known.by_edges.setdefault(struct._edges, {})
    key = (struct._dst_side, num_types, merge, use_tiles(struct.device))
    if key not in of_graph:
        with torch.inference_mode(False), torch.no_grad():
            of_graph[key] = _build(struct, etypes, num_types, merge)
    of_graph[key].wait()
    return of_graph[key]


def _build(struct: GraphStructure, etypes: Tensor, num_types: int, merge: bool) -> Relations:
    adj, num_edges, device = struct.in_adj, struct.num_edges, struct.device
    types = copy_to_device(etypes, device)
    extremes = torch.stack(torch.aminmax(types)) if num_edges else types.new_zeros(2)
    types = types.clamp(0, max(num_types - 1, 0)).to(adj.index_dtype)  # refused when read below
    if adj.eids is not None:
        types = types.index_select(0, adj.eids)
    # Positions of `adj` ascend by destination, and grouping keeps that order within a relation.
    type_ptr, order = group_by_key(types, num_types)
    dst, src = (ends.index_select(0, order) for ends in (adj.rows(), adj.indices))
    pair_of_edge = _number_pairs(dst, type_ptr, merge)

    # All that the host has to know, in one read: pairs before each relation and each cut.
    step = max(struct.num_src, struct.num_dst, FEWEST_EDGES)
    cuts = pair_of_edge[: max(num_edges, 1) : step].contiguous()
    asked = (
        pair_of_edge.index_select(0, type_ptr),
        cuts,
        torch.searchsorted(pair_of_edge, cuts),  # a pair of many edges is not cut
        extremes,
    )
    answer = torch.cat([part.long() for part in asked]).cpu()
    type_pairs, cuts, begins, extremes = answer.split([part.numel() for part in asked])
    smallest, largest = extremes.tolist()
    if smallest < 0 or largest >= max(num_types, 1):
        raise IndexError(
            f"expected edge types in [0, {num_types}), got values from {smallest} to {largest}"
        )
    num_pairs = int(type_pairs[-1])
    bounds = list(dict.fromkeys(zip(cuts.tolist(), begins.tolist(), strict=True)))

    pairs = _Pairs.of(src, dst, pair_of_edge, num_pairs)
    # A relation that is cut has rows of its own in each chunk.
    num_runs = num_types + len(bounds) - 1
    height = choose_height(num_pairs, num_runs, USUAL_WIDTH, USUAL_WIDTH)
    ends = [*bounds[1:], (num_pairs, num_edges)]
    chunks = tuple(
        _chunk(struct, pairs, type_pairs.clamp(first[0], last[0]), first[1], last[1], height)
        for first, last in zip(bounds, ends, strict=True)
    )
    order = order if adj.eids is None else adj.eids.index_select(0, order)
    return Relations(order, chunks, Fence(device) if device.type == "cuda" else None)


def _number_pairs(dst: Tensor, type_ptr: Tensor, merge: bool) -> Tensor:
    """Pair of each edge, then the number of pairs: shape ``(E + 1,)``, ascending from 0."""
    begins = torch.ones(dst.numel() + 1, dtype=torch.bool, device=dst.device)
    if merge and dst.numel():
        begins[1:-1] = dst[1:] != dst[:-1]
        begins.index_fill_(0, type_ptr.long(), True)
    return begins.cumsum(0, dtype=dst.dtype) - 1


class _Pairs(NamedTuple):
    """Edges and pairs, both sorted by relation and destination."""

    src: Tensor  # (E,) source of each edge
    dst: Tensor  # (P,) destination of each pair
    ptr: Tensor  # (P + 1,) first edge of each pair

    @classmethod
    def of(cls, src: Tensor, dst: Tensor, pair_of_edge: Tensor, num_pairs: int) -> _Pairs:
        nth = torch.arange(num_pairs + 1, dtype=dst.dtype, device=dst.device)
        ptr = torch.searchsorted(pair_of_edge, nth, out_int32=dst.dtype == torch.int32)
        return cls(src, dst.index_select(0, ptr[:-1]), ptr)


def _chunk(
    struct: GraphStructure,
    pairs: _Pairs,
    type_pairs: Tensor,
    first_edge: int,
    last_edge: int,
    height: int,
) -> Chunk:
    """Build the chunk that has pairs ``type_pairs[r] .. type_pairs[r + 1]`` of each relation."""
    device = pairs.ptr.device
    first_pair, last_pair = (int(end) for end in type_pairs[[0, -1]])
    lengths = type_pairs.diff()  # on the host
    layout: Layout
    if use_tiles(device):
        layout = tile(lengths, last_pair - first_pair, height, device)
    else:
        layout, height = Runs(tuple(lengths.tolist())), 1
    # Pairs before each slot; before the slots that pad a relation there are all of its pairs.
    slot_ptr = pad(((lengths + height - 1) // height * height).cumsum(0), (1, 0))
    slot_ptr, type_pairs = (copy_to_device(part, device) for part in (slot_ptr, type_pairs))
    slots = torch.arange(layout.num_slots + 1, device=device)
    owner = torch.searchsorted(slot_ptr[1:], slots[:-1], right=True)
    before = type_pairs.index_select(0, owner) + slots[:-1] - slot_ptr.index_select(0, owner)
    before = torch.minimum(before, type_pairs[1:].index_select(0, owner))
    before = torch.cat([before, type_pairs[-1:]])

    edge_ptr = pairs.ptr.index_select(0, before) - first_edge
    gather = Adjacency(edge_ptr, pairs.src[first_edge:last_edge], None, struct.num_src)
    pair_dst = pairs.dst[first_pair:last_pair]
    scatter = Adjacency(before - first_pair, pair_dst, None, struct.num_dst)
    if device.type == "cuda":
        # A slot has one pair or none: two of them tell all that a plan of these rows depends on.
        scatter._facts = RowFacts(torch.tensor([0, 0, 1]))
    return Chunk(
        GraphStructure.from_adjacency(in_adj=gather),
        GraphStructure.from_adjacency(out_adj=scatter),
        layout,
    )
