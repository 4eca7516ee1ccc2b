"""How the lanes of a warp share rows, edges, heads and elements: one pure choice per call.

The names are those of ``cuda/common/lanes.cuh``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

WARP = 32
VECTOR_BYTES = 16  # widest load of a lane
MAX_PADDING = 1.15  # share of lanes that may idle on heads that do not exist


@dataclass(frozen=True)
class Layout:
    """Compile-time shape of a row kernel, and its run-time sizes where they are not left to rules.

    Attributes
    ----------
    vector : int
        Elements a load moves (``V``).
    head_lanes : int
        Lanes on one head (``P``).
    heads : int
        Heads side by side in a warp (``HPW``).
    vectors : int
        Vectors a lane owns (``K``).
    edge_slots, row_slots : int
        Edges of a row, and rows, that a warp walks at a time (``S``, ``R``).
    unroll : int
        Edges a lane has in flight (``U``).
    slices : int
        Slices of a head taken by different blocks (``SLICES``).
    loops : int
        Slices of a head walked by the same lanes (``LOOPS``).
    warps : int
        Warps a block (``WARPS``).
    min_blocks : int
        Blocks a multiprocessor must hold, which bounds the registers (``MIN_BLOCKS``).
    ahead : bool
        Whether the rows of a group of edges are loaded while it works on the group before, in
        kernels that can (``AHEAD``).
    rows_per_slot, chunk : int
        Consecutive rows a slot takes, and edges in a piece of a long row; 0 leaves them to the
        rules of ``dgl_flash.ops.rows``. They change no machine code.
    """

    vector: int
    head_lanes: int
    heads: int
    vectors: int
    edge_slots: int
    row_slots: int
    unroll: int
    slices: int = 1
    loops: int = 1
    warps: int = 4
    min_blocks: int = 1
    ahead: bool = False
    rows_per_slot: int = 0
    chunk: int = 0

    def constants(self, num_heads: int, head_dim: int) -> tuple[tuple[str, int], ...]:
        """Names and values for the prelude of a kernel on (N, H, D) rows."""
        return (
            ("H", num_heads),
            ("D", head_dim),
            ("V", self.vector),
            ("P", self.head_lanes),
            ("HPW", self.heads),
            ("K", self.vectors),
            ("S", self.edge_slots),
            ("R", self.row_slots),
            ("U", self.unroll),
            ("SLICES", self.slices),
            ("LOOPS", self.loops),
            ("WARPS", self.warps),
            ("MIN_BLOCKS", self.min_blocks),
            ("AHEAD", int(self.ahead)),
        )

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.warps * WARP

    @property
    def slots_per_block(self) -> int:
        """Rows a block walks at a time."""
        return self.warps * self.row_slots

    @property
    def slice_width(self) -> int:
        """Elements of a head that one pass covers (``SLICE``)."""
        return self.vectors * self.head_lanes * self.vector

    def grid_y(self, num_heads: int) -> int:
        """Blocks along y: groups of heads times slices."""
        return -(-num_heads // self.heads) * self.slices

    def covers(self, head_dim: int, itemsize: int) -> bool:
        """Whether lanes add up to a warp and own all of a head, as kernels take for granted.

        Layouts of :func:`make_layout` always do; those read from a file may not.
        """
        lanes = self.head_lanes * self.heads * self.edge_slots * self.row_slots
        if lanes != WARP or min(self.vectors, self.unroll, self.warps, self.min_blocks) < 1:
            return False
        if self.vector < 1 or head_dim % self.vector or self.vector * itemsize > VECTOR_BYTES:
            return False
        owned = self.vector * self.vectors * self.head_lanes
        return owned * self.slices * self.loops >= head_dim


def ceil_power(n: int) -> int:
    """Smallest power of two that is at least ``n``."""
    return 1 << max(n - 1, 0).bit_length()


@functools.cache
def make_layout(
    num_heads: int,
    head_dim: int,
    itemsize: int,
    *,
    vectors: int,
    row_slots: int,
    unroll: int,
    vector_bytes: int = VECTOR_BYTES,
    most_lanes: int = WARP,
    max_slices: int = 1,
    loops: bool = False,
    warps: int = 4,
    min_blocks: int = 1,
    ahead: bool = False,
    most_heads: int = WARP,
) -> Layout:
    """Fit a layout to (N, H, D) rows.

    Parameters
    ----------
    num_heads, head_dim, itemsize : int
        H, D and bytes an element.
    vectors : int
        Vectors a lane should own: more of them mean fewer lanes a head, hence fewer shuffles a dot
        product and more registers. Exceeded only when 32 lanes would not cover a head.
    row_slots : int
        Rows a warp should walk at a time; lanes left over walk several edges of a row.
    unroll : int
        Edges a lane has in flight.
    vector_bytes : int
        Most bytes a load should move.
    most_lanes : int
        Most lanes that may share a head.
    max_slices : int
        How many blocks may share a head; above 1 a lane never owns more than ``vectors`` vectors.
    loops : bool
        Whether the kernel can walk a wide head slice by slice.
    warps, min_blocks : int
        Block shape.
    ahead : bool
        Whether to load a group of edges ahead.
    most_heads : int
        Most heads side by side in a warp; the others are taken by other blocks.

    Returns
    -------
    Layout
        Lanes add up to a warp.
    """
    vector = max(vector_bytes // itemsize, 1)
    while head_dim % vector:
        vector //= 2
    per_head = head_dim // vector
    head_lanes = min(ceil_power(-(-per_head // vectors)), most_lanes)
    needed = -(-per_head // head_lanes)
    slices = walked = 1
    if needed > vectors:
        pieces = -(-needed // vectors)
        if max_slices > 1:
            slices, needed = pieces, vectors
        elif loops:
            walked, needed = pieces, vectors
    heads = WARP // head_lanes
    while heads > most_heads:
        heads //= 2
    while heads > 1 and -(-num_heads // heads) * heads > MAX_PADDING * num_heads:
        heads //= 2
    slots = WARP // (head_lanes * heads)
    rows = min(row_slots, slots)
    return Layout(
        vector=vector,
        head_lanes=head_lanes,
        heads=heads,
        vectors=needed,
        edge_slots=slots // rows,
        row_slots=rows,
        unroll=unroll,
        slices=slices,
        loops=walked,
        warps=warps,
        min_blocks=min_blocks,
        ahead=ahead,
    )
