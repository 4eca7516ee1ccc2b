"""Kernels that walk the rows of an adjacency: work plan, grid and arguments, settled once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.kernels import tuned
from dgl_flash.kernels.jit import KernelKey
from dgl_flash.kernels.launch import Argument, Kernel, Typed, get_kernel
from dgl_flash.kernels.layout import Layout

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, RowPlan

MERGE_COLUMNS = 32
MERGE_THREADS = 256
SHARE_COLUMNS = 8
SHARE_THREADS = 1024
SHORTEST_CHUNK, LARGEST_CHUNK = 64, 2**14  # winners.cuh counts two of them in 16 bits
MOST_PIECES = 4096  # of one row
MOST_ROWS_PER_SLOT = 4
# Where each block writes a share of a sum, fewer blocks take less memory; where rows are loaded
# ahead, a block takes longer to get going.
MOST_ROWS_PER_LASTING_SLOT = 8
BLOCKS_PER_PROCESSOR = 16  # blocks wanted before a slot takes more than one row
# Flags that change what is read an edge: layouts are tuned for each of their values.
TUNED_FLAGS = ("EDGE_ROWS", "SRC_SCALE", "WEIGHT")


@functools.cache
def processors(device_index: int) -> int:
    """Multiprocessors of a card."""
    return torch.cuda.get_device_properties(device_index).multi_processor_count


def choose_chunk(num_edges: int, num_processors: int, max_degree: int = 0) -> int:
    """Edges in a piece of a long row; a row is long when it has more than two pieces' worth.

    The shorter the whole, the more an unlucky long row at its end shows; the longer, the more the
    memory and the merging of pieces do. On a few edges a second launch costs more than either. One
    row of millions of edges is cut into no more pieces than its merge puts together in no time.
    """
    load = num_edges // num_processors  # edges a multiprocessor
    if load < 1_000:
        chunk = 128
    elif load < 32_768:
        chunk = 64
    else:
        chunk = 128 if load < 262_144 else 512
    while chunk < LARGEST_CHUNK and max_degree > MOST_PIECES * chunk:
        chunk *= 2
    return chunk


def choose_rows_per_slot(
    num_rows: int, slots_per_block: int, num_processors: int, most: int = MOST_ROWS_PER_SLOT
) -> int:
    """Consecutive rows a slot takes: one while the card is not full, then up to ``most``."""
    wanted = num_rows // (slots_per_block * num_processors * BLOCKS_PER_PROCESSOR)
    return min(max(wanted, 1), most)


def tuned_key(
    entry: str,
    adjacency: Adjacency,
    dtype: torch.dtype,
    num_heads: int,
    head_dim: int,
    flags: Mapping[str, int],
) -> tuned.Key:
    """Name calls of a kernel that share what was measured, see ``dgl_flash.tune``."""
    named = [f"{flag}={int(flags[flag])}" for flag in TUNED_FLAGS if flags.get(flag)]
    return tuned.Key(
        machine=tuned.machine(adjacency.device.index),
        op=" ".join([entry, *named]),
        num_heads=num_heads,
        head_dim=head_dim,
        dtype=dtype,
        index_dtype=adjacency.index_dtype,
        profile=tuned.Profile.of(adjacency.num_rows, adjacency.num_edges, adjacency.max_degree),
    )


@dataclass(frozen=True, slots=True)
class RowLaunch:
    """One kernel bound to one adjacency: all that does not change from call to call.

    It is kept with the adjacency, hence holds the plan's tensors but never the adjacency itself.

    Attributes
    ----------
    kernel : Kernel
        Compiled for these widths.
    num_heads, head_dim : int
        H and D of the (N, H, D) operands.
    grid : tuple of int
        Blocks along x and y.
    threads : int
        Threads a block.
    plan : RowPlan or None
        Pieces of long rows, if there are any.
    fixed : tuple
        Typed arguments from ``indptr`` to ``rows_per_slot``.
    """

    kernel: Kernel
    num_heads: int
    head_dim: int
    grid: tuple[int, int]
    threads: int
    plan: RowPlan | None
    fixed: Typed

    @property
    def num_chunks(self) -> int:
        """Pieces of long rows."""
        return 0 if self.plan is None else self.plan.num_chunks

    @property
    def num_long(self) -> int:
        """Rows that are cut into pieces."""
        return 0 if self.plan is None else self.plan.num_long

    def __call__(self, inputs: tuple[Argument, ...], outputs: tuple[Argument, ...]) -> None:
        """Launch.

        Parameters
        ----------
        inputs, outputs : tuple
            Arguments before and after those of the adjacency.
        """
        kernel = self.kernel
        before = kernel.convert(inputs)
        after = kernel.convert(outputs, len(inputs) + len(self.fixed))
        kernel.launch(self.grid, self.threads, before + self.fixed + after)

    def merge(
        self,
        entry: str,
        dtype: torch.dtype,
        *,
        inputs: tuple[Argument, ...],
        outputs: tuple[Argument, ...],
        head_dim: int | None = None,
        source: str = "merge.cu",
    ) -> None:
        """Put the pieces of long rows together; nothing to do when no row is cut.

        Parameters
        ----------
        entry : str
            Kernel of ``source``.
        dtype : torch.dtype
            Storage type of its features.
        inputs, outputs : tuple
            Arguments before and after the list of long rows.
        head_dim : int, optional
            Width of a head of what is merged, by default D.
        source : str
            File in ``cuda/``, by default ``merge.cu``.
        """
        if self.plan is None:
            return
        head_dim = head_dim or self.head_dim
        kernel = self._merge_kernel(entry, dtype, head_dim, source)
        columns = -(-self.num_heads * head_dim // MERGE_COLUMNS)
        rows = (self.plan.long_rows, self.plan.chunk_ptr)
        kernel((self.plan.num_long, columns), MERGE_THREADS, *inputs, *rows, *outputs)

    def merge_shares(
        self, dtype: torch.dtype, part: Argument, num_shares: int, out: Argument
    ) -> None:
        """Add up what the blocks of a kernel wrote with ``store_block_sum``.

        Parameters
        ----------
        dtype : torch.dtype
            Of ``out``.
        part : Tensor or int
            (num_shares, H, D)
        num_shares : int
            Blocks.
        out : Tensor or int
            (H, D), may be one of the shares.
        """
        kernel = self._merge_kernel("merge_shares", dtype, self.head_dim, "merge.cu")
        blocks = -(-self.num_heads * self.head_dim // SHARE_COLUMNS)
        kernel((blocks, 1), SHARE_THREADS, part, num_shares, out)

    def _merge_kernel(self, entry: str, dtype: torch.dtype, head_dim: int, source: str) -> Kernel:
        index_dtype, device_index = self.kernel.key.index_dtype, self.kernel.device_index
        sizes = self.num_heads, head_dim
        return _merge_kernel(source, entry, dtype, index_dtype, *sizes, device_index)


@functools.lru_cache(maxsize=4096)
def _merge_kernel(
    source: str,
    entry: str,
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    num_heads: int,
    head_dim: int,
    device_index: int,
) -> Kernel:
    constants = (("H", num_heads), ("D", head_dim))
    return get_kernel(KernelKey(source, entry, dtype, index_dtype, constants), device_index)


@dataclass(frozen=True)
class RowKernel:
    """An entry point that walks the rows of an adjacency.

    Attributes
    ----------
    file, entry : str
        Source file and function.
    choose_layout : callable
        From (adjacency, H, D, bytes an element) to a layout.
    shares : bool
        Whether each block writes a share of a sum, so that fewer blocks take less memory.
    pieces_only : bool
        Whether it visits the pieces of long rows only.
    """

    file: str
    entry: str
    choose_layout: Callable[[Adjacency, int, int, int], Layout]
    shares: bool = False
    pieces_only: bool = False

    def on(
        self,
        adjacency: Adjacency,
        dtype: torch.dtype,
        num_heads: int,
        head_dim: int,
        layout: Layout | None = None,
        **flags: int,
    ) -> RowLaunch:
        """Bind to an adjacency; the same arguments give the same object, kept with the adjacency.

        Parameters
        ----------
        adjacency : Adjacency
            Rows to walk, on a CUDA device.
        dtype : torch.dtype
            Storage type of the features.
        num_heads, head_dim : int
            H and D of the (N, H, D) operands.
        layout : Layout, optional
            Another lane layout than the chosen one.
        **flags : int
            Further names of the prelude.

        Returns
        -------
        RowLaunch
            Ready to be called with the operands.
        """
        key = (self.entry, dtype, num_heads, head_dim, layout, *flags.values())
        found = adjacency.launches.get(key)
        if found is None:
            layout = layout or self._layout(adjacency, dtype, num_heads, head_dim, flags)
            found = self._bind(adjacency, dtype, num_heads, head_dim, layout, flags)
            adjacency.launches[key] = found
        return found

    def _layout(
        self,
        adjacency: Adjacency,
        dtype: torch.dtype,
        num_heads: int,
        head_dim: int,
        flags: dict[str, int],
    ) -> Layout:
        """The layout that was measured to be the fastest, else that of the rule."""
        if not tuned.is_empty():  # else the longest row is not asked for: it may be on the device
            found = tuned.find(tuned_key(self.entry, adjacency, dtype, num_heads, head_dim, flags))
            if found is not None and found.layout is not None:
                return found.layout
        return self.choose_layout(adjacency, num_heads, head_dim, dtype.itemsize)

    def _bind(
        self,
        adjacency: Adjacency,
        dtype: torch.dtype,
        num_heads: int,
        head_dim: int,
        layout: Layout,
        flags: dict[str, int],
    ) -> RowLaunch:
        device_index = adjacency.indptr.device.index
        constants = layout.constants(num_heads, head_dim) + tuple(flags.items())
        key = KernelKey(self.file, self.entry, dtype, adjacency.index_dtype, constants)
        kernel = get_kernel(key, device_index)
        count = processors(device_index)
        num_edges = adjacency.num_edges
        # A few edges are in no row of millions: the longest row need not be known.
        longest = adjacency.max_degree if num_edges > MOST_PIECES * SHORTEST_CHUNK else 0
        plan = adjacency.plan(layout.chunk or choose_chunk(num_edges, count, longest))
        slots = layout.slots_per_block
        lasting = self.shares or layout.ahead
        most = MOST_ROWS_PER_LASTING_SLOT if lasting else MOST_ROWS_PER_SLOT
        rows_per_slot = layout.rows_per_slot or choose_rows_per_slot(
            adjacency.num_rows, slots, count, most
        )
        num_chunks = 0 if plan is None else plan.num_chunks
        blocks = -(-num_chunks // slots)
        if not self.pieces_only:
            blocks += -(-adjacency.num_rows // (slots * rows_per_slot))
        fixed = (
            adjacency.indptr,
            adjacency.indices,
            None if plan is None else plan.chunk_rows,
            None if plan is None else plan.chunk_begins,
            adjacency.num_rows,
            num_chunks,
            1 if plan is None else plan.chunk,
            rows_per_slot,
        )
        return RowLaunch(
            kernel=kernel,
            num_heads=num_heads,
            head_dim=head_dim,
            grid=(blocks, layout.grid_y(num_heads)),
            threads=layout.threads,
            plan=plan,
            fixed=kernel.convert(fixed, list(key.parameters()).index("indptr")),
        )


def packed(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The tensor in the form that kernels read: contiguous and on a 16-byte boundary.

    A second operand has to have the dtype of the first, as which its memory is read: autocast makes
    float32 of some results, such as a quotient.
    """
    if dtype is not None and tensor.dtype != dtype:
        tensor = tensor.to(dtype)
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
