"""Edges grouped by relation: what a sum over typed edges needs, in memory for nodes.

All edges of one relation that end in one node share a matrix, which is applied once to their sum.
Such a (relation, destination) pair has a slot. A chunk is a range of destinations with all their
edges: they lead from sources to the slots of the chunk, its pairs from there to its destinations.
So each chunk makes some rows of the result, which no other chunk touches.
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

from dgl_flash.structure.adjacency import Adjacency, choose_index_dtype
from dgl_flash.structure.fence import Fence, copy_to_device
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.grouping import group_by_key
from dgl_flash.structure.plan import RowFacts
from dgl_flash.structure.tiles import Layout, Runs, Tiles, choose_height, tile, use_tiles

# Edges of a chunk: a tenth of all, so that what it holds is small beside the graph; but with less
# than the fewest a GPU waits for launches, and with more than the most memory grows for nothing.
NUM_CHUNKS = 10
FEWEST_EDGES = 2**17
MOST_EDGES = 2**19
# Edges of a slot on a GPU; a pair of more has several slots. All rows being short, as most are
# anyway, a warp walks several at a time, and none has to be cut into pieces.
SLOT_EDGES = 8
# One height for layers of all widths, so that they share the pairs; it matters little.
USUAL_WIDTH = 64


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some destinations and their edges, sorted by relation, then by destination.

    Attributes
    ----------
    rows : slice
        The destinations.
    order : Tensor
        Shape ``(n,)``, the edge id at each position.
    gather : GraphStructure
        From all sources to slots; edge ids are positions in the chunk.
    scatter : GraphStructure
        From slots to the destinations of the chunk, counted from 0; an edge a pair.
    layout : Runs or Tiles
        Relations of the slots.
    """

    rows: slice
    order: Tensor
    gather: GraphStructure
    scatter: GraphStructure
    layout: Layout


@dataclass(frozen=True, slots=True)
class Relations:
    """All edges of a graph, cut into chunks and sorted by relation.

    Attributes
    ----------
    chunks : tuple of Chunk
        At least one; their rows are consecutive and are all destinations.
    fence : Fence or None
        Orders the streams that share these tensors.
    """

    chunks: tuple[Chunk, ...]
    fence: Fence | None

    def wait(self) -> None:
        """Before the tensors are read, perhaps on another stream than they were built on."""
        if self.fence is not None:
            self.fence.wait(self._tensors())

    def _tensors(self) -> Iterator[Tensor]:
        for chunk in self.chunks:
            yield chunk.order
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
    struct: GraphStructure,
    etypes: Tensor,
    num_types: int,
    merge: bool = True,
    whole: bool = False,
    op: str = "relational_sum",
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
    whole : bool
        One chunk of all edges, and one slot a pair, however many edges it has.
    op : str
        Name that starts the text of an error.

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
        return _build(struct, etypes, num_types, merge, whole, op)
    known = _known.get(etypes)
    if known is None or known.version != etypes._version:
        known = _known[etypes] = _Known(etypes._version)
    of_graph = known.by_edges.setdefault(struct._edges, {})
    key = (struct._dst_side, num_types, merge, whole, use_tiles(struct.device))
    if key not in of_graph:
        with torch.inference_mode(False), torch.no_grad():
            of_graph[key] = _build(struct, etypes, num_types, merge, whole, op)
    of_graph[key].wait()
    return of_graph[key]


