"""Work plans: rows too long for one warp, cut into chunks whose partial states are merged."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_flash.structure.fence import copy_to_device


@dataclass(frozen=True)
class RowPlan:
    """Long rows of an adjacency, cut into chunks of bounded length.

    Row ``long_rows[i]`` owns chunks ``chunk_ptr[i] .. chunk_ptr[i + 1]``; chunk ``j`` covers the
    positions from ``chunk_begins[j]`` to ``min(chunk_begins[j] + chunk, end of its row)``.

    Attributes
    ----------
    chunk : int
        Positions in a full chunk.
    long_rows : Tensor
        Shape ``(L,)``, ascending ids of the rows longer than ``2 * chunk``.
    chunk_ptr : Tensor
        Shape ``(L + 1,)``.
    chunk_rows : Tensor
        Shape ``(C,)``, the row of each chunk.
    chunk_begins : Tensor
        Shape ``(C,)``, the first position of each chunk.
    """

    chunk: int
    long_rows: Tensor
    chunk_ptr: Tensor
    chunk_rows: Tensor
    chunk_begins: Tensor

    @property
    def num_long(self) -> int:
        """Number of long rows ``L``."""
        return self.long_rows.numel()

    @property
    def num_chunks(self) -> int:
        """Number of chunks ``C``."""
        return self.chunk_rows.numel()

    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the four tensors in the order of the constructor."""
        return self.long_rows, self.chunk_ptr, self.chunk_rows, self.chunk_begins

    def to(self, device: torch.device) -> RowPlan:
        """Copy the plan to a device."""
        return RowPlan(self.chunk, *(copy_to_device(tensor, device) for tensor in self.tensors()))


class RowFacts:
    """What the host knows about row lengths; shared by the copies of an adjacency on all devices.

    Maximum, emptiness and plans all follow from `indptr`, so that one read of it (none when the
    graph came from the CPU) answers every later question without waiting for a device.

    Parameters
    ----------
    indptr : Tensor
        Shape ``(num_rows + 1,)``, on the CPU.
    """

    __slots__ = ("_bounds", "_plans", "indptr")

    def __init__(self, indptr: Tensor):
        self.indptr = indptr
        self._bounds: tuple[int, int] | None = None
        self._plans: dict[int, RowPlan | None] = {}

    def _degree_bounds(self) -> tuple[int, int]:
        if self._bounds is None:
            if self.indptr.numel() == 1:
                self._bounds = (0, 0)
            else:
                shortest, longest = torch.aminmax(self.indptr.diff())
                self._bounds = (int(shortest), int(longest))
        return self._bounds

    @property
    def max_degree(self) -> int:
        """Length of the longest row, 0 when there are no rows."""
        return self._degree_bounds()[1]

    @property
    def known_max_degree(self) -> int | None:
        """The same if it has been found already."""
        return None if self._bounds is None else self._bounds[1]

    @property
    def has_empty_rows(self) -> bool:
        """Whether some row has no edge; False when there are no rows."""
        return self.indptr.numel() > 1 and self._degree_bounds()[0] == 0

    def plan(self, chunk: int) -> RowPlan | None:
        """Cut the rows longer than ``2 * chunk``; None when there are none."""
        if chunk not in self._plans:
            has_long = self.max_degree > 2 * chunk
            self._plans[chunk] = cut_long_rows(self.indptr, chunk) if has_long else None
        return self._plans[chunk]


def cut_long_rows(indptr: Tensor, chunk: int) -> RowPlan:
    """Build the plan of the rows longer than ``2 * chunk``.

    Parameters
    ----------
    indptr : Tensor
        Shape ``(num_rows + 1,)``.
    chunk : int
        Positions in a full chunk, at least 1.

    Returns
    -------
    RowPlan
        On the device and in the dtype of `indptr`.
    """
    degrees = indptr.diff()
    long_rows = torch.nonzero(degrees > 2 * chunk).flatten()
    chunks_per_row = (degrees[long_rows] + (chunk - 1)) // chunk
    chunk_ptr = torch.nn.functional.pad(chunks_per_row.cumsum(0), (1, 0))
    owner = torch.repeat_interleave(chunks_per_row)  # (C,) which long row
    chunk_rows = long_rows[owner]
    nth = torch.arange(owner.numel(), device=indptr.device) - chunk_ptr[owner]
    chunk_begins = indptr[chunk_rows] + nth * chunk
    return RowPlan(
        chunk,
        long_rows.to(indptr.dtype),
        chunk_ptr.to(indptr.dtype),
        chunk_rows.to(indptr.dtype),
        chunk_begins.to(indptr.dtype),
    )
