"""Layouts worth a try: what ``dgl_flash.tune`` and ``benchmarks/sweep.py`` measure."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence

from dgl_flash.kernels.layout import WARP, Layout, make_layout
from dgl_flash.ops.choose import MOST_SLICES

# Of sums. In a sweep on an H200 (nine graphs, rows of 64 and 256 numbers in 32 and 16 bits), what
# was fastest is one of these or less than 1% ahead of one.
SUM_LANES = (8, 16, WARP)
SUM_ROW_SLOTS = (1, 2, 4, WARP)
SUM_WARPS = 4
# Vectors a lane, edges in flight, and the blocks that their registers leave room for.
SUM_SHAPES = ((1, 2, 12), (1, 4, 8), (1, 8, 8), (2, 2, 8), (2, 4, 8))
MOST_SUM_WORDS = 40  # numbers that a lane keeps or that are on their way to it, 32 bits each
FEWEST_BYTES = 256  # of a row that lanes take at a time, unless it is half the row

# Of attention: warps a block, blocks a multiprocessor.
BLOCK_SHAPES = ((4, 1), (4, 8), (2, 1), (2, 10), (2, 12), (2, 14), (2, 16))
MOST_WORDS = 32  # numbers on their way to a lane; more would not fit the registers
# Of attention by dot products, whose heads may be shared out over blocks.
DOT_BLOCK_SHAPES = ((2, 1), (2, 8), (2, 10), (2, 12), (2, 16), (4, 4), (4, 6))

SHORT = {
    "vector": "V",
    "head_lanes": "P",
    "heads": "HPW",
    "vectors": "K",
    "edge_slots": "S",
    "row_slots": "R",
    "unroll": "U",
    "slices": "slices",
    "warps": "warps",
    "min_blocks": "blocks",
    "ahead": "ahead",
    "rows_per_slot": "rows",
    "chunk": "chunk",
}


def candidates(
    op: str,
    num_heads: int,
    head_dim: int,
    itemsize: int,
    *,
    rows_per_slot: Sequence[int] = (0,),
    chunks: Sequence[int] = (0,),
) -> list[Layout]:
    """Layouts of a kernel on (N, H, D) rows.

    Parameters
    ----------
    op : {"spmm", "gat", "gatv2", "dot_attention"}
        What it computes.
    num_heads, head_dim, itemsize : int
        H, D and bytes an element.
    rows_per_slot, chunks : sequence of int
        Run-time sizes to combine with each shape; 0 is the choice of the rule.

    Returns
    -------
    list of Layout
        Each once.
    """
    shapes_of = {"spmm": _of_sums, "dot_attention": _of_dot_attention}.get(op, _of_attention)
    shapes = shapes_of(num_heads, head_dim, itemsize)
    return [
        dataclasses.replace(shape, rows_per_slot=per_slot, chunk=chunk)
        for shape, per_slot, chunk in itertools.product(
            dict.fromkeys(shapes), rows_per_slot, chunks
        )
    ]


def _of_sums(num_heads: int, head_dim: int, itemsize: int) -> Iterator[Layout]:
    enough = min(FEWEST_BYTES, head_dim * itemsize // 2)
    for lanes, shape, row_slots in itertools.product(SUM_LANES, SUM_SHAPES, SUM_ROW_SLOTS):
        vectors, unroll, blocks = shape
        layout = make_layout(
            num_heads,
            head_dim,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            most_lanes=lanes,
            max_slices=MOST_SLICES,
            warps=SUM_WARPS,
            min_blocks=blocks,
        )
        owned = layout.vectors * layout.vector
        arriving = owned * unroll * itemsize // 4
        kept = owned * max(itemsize // 4, 1)
        narrow = lanes < WARP and owned * layout.head_lanes * itemsize < enough
        crowded = layout.row_slots >= 4 and unroll == 8
        if not narrow and not crowded and kept + arriving <= MOST_SUM_WORDS:
            yield layout


def _of_attention(num_heads: int, head_dim: int, itemsize: int) -> Iterator[Layout]:
    loads = (16,) if itemsize > 2 else (8, 16)
    choices = (1, 2), (1, 2, 4), (2, 4, 8), BLOCK_SHAPES, loads, (False, True)
    for choice in itertools.product(*choices):
        vectors, row_slots, unroll, (warps, blocks), vector_bytes, ahead = choice
        layout = make_layout(
            num_heads,
            head_dim,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            vector_bytes=vector_bytes,
            warps=warps,
            min_blocks=blocks,
            ahead=ahead,
        )
        if layout.vectors * layout.vector * unroll <= MOST_WORDS:
            yield layout


def _of_dot_attention(num_heads: int, head_dim: int, itemsize: int) -> Iterator[Layout]:
    choices = (1, 2, 4), (1, 2), (1, 2, 4), (1, 2, 4, 8), DOT_BLOCK_SHAPES, (False, True)
    for choice in itertools.product(*choices):
        vectors, row_slots, heads, unroll, (warps, blocks), ahead = choice
        layout = make_layout(
            num_heads,
            head_dim,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            warps=warps,
            min_blocks=blocks,
            ahead=ahead,
            most_heads=heads,
        )
        arriving = 2 * layout.vectors * layout.vector * unroll * (1 + ahead)
        if layout.edge_slots <= 4 and arriving <= 2 * MOST_WORDS:
            yield layout


def label(layout: Layout) -> str:
    """The numbers of a layout that differ between candidates, in one line."""
    figures = {
        SHORT[name]: int(size) for name, size in dataclasses.asdict(layout).items() if name in SHORT
    }
    shown = {
        name: size
        for name, size in figures.items()
        if size or name not in ("ahead", "rows", "chunk")
    }
    return " ".join(
        f"{name}{size}" if len(name) == 1 else f"{name}={size}" for name, size in shown.items()
    )