def _build(
    struct: GraphStructure, etypes: Tensor, num_types: int, merge: bool, whole: bool, op: str
) -> Relations:
    adj, num_edges, device = struct.in_adj, struct.num_edges, struct.device
    types = copy_to_device(etypes, device)
    extremes = torch.stack(torch.aminmax(types)) if num_edges else types.new_zeros(2)
    types = types.clamp(0, max(num_types - 1, 0))  # what is out of range is refused below
    if adj.eids is not None:
        types = types.index_select(0, adj.eids)

    # Cut before the first row that begins at or behind each multiple of `step`.
    step = min(max(num_edges // NUM_CHUNKS, FEWEST_EDGES), MOST_EDGES)
    step = max(num_edges, 1) if whole else step
    most = SLOT_EDGES if use_tiles(device) and not whole else None
    marks = torch.arange(0, max(num_edges, 1), step, dtype=adj.index_dtype, device=device)
    rows = torch.searchsorted(adj.indptr, marks)
    begins = adj.indptr.index_select(0, rows)
    # Positions of `adj` ascend by destination, and grouping keeps that order within a relation.
    num_groups = marks.numel() * num_types
    keys = types.to(choose_index_dtype(num_groups, 0, num_edges))
    if marks.numel() > 1:
        positions = torch.arange(num_edges, dtype=begins.dtype, device=device)
        keys += torch.searchsorted(begins[1:], positions, right=True).to(keys.dtype) * num_types
    group_ptr, order = group_by_key(keys, num_groups)
    dst, src = (ends.index_select(0, order) for ends in (adj.rows(), adj.indices))
    is_first = _find_pairs(dst, group_ptr, merge, most)
    pair_of_edge = is_first.cumsum(0, dtype=dst.dtype) - 1

    # All that the host has to know, in one read. On the CPU it can ask for degrees at any time.
    degrees = dst.new_zeros(struct.num_dst if use_tiles(device) else 0)
    if degrees.numel():
        degrees.index_add_(0, dst, is_first[:-1].to(dst.dtype))
    asked = (pair_of_edge.index_select(0, group_ptr), rows, begins, extremes, degrees)
    answer = torch.cat([part.long() for part in asked]).cpu()
    group_pairs, rows, begins, extremes, degrees = answer.split([part.numel() for part in asked])
    smallest, largest = extremes.tolist()
    if smallest < 0 or largest >= max(num_types, 1):
        raise IndexError(
            f"{op}: expected edge types in [0, {num_types}) in `etypes`, got values from "
            f"{smallest} to {largest}; there is one matrix for each type"
        )
    pairs = _Pairs.of(src, dst, pair_of_edge, int(group_pairs[-1]))
    order = order if adj.eids is None else adj.eids.index_select(0, order)
    row_cuts, edge_cuts = [*rows.tolist(), struct.num_dst], [*begins.tolist(), num_edges]
    # A chunk without edges, beside a row of many of them, leaves its rows to the one before.
    kept = [k for k in range(marks.numel()) if k == 0 or edge_cuts[k] < edge_cuts[k + 1]]
    chunks = []
    for k, following in zip(kept, [*kept[1:], marks.numel()], strict=True):
        of_rows = slice(row_cuts[k], row_cuts[following])
        of_edges = slice(edge_cuts[k], edge_cuts[following])
        type_pairs = group_pairs[k * num_types : (k + 1) * num_types + 1]
        gather, scatter, layout = _connect(struct, pairs, type_pairs, of_rows, of_edges)
        if use_tiles(device):
            _tell_degrees(gather, scatter, most if merge else 1, degrees[of_rows])
        chunks.append(Chunk(of_rows, order[of_edges], gather, scatter, layout))
    return Relations(tuple(chunks), Fence(device) if device.type == "cuda" else None)


def _find_pairs(dst: Tensor, group_ptr: Tensor, merge: bool, most: int | None) -> Tensor:
    """Whether each edge is the first of a pair, and a last True: shape ``(E + 1,)``."""
    is_first = torch.ones(dst.numel() + 1, dtype=torch.bool, device=dst.device)
    if merge and dst.numel():
        is_first[1:-1] = dst[1:] != dst[:-1]
        is_first.index_fill_(0, group_ptr.long(), True)
    if merge and most is not None:
        pair_of_edge = is_first[:-1].cumsum(0, dtype=dst.dtype)
        nth = torch.arange(dst.numel(), device=dst.device)
        nth -= torch.searchsorted(pair_of_edge, pair_of_edge)
        is_first[:-1] |= nth % most == 0
    return is_first


class _Pairs(NamedTuple):
    """Edges and pairs, both sorted by chunk, relation and destination."""

    src: Tensor  # (E,) source of each edge
    dst: Tensor  # (P,) destination of each pair
    ptr: Tensor  # (P + 1,) first edge of each pair

    @classmethod
    def of(cls, src: Tensor, dst: Tensor, pair_of_edge: Tensor, num_pairs: int) -> _Pairs:
        nth = torch.arange(num_pairs + 1, dtype=dst.dtype, device=dst.device)
        ptr = torch.searchsorted(pair_of_edge, nth, out_int32=dst.dtype == torch.int32)
        return cls(src, dst.index_select(0, ptr[:-1]), ptr)


def _connect(
    struct: GraphStructure, pairs: _Pairs, type_pairs: Tensor, rows: slice, edges: slice
) -> tuple[GraphStructure, GraphStructure, Layout]:
    """Lay out the pairs ``type_pairs[r] .. type_pairs[r + 1]`` of each relation of a chunk."""
    device = pairs.ptr.device
    lengths = type_pairs.diff()  # on the host
    first_pair, last_pair = (int(type_pairs[end]) for end in (0, -1))
    num_pairs, height = last_pair - first_pair, 1
    layout: Layout
    if use_tiles(device):
        height = choose_height(num_pairs, lengths.numel(), USUAL_WIDTH, USUAL_WIDTH)
        layout = tile(lengths, num_pairs, height, device)
    else:
        layout = Runs(tuple(lengths.tolist()))
    # Pairs before each slot; before the slots that pad a relation there are all of its pairs.
    slot_ptr = pad(((lengths + height - 1) // height * height).cumsum(0), (1, 0))
    slot_ptr, type_pairs = (copy_to_device(part, device) for part in (slot_ptr, type_pairs))
    slots = torch.arange(layout.num_slots + 1, device=device)
    owner = torch.searchsorted(slot_ptr[1:], slots[:-1], right=True)
    before = type_pairs.index_select(0, owner) + slots[:-1] - slot_ptr.index_select(0, owner)
    before = torch.minimum(before, type_pairs[1:].index_select(0, owner))
    before = torch.cat([before, type_pairs[-1:]])

    edge_ptr = pairs.ptr.index_select(0, before) - edges.start
    gather = Adjacency(edge_ptr, pairs.src[edges], None, struct.num_src)
    pair_dst = pairs.dst[first_pair:last_pair] - rows.start
    scatter = Adjacency(before - first_pair, pair_dst, None, rows.stop - rows.start)
    return (
        GraphStructure.from_adjacency(in_adj=gather),
        GraphStructure.from_adjacency(out_adj=scatter),
        layout,
    )


def _tell_degrees(
    gather: GraphStructure, scatter: GraphStructure, most: int | None, degrees: Tensor
) -> None:
    """Hand over what kernels would ask the device for.

    A slot has at most ``most`` edges, if that is known, and one pair or none: short rows, whose
    plan depends on nothing else. Of the destinations all is known.
    """
    if most is not None:
        gather.in_adj._facts = RowFacts(torch.tensor([0, 0, most]))
    scatter.out_adj._facts = RowFacts(torch.tensor([0, 0, 1]))
    indptr = pad(degrees.cumsum(0), (1, 0))
    scatter.in_adj._facts = RowFacts(indptr.to(scatter.in_adj.index_dtype))
