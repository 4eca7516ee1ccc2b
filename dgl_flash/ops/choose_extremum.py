"""Which layout the kernels of maxima, minima and statistics run with; see ``choose``."""

from __future__ import annotations

from dataclasses import replace

from dgl_flash.kernels.layout import VECTOR_BYTES, WARP, Layout, make_layout
from dgl_flash.ops.choose import (
    FEW_ROWS,
    FEW_ROWS_CHUNK,
    HEAVY_ROWS,
    LONG_ROWS,
    MOST_SLICES,
    SDDMM,
    DegreeFacts,
    elementwise_layout,
    fit_layout,
    has_short_even_rows,
    mean_degree,
)

MANY_EDGES = 10  # mean degree from which more edges in flight pay where a warp owns a row
COLLECT_CHUNK = 128  # edges of a source in a piece, where sources are few
LISTED_ROWS = 10  # mean degree from which lists of what was won beat comparing bytes
LIST_BYTES = 2048  # most of a row that is listed together: shared memory holds that twice a warp,
LIST_WIDTH = 512  # and most elements, for the registers
LIST_CHUNK = 512  # edges in a piece of a long row that is listed


def _has_few_rows(adjacency: DegreeFacts) -> bool:
    return adjacency.num_rows < FEW_ROWS


def extremum_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the maximum of (N, H, D) rows; arguments as for the softmax.

    A lane keeps value and place of each of its elements, hence one vector where that fills a warp;
    two where a row is so long, or so short, that what is done once an edge or row shows. Several
    edges of a row at a time rather than several rows, unless these are short.
    """
    mean = mean_degree(adjacency)
    short = has_short_even_rows(adjacency)
    few = _has_few_rows(adjacency) and mean >= LONG_ROWS
    one = make_layout(
        num_heads, head_dim, itemsize, vectors=1, row_slots=1, unroll=1, max_slices=MOST_SLICES
    )
    half = WARP // 2
    lanes = one.head_lanes * one.slices
    two = (mean >= HEAVY_ROWS and lanes >= half) or (short and lanes >= WARP)
    narrow = make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=2 if two else 1,
        row_slots=1,
        unroll=4,
        most_lanes=half if few or (two and not short) else WARP,
        min_blocks=6 if two else 8,
        max_slices=MOST_SLICES,
    )
    together = 1 if short else 4 if mean >= LONG_ROWS and narrow.edge_slots > 4 else 2
    row_slots = narrow.edge_slots // min(together, narrow.edge_slots)
    # A slice of a long row comes soon enough with four.
    deep = narrow.edge_slots == 1 and not two and mean >= MANY_EDGES
    deep = deep and (itemsize == 2 or narrow.slices == 1 or mean < LONG_ROWS)
    return replace(
        narrow,
        row_slots=row_slots,
        edge_slots=narrow.edge_slots // row_slots,
        unroll=8 if deep else 4,
        min_blocks=7 if deep else narrow.min_blocks,  # what 8 leave of registers is too few
        rows_per_slot=1 if few else 0,
        chunk=FEW_ROWS_CHUNK if few and mean < 2 * FEW_ROWS_CHUNK else 0,
    )


def message_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the maximum with numbers of edges; arguments as for the softmax."""
    return replace(elementwise_layout(adjacency, num_heads, head_dim, itemsize), min_blocks=1)


def backward_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the gradient by source; arguments as for the softmax."""
    short = has_short_even_rows(adjacency)
    half = itemsize == 2
    wide = head_dim * itemsize > WARP * VECTOR_BYTES
    return make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=2 if not half or (short and wide) else 1,
        row_slots=WARP if short else 1,
        unroll=2,
        min_blocks=6 if half else 7,
        max_slices=MOST_SLICES,
    )


def wants_lists(adjacency: DegreeFacts) -> bool:
    """Whether rows are so long that a source wins little of each, and lists of it are short.

    Parameters
    ----------
    adjacency : DegreeFacts
        Whose rows have winners.

    Returns
    -------
    bool
        A list costs two numbers an element of the result, comparing bytes costs one byte an element
        and edge.
    """
    return mean_degree(adjacency) >= LISTED_ROWS


def _whole_warp(head_dim: int, itemsize: int, most: int) -> Layout:
    """A warp on a slice of a row, of at most ``most`` elements."""
    vector = max(VECTOR_BYTES // itemsize, 1)
    while head_dim % vector or (vector > 1 and head_dim < vector * WARP):
        vector //= 2
    per_lane = -(-head_dim // (WARP * vector))
    vectors = min(per_lane, max(most // (WARP * vector), 1))
    return Layout(
        vector=vector,
        head_lanes=WARP,
        heads=1,
        vectors=vectors,
        edge_slots=1,
        row_slots=1,
        unroll=4,
        slices=-(-per_lane // vectors),
    )


def _list_width(itemsize: int) -> int:
    return min(LIST_BYTES // itemsize, LIST_WIDTH)


def lists_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the lists of what edges have won; arguments as for the softmax."""
    return replace(
        _whole_warp(head_dim, itemsize, _list_width(itemsize)),
        chunk=LIST_CHUNK,
        min_blocks=4,
    )


def collect_layout(
    rows: DegreeFacts, adjacency: DegreeFacts, head_dim: int, itemsize: int
) -> Layout:
    """Layout of the sum over lists.

    Parameters
    ----------
    rows : DegreeFacts
        The adjacency whose rows have winners: the longer they are, the shorter is a list.
    adjacency : DegreeFacts
        The adjacency that is walked.
    head_dim, itemsize : int
        F and bytes an element.

    Returns
    -------
    Layout
        As many lanes a list as cover about twice its mean length.
    """
    whole = _whole_warp(head_dim, itemsize, _list_width(itemsize))
    mean_length = min(whole.slice_width, head_dim) / max(mean_degree(rows), 1)
    side_by_side = next((n for n in (4, 2) if mean_length <= WARP / n / 2), 1)
    return replace(
        whole,
        head_lanes=WARP // side_by_side,
        vectors=whole.vectors * side_by_side,
        edge_slots=side_by_side,
        unroll=2 if side_by_side == 4 else 4,
        min_blocks=10,
        chunk=COLLECT_CHUNK if _has_few_rows(adjacency) else 0,
    )


def edges_layout(adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int) -> Layout:
    """Layout of the gradient to numbers of edges; arguments as for the softmax."""
    row_slots = 2 if has_short_even_rows(adjacency) else 1
    return fit_layout(
        num_heads, head_dim, itemsize, SDDMM, vectors=4, row_slots=row_slots, loops=True
    )


def statistics_layout(
    adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of several statistics; arguments as for the softmax.

    There is more to compute than to read: what counts is how many edges share the work that is done
    once a group, and warps that wait for other units than each other.
    """
    short = has_short_even_rows(adjacency)
    half = itemsize == 2
    return make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=1,
        row_slots=2 if short and half else 1,
        unroll=2 if short else 4,
        min_blocks=4 if half and head_dim < 64 else 5,  # joining many edge slots takes registers
        max_slices=MOST_SLICES,
    )


def statistics_backward_layout(
    adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of their gradients; arguments as for the softmax."""
    few = has_short_even_rows(adjacency) or mean_degree(adjacency) < LISTED_ROWS
    return make_layout(
        num_heads,
        head_dim,
        itemsize,
        vectors=1,
        row_slots=1,
        unroll=2 if few or itemsize == 2 else 4,
        min_blocks=4,
        max_slices=MOST_SLICES,
    )
