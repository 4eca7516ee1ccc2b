"""Which layout a kernel runs with: pure functions of widths, dtype and degree facts.

The rules come from ``benchmarks/sweep.py`` on an H200. What was seen there:

- On skewed graphs a warp should walk one row at a time; two at a time pay only where all rows are
  short and alike (road networks, molecules), and cost a factor of two elsewhere.
- One vector a lane beats two or more in all but those: registers, hence warps in flight, matter
  more than the shuffles saved. Wider rows are therefore shared out over blocks along y.
- Capping the registers at 64 or 80 a thread pays, as long as what a lane keeps and has in flight
  fits below the cap; what does not fit is kept slower in local memory than by fewer warps.
"""

from __future__ import annotations

import functools
from typing import Protocol

from dgl_flash.kernels.layout import WARP, Layout, ceil_power, make_layout

SHORT_ROWS = 6  # mean degree below which several rows a warp may pay
EVEN_ROWS = 8  # ... if the longest row is at most this many times the mean
LONG_ROWS = 10  # mean degree from which the pass by destination keeps four edges in flight
MOST_UNROLLED = 8  # 32-bit accumulators a lane up to which more than two edges are in flight
REGISTERS = 65_536  # of a multiprocessor, on every card since compute capability 3.5
OVERHEAD = 26  # registers a lane for addresses, ids and scores
MOST_SLICES = 2**12
KEPT = {"forward": 3, "backward_dst": 6, "backward_src": 5}  # rows of GATv2 kept by each pass


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


def _fit(
    num_heads: int,
    head_dim: int,
    itemsize: int,
    *,
    vectors: int,
    row_slots: int,
    in_flight: int,
    kept: int,
    warps: int,
    blocks: int,
    max_slices: int = 1,
    loops: bool = False,
) -> Layout:
    """Fit a layout that keeps ``in_flight`` edges of a row on their way, at least two a lane.

    A lane keeps its share of ``kept`` rows in registers. ``blocks`` a multiprocessor are asked for
    only if that and the edges in flight leave them room.
    """

    def fit(unroll: int, min_blocks: int) -> Layout:
        return make_layout(
            num_heads,
            head_dim,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            warps=warps,
            min_blocks=min_blocks,
            max_slices=max_slices,
            loops=loops,
        )

    shape = fit(1, 1)
    elements = shape.vectors * shape.vector
    owned = elements * (2 if itemsize == 8 else 1)
    room = REGISTERS // (warps * WARP * blocks) - OVERHEAD

    def fits(unroll: int) -> bool:
        return kept * owned + unroll * elements * itemsize // 4 <= room

    unroll = max(in_flight // shape.edge_slots, 2)
    if owned > MOST_UNROLLED or not fits(unroll):
        unroll = 2
    return fit(unroll, blocks if fits(unroll) else 1)


def gatv2_layout(
    direction: str, adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of a GATv2 kernel.

    Parameters
    ----------
    direction : {"forward", "backward_dst", "backward_src"}
        Pass.
    adjacency : DegreeFacts
        The adjacency that the pass walks.
    num_heads, head_dim, itemsize : int
        H, D and bytes an element.

    Returns
    -------
    Layout
        Compile-time shape.
    """
    long_rows = mean_degree(adjacency) >= LONG_ROWS
    even = has_short_even_rows(adjacency)
    return _gatv2_layout(direction, even, long_rows, num_heads, head_dim, itemsize)


@functools.lru_cache(maxsize=4096)
def _gatv2_layout(
    direction: str, even: bool, long_rows: bool, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    if even:
        return _fit(
            num_heads,
            head_dim,
            itemsize,
            vectors=2 if itemsize == 4 else 1,
            row_slots=2,
            in_flight=2,
            kept=KEPT[direction],
            warps=2,
            blocks=12 if direction == "forward" else 1,
        )
    warps, blocks, in_flight = {
        "forward": (4, 8, 4),
        "backward_dst": (2, 12, 4 if long_rows else 2),
        "backward_src": (2, 1, 2),
    }[direction]
    return _fit(
        num_heads,
        head_dim,
        itemsize,
        vectors=1,
        row_slots=1,
        in_flight=in_flight,
        kept=KEPT[direction],
        warps=warps,
        blocks=blocks,
    )


def spmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the weighted sum over (N, H, D) rows; arguments as in :func:`gatv2_layout`."""
    in_flight = 4 if itemsize == 2 or mean_degree(adjacency) < SHORT_ROWS else 8
    return _spmm_layout(in_flight, num_heads, head_dim, itemsize)


@functools.lru_cache(maxsize=4096)
def _spmm_layout(in_flight: int, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    return _fit(
        num_heads,
        head_dim,
        itemsize,
        vectors=1,
        row_slots=1,
        in_flight=in_flight,
        kept=1,
        warps=4,
        blocks=8,
        max_slices=MOST_SLICES,
    )


def sddmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the dot product of an edge's ends; arguments as in :func:`gatv2_layout`."""
    return _fit(
        num_heads,
        head_dim,
        itemsize,
        vectors=4,
        row_slots=2 if has_short_even_rows(adjacency) else 1,
        in_flight=4,
        kept=1,
        warps=4,
        blocks=1,
        loops=True,
    )


def edge_softmax_layout(
    adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of the softmax over a row's scores: about as many lanes a row as it has edges."""
    heads = make_layout(num_heads, head_dim, itemsize, vectors=1, row_slots=1, unroll=1).heads
    edge_lanes = min(ceil_power(max(int(mean_degree(adjacency)), 1)), WARP // heads)
    row_slots = WARP // heads // edge_lanes
    return make_layout(num_heads, head_dim, itemsize, vectors=1, row_slots=row_slots, unroll=2)
