"""Which layout a kernel runs with: pure functions of widths, dtype and degree facts.

The rules come from ``benchmarks/sweep.py`` on an H200. What was seen there:

- In attention, on skewed graphs, a warp should walk one row at a time; two at a time pay only where
  all rows are short and alike (road networks, molecules), and cost a factor of two elsewhere.
- 4 elements a lane beat 8 or more in all but those and rows of 30 edges and more: registers, hence
  warps in flight, matter more than the shuffles saved. Wider rows are therefore shared out over
  blocks along y. 16-bit numbers take half the registers, and on tensor cores no shuffles: 8 or 16 a
  lane, but on rows of less than 10 edges. Sorting rows among their neighbours, so that several of
  one length share a warp, gained 3 to 10 % on dense graphs and lost up to 45 % on sparse ones.
- Capping the registers at 64 or 80 a thread pays as long as nothing spills.
- A sum is another matter: there is little to do for a row, so what is done once an edge shows. Two
  vectors a lane and several edges side by side halve it. Rows of more than 16 lanes times two
  vectors are shared out along y, which also keeps more rows in L1: loads that bypass it
  (no_allocate, evict_first) were 10 to 100 % slower, wider L2 requests no faster.
- Each of those slices reads the factors of the edges again, and L1 takes as long over one factor as
  over 128 bytes of a row. So a sum with factors gives the whole row to a warp: up to 14 % faster.
  Handing factors on from lane to lane was 3 to 15 % slower than loading them in every lane, and
  16-bit factors hardly faster. (On proteins the data pipe of L1 is 92 % busy, on products L2 96 %.)
- Loading a group's rows before the work on the one before pays where it costs few of the warps: in
  the pass by destination, and in the forward on 16-bit numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from dgl_flash.kernels.layout import VECTOR_BYTES, WARP, Layout, ceil_power, make_layout

SHORT_ROWS = 6  # mean degree below which several rows a warp may pay
EVEN_ROWS = 8  # ... if the longest row is at most this many times the mean
FEW_ROWS = 2**14  # rows below which a sum is shared out finely, to fill the card evenly
FEW_ROWS_CHUNK = 128  # edges in a piece of their long ones
BUSY_ROWS = 18  # mean degree from which a sum with factors is bound by what it reads once an edge
LONG_ROWS = 20  # mean degree from which larger blocks pay in the forward
LASTING_ROWS = 64  # mean degree from which a slot takes one row of a sum
HEAVY_ROWS = 200  # mean degree from which 8 elements a lane beat more warps
MOST_UNROLLED = 8  # elements a lane up to which more than two edges are in flight; 16 in 16 bits
REGISTERS = 65_536  # of a multiprocessor, on every card since compute capability 3.5
OVERHEAD = 26  # registers a lane for addresses, ids and scores
MOST_SLICES = 2**12


@dataclass(frozen=True)
class Pass:
    """What a pass holds, and the block shape that suits it.

    Attributes
    ----------
    kept : float
        Rows that a lane keeps its share of, in 32 bits an element.
    gathered : float
        Rows read an edge, likewise.
    in_flight : int
        Edges of a row on their way.
    warps, blocks : int
        Warps a block, blocks a multiprocessor.
    half_bytes : int
        Bytes of a load of 16-bit numbers.
    ahead : bool
        Whether a group's rows are loaded before the work on the group before.
    overhead : int
        Registers a lane for addresses, ids and scores.
    """

    kept: float
    gathered: float
    in_flight: int
    warps: int
    blocks: int
    half_bytes: int = 16
    ahead: bool = False
    overhead: int = OVERHEAD


ELEMENTWISE = Pass(kept=1, gathered=2, in_flight=4, warps=4, blocks=8)
SDDMM = Pass(kept=1, gathered=1, in_flight=4, warps=4, blocks=1)
EDGE_MAP = Pass(kept=1, gathered=1, in_flight=4, warps=4, blocks=8)


class DegreeFacts(Protocol):
    """What the choice needs of an adjacency."""

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def num_edges(self) -> int:
        """Number of edges."""

    @property
    def max_degree(self) -> int:
        """Length of the longest row."""


def mean_degree(adjacency: DegreeFacts) -> float:
    """Edges a row."""
    return adjacency.num_edges / max(adjacency.num_rows, 1)


def has_short_even_rows(adjacency: DegreeFacts) -> bool:
    """Whether two rows that share a warp end at about the same time, and soon."""
    mean = mean_degree(adjacency)
    return mean < SHORT_ROWS and adjacency.max_degree <= EVEN_ROWS * max(mean, 1)


def fit_layout(
    num_heads: int,
    head_dim: int,
    itemsize: int,
    work: Pass,
    *,
    vectors: int = 1,
    row_slots: int = 1,
    max_slices: int = 1,
    loops: bool = False,
) -> Layout:
    """Fit a layout that keeps the edges of ``work`` in flight, at least two a lane.

    Its blocks a multiprocessor are asked for only if what a lane keeps and what is on its way to it
    leave them room.
    """

    def fit(unroll: int, min_blocks: int) -> Layout:
        return make_layout(
            num_heads,
            head_dim,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            vector_bytes=work.half_bytes if itemsize == 2 else VECTOR_BYTES,
            warps=work.warps,
            min_blocks=min_blocks,
            ahead=work.ahead,
            max_slices=max_slices,
            loops=loops,
        )

    shape = fit(1, 1)
    words = shape.vectors * shape.vector * (2 if itemsize == 8 else 1)
    arriving = work.gathered * (2 if work.ahead else 1)
    room = REGISTERS // (work.warps * WARP * work.blocks) - work.overhead

    def fits(unroll: int) -> bool:
        return (work.kept + unroll * arriving) * words <= room

    most = MOST_UNROLLED * 4 // min(itemsize, 4)
    unroll = max(work.in_flight // shape.edge_slots, 2)
    while unroll > 2 and (words > most or not fits(unroll)):
        unroll //= 2
    return fit(unroll, work.blocks if fits(unroll) else 1)


def _has_few_long_rows(adjacency: DegreeFacts) -> bool:
    return adjacency.num_rows < FEW_ROWS and mean_degree(adjacency) >= LONG_ROWS


def _lanes_of_long_row(
    adjacency: DegreeFacts, usual: int, *, half: bool, factors: bool, weights: bool
) -> int:
    """Lanes that share a long row of a sum, ``usual`` unless the graph asks for others."""
    if _has_few_long_rows(adjacency):
        return usual // 2
    mean = mean_degree(adjacency)
    busy = mean >= BUSY_ROWS or has_short_even_rows(adjacency)
    whole = weights or (factors and busy) or mean >= HEAVY_ROWS
    return WARP if whole and not half else usual


def _sum_layout(
    adjacency: DegreeFacts,
    num_heads: int,
    head_dim: int,
    itemsize: int,
    *,
    factors: bool = False,
    weights: bool = False,
) -> Layout:
    """Layout of a sum, with or without factors of sources and weights of edges.

    Two vectors a lane make the lanes of a row few, so that a warp walks several edges at a time and
    what is read once an edge, its id and factor, costs half the instructions. 16-bit rows are half
    as long: with their lanes on one edge, more edges are in flight, unless factors take registers.
    """
    mean = mean_degree(adjacency)
    short = has_short_even_rows(adjacency)
    half = itemsize == 2
    once_an_edge = factors or weights
    long_row = head_dim * itemsize > 16 * VECTOR_BYTES
    vectors = 2 if not half or (long_row and (short or once_an_edge)) else 1
    if not half:
        unroll = 4
    else:
        unroll = 2 if short or once_an_edge else 8
    lanes = WARP // vectors
    if long_row:
        lanes = _lanes_of_long_row(adjacency, lanes, half=half, factors=factors, weights=weights)
    narrow = make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=vectors,
        row_slots=1,
        unroll=unroll,
        most_lanes=lanes,
        max_slices=MOST_SLICES,
    )
    # Edges of a row at a time.
    if short:
        together = 1
    elif half:
        together = 4 if once_an_edge else 2
    else:
        together = 4 if mean >= (BUSY_ROWS if once_an_edge else LONG_ROWS) else 2
    row_slots = narrow.edge_slots // min(together, narrow.edge_slots)
    # As many warps as the registers of the rows in flight allow.
    blocks = {2: 10, 4: 8, 8: 7}[unroll * vectors] if half else 8
    # One long row is work enough for a slot: taking several made the last blocks end late.
    lasting = mean >= (BUSY_ROWS if lanes == WARP and not half else LASTING_ROWS)
    return replace(
        narrow,
        row_slots=row_slots,
        edge_slots=narrow.edge_slots // row_slots,
        min_blocks=blocks,
        rows_per_slot=1 if lasting else 0,
        # Pieces as short as those of attention would cut most of the rows.
        chunk=FEW_ROWS_CHUNK if _has_few_long_rows(adjacency) and mean < 2 * FEW_ROWS_CHUNK else 0,
    )


def spmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the sum of (N, H, D) rows; arguments as for the softmax."""
    return _sum_layout(adjacency, num_heads, head_dim, itemsize)


