"""Which layout a kernel runs with: pure functions of widths, dtype and degree facts.

The figures behind each rule are in ``benchmarks/results``.
"""

from __future__ import annotations

from typing import Protocol

from dgl_flash.kernels.layout import Layout, ceil_power, make_layout

SHORT_ROWS = 6  # mean degree below which a warp walks several rows at a time


class DegreeFacts(Protocol):
    """What the choice needs of an adjacency."""

    num_rows: int
    num_edges: int


def mean_degree(adjacency: DegreeFacts) -> float:
    """Edges a row."""
    return adjacency.num_edges / max(adjacency.num_rows, 1)


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
    short = mean_degree(adjacency) < SHORT_ROWS
    return make_layout(
        num_heads, head_dim, itemsize, vectors=2, row_slots=2 if short else 1, unroll=2
    )


def spmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the weighted sum over (N, H, D) rows; arguments as in :func:`gatv2_layout`."""
    short = mean_degree(adjacency) < SHORT_ROWS
    return make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=1,
        row_slots=2 if short else 1,
        unroll=8,
        max_slices=2**16,
    )


def sddmm_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the dot product of an edge's ends; arguments as in :func:`gatv2_layout`."""
    short = mean_degree(adjacency) < SHORT_ROWS
    return make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=4,
        row_slots=2 if short else 1,
        unroll=4,
        loops=True,
    )


def edge_softmax_layout(adjacency: DegreeFacts, num_heads: int, itemsize: int) -> Layout:
    """Layout of the softmax over a row's scores: as many lanes a row as it has edges."""
    row_lanes = min(ceil_power(int(mean_degree(adjacency)) or 1), 32)
    heads = make_layout(num_heads, 1, itemsize, vectors=1, row_slots=1, unroll=1).heads
    row_slots = max(32 // max(row_lanes, 1) // heads, 1)
    return make_layout(num_heads, 1, itemsize, vectors=1, row_slots=row_slots, unroll=2)
