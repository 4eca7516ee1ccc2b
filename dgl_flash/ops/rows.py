"""Launch a row kernel over an adjacency: work plan, grid and the arguments all of them share."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.kernels.jit import KernelKey, accumulator
from dgl_flash.kernels.launch import Argument, Kernel, get_kernel
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import empty

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, RowPlan

MERGE_COLUMNS = 32
MERGE_THREADS = 256
FEW_EDGES = 1_000  # a multiprocessor, below which a second launch costs more than an uneven end
MANY_EDGES = 32_768  # a multiprocessor, from which longer pieces keep it as busy
MOST_ROWS_PER_SLOT = 4
BLOCKS_PER_PROCESSOR = 16  # blocks wanted before a slot takes more than one row


@functools.cache
def processors(device_index: int) -> int:
    """Multiprocessors of a card."""
    return torch.cuda.get_device_properties(device_index).multi_processor_count


def choose_chunk(num_edges: int, num_processors: int) -> int:
    """Edges in a piece of a long row; a row is long when it has more than two pieces' worth.

    The shorter the whole, the more an unlucky long row at its end shows.
    """
    load = num_edges // num_processors
    return 64 if FEW_EDGES <= load < MANY_EDGES else 128


def choose_rows_per_slot(
    num_rows: int, slots_per_block: int, num_processors: int, most: int = MOST_ROWS_PER_SLOT
) -> int:
    """Consecutive rows a slot takes: one while the card is not full, then up to ``most``."""
    wanted = num_rows // (slots_per_block * num_processors * BLOCKS_PER_PROCESSOR)
    return min(max(wanted, 1), most)


@dataclass(slots=True)
class RowLaunch:
    """One adjacency walked with one layout."""

    adjacency: Adjacency
    plan: RowPlan | None
    layout: Layout
    num_heads: int
    head_dim: int
    rows_per_slot: int

    @property
    def num_chunks(self) -> int:
        """Pieces of long rows."""
        return 0 if self.plan is None else self.plan.num_chunks

    @property
    def num_long(self) -> int:
        """Rows that are cut into pieces."""
        return 0 if self.plan is None else self.plan.num_long

    @property
    def num_blocks(self) -> int:
        """Blocks along x."""
        slots = self.layout.slots_per_block
        return -(-self.num_chunks // slots) - (
            -self.adjacency.num_rows // (slots * self.rows_per_slot)
        )

    @property
    def grid(self) -> tuple[int, int]:
        """Blocks along x and y."""
        return self.num_blocks, self.layout.grid_y(self.num_heads)

    @property
    def chunk_grid(self) -> tuple[int, int]:
        """The part of the grid that walks pieces of long rows."""
        return -(-self.num_chunks // self.layout.slots_per_block), self.grid[1]

    def arguments(self) -> tuple[Argument, ...]:
        """The arguments from ``indptr`` to ``rows_per_slot``."""
        adjacency, plan = self.adjacency, self.plan
        return (
            adjacency.indptr,
            adjacency.indices,
            None if plan is None else plan.chunk_rows,
            None if plan is None else plan.chunk_begins,
            adjacency.num_rows,
            self.num_chunks,
            1 if plan is None else plan.chunk,
            self.rows_per_slot,
        )

    def kernel(self, file: str, entry: str, dtype: torch.dtype, **flags: int) -> Kernel:
        """The kernel compiled for this launch's widths."""
        return _kernel(
            file,
            entry,
            dtype,
            self.adjacency.index_dtype,
            self.layout,
            self.num_heads,
            self.head_dim,
            tuple(flags.items()),
            self.adjacency.indptr.device.index,
        )

    def part(self, dtype: torch.dtype, *shape: int) -> Tensor | None:
        """Memory for one ``shape`` a piece of a long row; None when no row is cut."""
        if self.plan is None:
            return None
        device = self.adjacency.indptr.device
        return empty((self.num_chunks, *shape), accumulator(dtype), device)

    def merge(
        self,
        entry: str,
        dtype: torch.dtype,
        *,
        inputs: tuple[Argument, ...],
        outputs: tuple[Tensor, ...],
    ) -> None:
        """Put the pieces of long rows together; nothing to do when no row is cut.

        Parameters
        ----------
        entry : str
            Kernel of ``merge.cu``.
        dtype : torch.dtype
            Storage type of its features.
        inputs, outputs : tuple
            Arguments before and after the list of long rows.
        """
        if self.plan is None:
            return
        device_index = self.adjacency.indptr.device.index
        index_dtype = self.adjacency.index_dtype
        kernel = _merge_kernel(
            entry, dtype, index_dtype, self.num_heads, self.head_dim, device_index
        )
        columns = -(-self.num_heads * self.head_dim // MERGE_COLUMNS)
        rows = (self.plan.long_rows, self.plan.chunk_ptr)
        kernel((self.plan.num_long, columns), MERGE_THREADS, *inputs, *rows, *outputs)


def plan_rows(
    adjacency: Adjacency,
    layout: Layout,
    num_heads: int,
    head_dim: int,
    most_rows: int = MOST_ROWS_PER_SLOT,
) -> RowLaunch:
    """Prepare a walk over all rows of an adjacency.

    Parameters
    ----------
    adjacency : Adjacency
        Rows to walk, on a CUDA device.
    layout : Layout
        Lane layout.
    num_heads, head_dim : int
        H and D of the (N, H, D) operands.
    most_rows : int
        Rows a slot may take one after the other; every block of a kernel with block sums writes one
        row of them, so that more rows mean less memory.

    Returns
    -------
    RowLaunch
        Grid, arguments and merges.
    """
    count = processors(adjacency.indptr.device.index)
    return RowLaunch(
        adjacency=adjacency,
        plan=adjacency.plan(choose_chunk(adjacency.num_edges, count)),
        layout=layout,
        num_heads=num_heads,
        head_dim=head_dim,
        rows_per_slot=choose_rows_per_slot(
            adjacency.num_rows, layout.slots_per_block, count, most_rows
        ),
    )


@functools.lru_cache(maxsize=4096)
def _kernel(
    file: str,
    entry: str,
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    layout: Layout,
    num_heads: int,
    head_dim: int,
    flags: tuple[tuple[str, int], ...],
    device_index: int,
) -> Kernel:
    constants = layout.constants(num_heads, head_dim) + flags
    return get_kernel(KernelKey(file, entry, dtype, index_dtype, constants), device_index)


@functools.lru_cache(maxsize=4096)
def _merge_kernel(
    entry: str,
    dtype: torch.dtype,
    index_dtype: torch.dtype,
    num_heads: int,
    head_dim: int,
    device_index: int,
) -> Kernel:
    constants = (("H", num_heads), ("D", head_dim))
    return get_kernel(KernelKey("merge.cu", entry, dtype, index_dtype, constants), device_index)


def packed(tensor: Tensor) -> Tensor:
    """The tensor in the form that kernels read: contiguous and on a 16-byte boundary."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()