def scaled_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the sum with a factor for each source; arguments as for the softmax."""
    return _sum_layout(adjacency, num_heads, head_dim, itemsize, factors=True)


def weighted_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the sum with weights of edges; arguments as for the softmax."""
    return _sum_layout(adjacency, num_heads, head_dim, itemsize, weights=True)


def elementwise_layout(
    adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of the sum with a weight for each element; arguments as for the softmax."""
    return fit_layout(num_heads, head_dim, itemsize, ELEMENTWISE, max_slices=MOST_SLICES)


def edge_map_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the rows of edges; arguments as for the softmax."""
    row_slots = 2 if has_short_even_rows(adjacency) else 1
    return fit_layout(
        num_heads, head_dim, itemsize, EDGE_MAP, row_slots=row_slots, max_slices=MOST_SLICES
    )


def sddmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the dot product of an edge's ends; arguments as for the softmax."""
    row_slots = 2 if has_short_even_rows(adjacency) else 1
    return fit_layout(
        num_heads, head_dim, itemsize, SDDMM, vectors=4, row_slots=row_slots, loops=True
    )


def edge_softmax_layout(
    adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of the softmax over a row's scores: about as many lanes a row as it has edges.

    Parameters
    ----------
    adjacency : DegreeFacts
        The adjacency that the kernel walks.
    num_heads, head_dim, itemsize : int
        H, D and bytes an element.

    Returns
    -------
    Layout
        Compile-time shape.
    """
    heads = make_layout(num_heads, head_dim, itemsize, vectors=1, row_slots=1, unroll=1).heads
    edge_lanes = min(ceil_power(max(int(mean_degree(adjacency)), 1)), WARP // heads)
    row_slots = WARP // heads // edge_lanes
    return make_layout(num_heads, head_dim, itemsize, vectors=1, row_slots=row_slots, unroll=2)
