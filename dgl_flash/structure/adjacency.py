"""Compressed rows of a graph, with the degree facts and work plans that kernels ask for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from dgl_flash.structure.fence import Fence, copy_to_device
from dgl_flash.structure.grouping import expand_rows, group_by_key, is_identity
from dgl_flash.structure.plan import RowFacts, RowPlan

# Kernels add a group of edges to a position before they compare it with the end of the row.
_INT32_LIMIT = 2**31 - 2**16


def choose_index_dtype(num_rows: int, num_cols: int, num_edges: int) -> torch.dtype:
    """int32 whenever every id and every position fits: half the index traffic of int64."""
    fits = max(num_rows, num_cols, num_edges) < _INT32_LIMIT
    return torch.int32 if fits else torch.int64


class Adjacency:
    """Compressed sparse rows of one direction of a graph; immutable.

    Position ``p`` in ``indptr[r] .. indptr[r + 1]`` is an edge of row ``r`` to column
    ``indices[p]``; its edge id is ``eids[p]``, or ``p`` itself when `eids` is None.

    Parameters
    ----------
    indptr : Tensor
        Shape ``(num_rows + 1,)``, any integer dtype.
    indices : Tensor
        Shape ``(num_edges,)``, values in ``[0, num_cols)``.
    eids : Tensor or None
        Shape ``(num_edges,)``, a permutation; None is the identity.
    num_cols : int
        Number of columns.

    Notes
    -----
    The arguments are trusted: `dgl_flash.graph` checks what people pass.
    """

    __slots__ = (
        "__weakref__",
        "_degrees",
        "_facts",
        "_plans",
        "eids",
        "fence",
        "indices",
        "indptr",
        "launches",
        "num_cols",
        "num_edges",
        "num_rows",
        "windows",
    )

    def __init__(self, indptr: Tensor, indices: Tensor, eids: Tensor | None, num_cols: int):
        self.num_rows = indptr.numel() - 1
        self.num_cols = num_cols
        self.num_edges = indices.numel()
        dtype = choose_index_dtype(self.num_rows, num_cols, self.num_edges)
        self.indptr = indptr.to(dtype).contiguous()
        self.indices = indices.to(dtype).contiguous()
        self.eids = None if eids is None else eids.to(dtype).contiguous()
        if self.eids is not None and self.eids.device.type == "cpu" and is_identity(self.eids):
            self.eids = None
        self.fence: Fence | None = None  # set by the structure that owns this adjacency
        self._degrees: Tensor | None = None
        self._facts: RowFacts | None = None
        self._plans: dict[int, RowPlan | None] = {}
        self.launches: dict[Any, Any] = {}  # kernels bound to these rows, kept by dgl_flash.ops
        self.windows: dict[Any, Any] = {}  # forms of these rows, kept by block_sparse and windows

    @classmethod
    def from_coo(cls, rows: Tensor, cols: Tensor, num_rows: int, num_cols: int) -> Adjacency:
        """Compress an edge list; within a row, edges stay in edge-id order.

        Parameters
        ----------
        rows, cols : Tensor
            Shape ``(E,)``, integer; edge ``e`` is ``(rows[e], cols[e])``.
        num_rows, num_cols : int
            Size of the matrix.

        Returns
        -------
        Adjacency
            On the device of `rows`.
        """
        dtype = choose_index_dtype(num_rows, num_cols, rows.numel())
        indptr, order = group_by_key(rows.to(dtype), num_rows)
        return cls(indptr, cols.to(dtype).index_select(0, order), order, num_cols)

    def __reduce__(self) -> tuple[Any, ...]:
        # Facts and plans are derived: a copy or a pickle builds its own.
        return Adjacency, (self.indptr, self.indices, self.eids, self.num_cols)

    def __repr__(self) -> str:
        return (
            f"Adjacency(num_rows={self.num_rows}, num_cols={self.num_cols}, "
            f"num_edges={self.num_edges}, index_dtype={self.index_dtype}, device={self.device})"
        )

    @property
    def index_dtype(self) -> torch.dtype:
        """``torch.int32`` whenever everything fits, else ``torch.int64``."""
        return self.indptr.dtype

    @property
    def device(self) -> torch.device:
        """Device of all three tensors."""
        return self.indptr.device

    def tensors(self) -> Iterator[Tensor]:
        """Visit the tensors held."""
        for tensor in (self.indptr, self.indices, self.eids, self._degrees):
            if tensor is not None:
                yield tensor
        for kept in (*self._plans.values(), *self.windows.values()):
            if hasattr(kept, "tensors"):
                yield from kept.tensors()

    def to(self, device: torch.device | str) -> Adjacency:
        """Copy to a device; what the host knows about the rows travels along."""
        device = torch.device(device)
        if device == self.device:
            return self
        indptr, indices = (copy_to_device(part, device) for part in (self.indptr, self.indices))
        eids = None if self.eids is None else copy_to_device(self.eids, device)
        copy = Adjacency(indptr, indices, eids, self.num_cols)
        copy._facts = self._row_facts()
        return copy

    def degrees(self) -> Tensor:
        """Length of each row: shape ``(num_rows,)``, index dtype."""
        if self._degrees is None:
            self._degrees = self.indptr.diff()
            if self.fence is not None:
                self.fence.mark()
        return self._degrees

    def _row_facts(self) -> RowFacts:
        if self._facts is None:
            self._facts = RowFacts(self.indptr.cpu())
        return self._facts

    @property
    def max_degree(self) -> int:
        """Length of the longest row; reads the device once, never when built from the CPU."""
        return self._row_facts().max_degree

    @property
    def known_max_degree(self) -> int | None:
        """Length of the longest row if somebody has asked for it before."""
        return None if self._facts is None else self._facts.known_max_degree

    @property
    def has_empty_rows(self) -> bool:
        """Whether some row has no edge; reads the device once, never when built from the CPU."""
        return self._row_facts().has_empty_rows

    def rows(self) -> Tensor:
        """Row of each position: shape ``(num_edges,)``, index dtype; not cached."""
        return expand_rows(self.indptr, self.num_edges)

    def transpose(self) -> Adjacency:
        """Group the same edges by column, on this device; ties keep their order.

        Returns
        -------
        Adjacency
            ``num_cols`` rows; its `eids` name the same edges as ours do.
        """
        indptr, order = group_by_key(self.indices, self.num_cols)
        eids = order if self.eids is None else self.eids.index_select(0, order)
        return Adjacency(indptr, self.rows().index_select(0, order), eids, self.num_rows)

    def plan(self, chunk: int) -> RowPlan | None:
        """Chunks of the rows longer than ``2 * chunk``, cached; None when there are none."""
        if self.num_edges <= 2 * chunk:  # no row can be long: nothing to read from the device
            return None
        if self.fence is not None:
            self.fence.wait(self.tensors(), are_all=False)
        if chunk not in self._plans:
            plan = self._row_facts().plan(chunk)
            self._plans[chunk] = None if plan is None else plan.to(self.device)
            if self.fence is not None:
                self.fence.mark()
        return self._plans[chunk]
