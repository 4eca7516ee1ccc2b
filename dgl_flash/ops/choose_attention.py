"""Which layout an attention kernel runs with; the rules come from sweeps as in ``choose``."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from dgl_flash.kernels.layout import VECTOR_BYTES, Layout
from dgl_flash.ops.choose import (
    FEW_ROWS,
    LONG_ROWS,
    DegreeFacts,
    Pass,
    fit_layout,
    has_short_even_rows,
    mean_degree,
)

MOST_ROWS = 8  # that share a warp where 16-bit rows are short and even: one a quad
QUAD_BYTES = 4 * VECTOR_BYTES  # that four lanes load at once
SOME_ROWS = 10  # mean degree from which 16-bit rows want 16-byte loads, and two edges side by side
DENSE_ROWS = 30  # ... from which what is done for an edge shows more than what is done for a row
# ... from which 16-bit rows of GAT want quads.
HALF_ROWS = {"forward": SOME_ROWS, "backward_dst": 0, "backward_src": LONG_ROWS}

# 32 bits. Rows that are not long: one vector a lane, so that many warps are in flight.
GATV2 = {
    "forward": Pass(kept=3, gathered=1, in_flight=4, warps=2, blocks=16),
    "backward_dst": Pass(kept=6, gathered=1, in_flight=4, warps=2, blocks=10, ahead=True),
    "backward_src": Pass(kept=5, gathered=2, in_flight=2, warps=2, blocks=14),
}
GATV2_DENSE = {  # two vectors a lane
    "forward": Pass(kept=3, gathered=1, in_flight=8, warps=2, blocks=10),
    "backward_dst": Pass(kept=6, gathered=1, in_flight=8, warps=2, blocks=8),
    "backward_src": Pass(kept=5, gathered=2, in_flight=2, warps=2, blocks=8),
}
GATV2_EVEN = {  # and two rows a warp
    "forward": Pass(kept=3, gathered=1, in_flight=2, warps=2, blocks=14),
    "backward_dst": Pass(kept=6, gathered=1, in_flight=2, warps=2, blocks=8, ahead=True),
    "backward_src": GATV2_DENSE["backward_src"],
}
# 16 bits, of which a lane keeps rows as they come where tensor cores multiply them.
IN_QUADS = partial(Pass, warps=2, overhead=36)
GATV2_SHORT_HALF = {
    "forward": IN_QUADS(kept=2, gathered=0.5, in_flight=4, blocks=14, half_bytes=8, ahead=True),
    "backward_dst": IN_QUADS(kept=4.5, gathered=0.5, in_flight=2, blocks=14, half_bytes=8),
    "backward_src": IN_QUADS(kept=4, gathered=1, in_flight=2, blocks=14, half_bytes=8),
}
GATV2_HALF = {
    "forward": IN_QUADS(kept=2, gathered=0.5, in_flight=4, blocks=14, ahead=True),
    "backward_dst": IN_QUADS(kept=4.5, gathered=0.5, in_flight=4, blocks=10, ahead=True),
    "backward_src": IN_QUADS(kept=4, gathered=1, in_flight=8, blocks=8),
}
GATV2_DENSE_HALF = {  # two vectors a lane, but by source
    "forward": IN_QUADS(kept=2, gathered=0.5, in_flight=16, blocks=8),
    "backward_dst": IN_QUADS(kept=4.5, gathered=0.5, in_flight=8, blocks=6, ahead=True),
    "backward_src": GATV2_HALF["backward_src"],
}
GATV2_EVEN_HALF = {  # two vectors a lane, one by source, and as many rows a warp as lanes allow
    "forward": IN_QUADS(kept=2, gathered=0.5, in_flight=4, blocks=8),
    "backward_dst": IN_QUADS(kept=4.5, gathered=0.5, in_flight=4, blocks=6),
    "backward_src": IN_QUADS(kept=4, gathered=1, in_flight=4, blocks=8),
}
# Scores are numbers of the ends, so that little is kept but the rows themselves, and what is done
# once an edge shows: two vectors a lane.
GAT = {
    "forward": Pass(kept=1, gathered=1, in_flight=4, warps=2, blocks=16),
    "backward_dst": Pass(kept=1, gathered=1, in_flight=4, warps=2, blocks=14),
    "backward_src": Pass(kept=2, gathered=1, in_flight=4, warps=2, blocks=16),
}
GAT_LONG = {  # rows, or two even ones a warp
    "forward": Pass(kept=1, gathered=1, in_flight=8, warps=2, blocks=10, overhead=32),
    "backward_dst": Pass(kept=1, gathered=1, in_flight=8, warps=2, blocks=10, overhead=32),
    "backward_src": Pass(kept=2, gathered=1, in_flight=2, warps=2, blocks=12),
}
GAT_HALF = {
    "forward": IN_QUADS(kept=1, gathered=0.5, in_flight=8, blocks=13),
    "backward_dst": IN_QUADS(kept=0.5, gathered=0.5, in_flight=8, blocks=16),
    "backward_src": IN_QUADS(kept=1.5, gathered=0.5, in_flight=8, blocks=12),
}
GAT_EVEN_HALF = {  # and as many rows a warp as lanes allow
    "forward": IN_QUADS(kept=1, gathered=0.5, in_flight=4, blocks=11),
    "backward_dst": IN_QUADS(kept=0.5, gathered=0.5, in_flight=4, blocks=12),
    "backward_src": IN_QUADS(kept=1.5, gathered=0.5, in_flight=4, blocks=10),
}
# Two rows an edge, and two or four of the row's own. Sixteen lanes on a head of 128 numbers of 32
# bits were as fast or slower than 32, but for the pass by destination of rows that are not long. By
# source, eight lanes were up to a third faster on features that L2 does not hold.
DOT = {
    "forward": Pass(kept=2, gathered=2, in_flight=4, warps=2, blocks=16, overhead=24),
    "backward_dst": Pass(kept=4, gathered=2, in_flight=4, warps=2, blocks=12),
    "backward_src": Pass(kept=4, gathered=2, in_flight=2, warps=2, blocks=8),
}
DOT_WIDE_DST = replace(DOT["backward_dst"], blocks=8)  # with 8 elements a lane
DOT_WIDE_SRC = replace(DOT["backward_src"], blocks=6)  # with 16
DOT_HALF = {
    "forward": Pass(kept=1.5, gathered=1, in_flight=4, warps=2, blocks=12),
    "backward_dst": Pass(kept=3, gathered=1, in_flight=4, warps=2, blocks=6),
    "backward_src": Pass(kept=3, gathered=1, in_flight=4, warps=2, blocks=6),
}
DOT_WIDE_HALF = {**DOT_HALF, "forward": replace(DOT_HALF["forward"], blocks=8)}


def _vectors_for_quads(head_dim: int) -> int:
    """Vectors of 16 bytes a lane: two, but for heads that fewer than four lanes would share.

    Tensor cores take the rows of four lanes (``cuda/common/dots.cuh``).
    """
    return max(min(2, head_dim * 2 // QUAD_BYTES), 1)


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
    even = has_short_even_rows(adjacency)
    mean = mean_degree(adjacency)
    if itemsize == 2:
        return _gatv2_half_layout(direction, even, mean, num_heads, head_dim)
    if even or mean >= DENSE_ROWS:
        work = (GATV2_EVEN if even else GATV2_DENSE)[direction]
        vectors = 2 if itemsize == 4 else 1
        rows = 2 if even else 1
        return fit_layout(num_heads, head_dim, itemsize, work, vectors=vectors, row_slots=rows)
    work = GATV2[direction]
    if direction == "forward" and mean >= LONG_ROWS:
        work = replace(work, warps=4, blocks=8)
    return fit_layout(num_heads, head_dim, itemsize, work)


def _gatv2_half_layout(
    direction: str, even: bool, mean: float, num_heads: int, head_dim: int
) -> Layout:
    rows = MOST_ROWS if even else 1
    narrow = head_dim * 2 < QUAD_BYTES
    vectors = 1
    if not even and mean < DENSE_ROWS:
        work = GATV2_SHORT_HALF if narrow or mean < SOME_ROWS else GATV2_HALF
    elif narrow:
        work = GATV2_EVEN if even else GATV2_DENSE
    else:
        work = GATV2_EVEN_HALF if even else GATV2_DENSE_HALF
        vectors = 1 if direction == "backward_src" else _vectors_for_quads(head_dim)
    return fit_layout(num_heads, head_dim, 2, work[direction], vectors=vectors, row_slots=rows)


def gat_layout(
    direction: str, adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of a GAT kernel; arguments as in :func:`gatv2_layout`."""
    even = has_short_even_rows(adjacency)
    mean = mean_degree(adjacency)
    in_quads = itemsize == 2 and (even or mean >= HALF_ROWS[direction])
    if in_quads:
        work, vectors = (GAT_EVEN_HALF if even else GAT_HALF), _vectors_for_quads(head_dim)
        rows = MOST_ROWS if even else 1
    else:
        work, vectors = (GAT_LONG if even or mean >= LONG_ROWS else GAT), 2 if itemsize == 4 else 1
        rows = 2 if even else 1
    return fit_layout(
        num_heads, head_dim, itemsize, work[direction], vectors=vectors, row_slots=rows
    )


def dot_attention_layout(
    direction: str, adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of a dot-product kernel; arguments as in :func:`gatv2_layout`.

    A lane has one vector, or few, so that wide rows are shared out over blocks along y by their
    heads, which leaves registers for rows in flight.
    """
    even = has_short_even_rows(adjacency)
    mean = mean_degree(adjacency)
    if itemsize == 2:
        rows = MOST_ROWS if even else 1
        wide = direction != "forward" or even or mean >= DENSE_ROWS
        work = (DOT_WIDE_HALF if wide else DOT_HALF)[direction]
        vectors = _vectors_for_quads(head_dim) if wide else 1
        return fit_layout(num_heads, head_dim, 2, work, vectors=vectors, row_slots=rows)
    work, vectors = DOT[direction], 1
    rows = 2 if even else 1
    if itemsize == 4:
        if direction == "backward_dst" and mean < LONG_ROWS:
            work, vectors = DOT_WIDE_DST, 2
        if direction == "backward_src" and not even and adjacency.num_rows >= FEW_ROWS:
            work, vectors = DOT_WIDE_SRC, 4
    return fit_layout(num_heads, head_dim, itemsize, work, vectors=vectors, row_slots=rows)
