"""Which layout an attention kernel runs with; the rules come from sweeps as in ``choose``."""

from __future__ import annotations

from dataclasses import replace

from dgl_flash.kernels.layout import Layout
from dgl_flash.ops.choose import (
    HEAVY_ROWS,
    LONG_ROWS,
    DegreeFacts,
    Pass,
    fit_layout,
    has_short_even_rows,
    mean_degree,
)

GATV2 = {
    "forward": Pass(kept=3, gathered=1, in_flight=4, warps=2, blocks=16),
    "backward_dst": Pass(kept=6, gathered=1, in_flight=4, warps=2, blocks=10, ahead=True),
    "backward_src": Pass(kept=5, gathered=2, in_flight=2, warps=2, blocks=14),
}
GATV2_HALF = {
    "forward": replace(GATV2["forward"], blocks=14, half_bytes=8, ahead=True),
    "backward_dst": replace(GATV2["backward_dst"], in_flight=2, blocks=14, half_bytes=8),
    "backward_src": replace(GATV2["backward_src"], half_bytes=8),
}
# With 8 elements a lane.
GATV2_WIDE = {
    "forward": Pass(kept=3, gathered=1, in_flight=2, warps=2, blocks=14),
    "backward_dst": Pass(kept=6, gathered=1, in_flight=2, warps=2, blocks=8, ahead=True),
    "backward_src": Pass(kept=5, gathered=2, in_flight=2, warps=2, blocks=8),
}
GATV2_HEAVY_HALF = {
    **GATV2_WIDE,
    "forward": Pass(kept=3, gathered=1, in_flight=8, warps=2, blocks=8, ahead=True),
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
# Two rows an edge, and two or four of the row's own. Sixteen lanes on a head of 128 numbers of 32
# bits were as fast or slower than 32, but for the pass by destination of rows that are not long.
DOT = {
    "forward": Pass(kept=2, gathered=2, in_flight=4, warps=2, blocks=16, overhead=24),
    "backward_dst": Pass(kept=4, gathered=2, in_flight=4, warps=2, blocks=12),
    "backward_src": Pass(kept=4, gathered=2, in_flight=2, warps=2, blocks=8),
}
DOT_WIDE_DST = replace(DOT["backward_dst"], blocks=8)  # with 8 elements a lane
DOT_HALF = {  # which arrive in half as many registers
    "forward": Pass(kept=2, gathered=1, in_flight=4, warps=2, blocks=12),
    "backward_dst": Pass(kept=4, gathered=1, in_flight=4, warps=2, blocks=9),
    "backward_src": Pass(kept=4, gathered=1, in_flight=2, warps=2, blocks=9),
}


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
    if even or mean >= HEAVY_ROWS:
        vectors = 2 if itemsize == 4 else 1
        heavy_half = itemsize == 2 and not even
        work = (GATV2_HEAVY_HALF if heavy_half else GATV2_WIDE)[direction]
        return fit_layout(
            num_heads, head_dim, itemsize, work, vectors=vectors, row_slots=2 if even else 1
        )
    work = (GATV2_HALF if itemsize == 2 else GATV2)[direction]
    if itemsize > 2 and direction == "forward" and mean >= LONG_ROWS:
        work = replace(work, warps=4, blocks=8)
    return fit_layout(num_heads, head_dim, itemsize, work)


def gat_layout(
    direction: str, adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of a GAT kernel; arguments as in :func:`gatv2_layout`."""
    even = has_short_even_rows(adjacency)
    work = (GAT_LONG if even or mean_degree(adjacency) >= LONG_ROWS else GAT)[direction]
    vectors = 2 if itemsize == 4 else 1
    rows = 2 if even else 1
    return fit_layout(num_heads, head_dim, itemsize, work, vectors=vectors, row_slots=rows)


def dot_attention_layout(
    direction: str, adjacency: DegreeFacts, num_heads: int, head_dim: int, itemsize: int
) -> Layout:
    """Layout of a dot-product kernel; arguments as in :func:`gatv2_layout`.

    A lane has one vector, so that wide rows are shared out over blocks along y by their heads,
    which leaves registers for rows in flight.
    """
    work, vectors = (DOT_HALF if itemsize == 2 else DOT)[direction], 1
    if direction == "backward_dst" and itemsize == 4 and mean_degree(adjacency) < LONG_ROWS:
        work, vectors = DOT_WIDE_DST, 2
    rows = 2 if has_short_even_rows(adjacency) else 1
    return fit_layout(num_heads, head_dim, itemsize, work, vectors=vectors, row_slots=rows)
