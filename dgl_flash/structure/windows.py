"""Row windows: which columns the rows of a window share, and how often.

A window is a run of ``height`` consecutive rows of an adjacency. What a kernel gathers for one row
of it can serve the others that have the same column; the figures here tell how much is shared.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from dgl_flash.structure.adjacency import Adjacency


@dataclass(frozen=True)
class ColumnGroups:
    """Edges grouped by window and column, windows ascending, then columns, then rows.

    Attributes
    ----------
    height : int
        Rows in a window.
    order : Tensor
        Shape ``(num_edges,)``, positions of the adjacency in this order.
    rows : Tensor
        Shape ``(num_edges,)``, the row of each.
    group : Tensor
        Shape ``(num_edges,)``, the group of each.
    repeated : Tensor
        Shape ``(num_edges,)``, bool: whether the edge before it has the same row and column.
    windows, columns, sizes : Tensor
        Shape ``(num_groups,)``: window and column of each group, and its edges that are not
        repeated ones.
    """

    height: int
    order: Tensor
    rows: Tensor
    group: Tensor
    repeated: Tensor
    windows: Tensor
    columns: Tensor
    sizes: Tensor

    @property
    def num_groups(self) -> int:
        """Pairs of a window and a column with an edge between them."""
        return self.windows.numel()


def group_columns(adjacency: Adjacency, height: int) -> ColumnGroups:
    """Group the edges of each window by column, by one sort; waits for the device once.

    Parameters
    ----------
    adjacency : Adjacency
        The rows.
    height : int
        Rows in a window, at least 1.

    Returns
    -------
    ColumnGroups
        On the device of `adjacency`.
    """
    rows, num_cols = adjacency.rows(), max(adjacency.num_cols, 1)
    key = (rows.long() // height) * num_cols + adjacency.indices
    # Positions ascend by row, and a stable sort keeps that within a group.
    key, order = torch.sort(key, stable=True)
    rows = rows.index_select(0, order)
    begins = torch.ones_like(key, dtype=torch.bool)
    begins[1:] = key[1:] != key[:-1]
    repeated = torch.zeros_like(begins)
    repeated[1:] = ~begins[1:] & (rows[1:] == rows[:-1])
    first = begins.nonzero().flatten()
    group = begins.cumsum(0) - 1
    counted = pad((~repeated).cumsum(0), (1, 0))
    bounds = pad(first, (0, 1), value=key.numel())
    found = key.index_select(0, first)
    return ColumnGroups(
        height=height,
        order=order,
        rows=rows,
        group=group,
        repeated=repeated,
        windows=found // num_cols,
        columns=found % num_cols,
        sizes=counted[bounds].diff(),
    )


@dataclass(frozen=True)
class WindowStatistics:
    """How the rows of windows share columns.

    Attributes
    ----------
    height : int
        Rows in a window.
    num_rows, num_edges, num_repeated : int
        Of the adjacency; repeated edges have the row and column of another one.
    columns_by_edges : tuple of int
        At ``k``, how many columns of windows have ``k`` edges there, repeated ones counted once;
        ``k`` from 0 to `height`.
    """

    height: int
    num_rows: int
    num_edges: int
    num_repeated: int
    columns_by_edges: tuple[int, ...]

    @property
    def num_columns(self) -> int:
        """Columns of all windows: the rows that windows gather, each once."""
        return sum(self.columns_by_edges)

    @property
    def edges_per_column(self) -> float:
        """How many edges a gathered row serves; 1 where nothing is shared."""
        distinct = self.num_edges - self.num_repeated
        return distinct / self.num_columns if self.num_columns else 0.0

    def dense_columns(self, fewest: int) -> int:
        """Columns with at least `fewest` edges in their window."""
        return sum(self.columns_by_edges[fewest:])

    def dense_edges(self, fewest: int) -> int:
        """Edges in such columns."""
        return sum(k * n for k, n in enumerate(self.columns_by_edges) if k >= fewest)

    def share(self, fewest: int) -> float:
        """Share of the edges that are in such columns."""
        return self.dense_edges(fewest) / self.num_edges if self.num_edges else 0.0

    def density(self, fewest: int) -> float:
        """Share of the entries of such columns that are edges."""
        entries = self.dense_columns(fewest) * self.height
        return self.dense_edges(fewest) / entries if entries else 0.0


def window_statistics(adjacency: Adjacency, height: int = 64) -> WindowStatistics:
    """Count how the rows of windows share columns, kept with the adjacency.

    Parameters
    ----------
    adjacency : Adjacency
        The rows.
    height : int
        Rows in a window.

    Returns
    -------
    WindowStatistics
        The figures; the first call for a height sorts the edges and reads the device.
    """
    key = ("statistics", height)
    if key not in adjacency.windows:
        groups = group_columns(adjacency, height)
        by_edges = torch.bincount(groups.sizes, minlength=height + 1)
        *counts, repeated = torch.cat([by_edges, groups.repeated.sum().view(1)]).tolist()
        adjacency.windows[key] = WindowStatistics(
            height, adjacency.num_rows, adjacency.num_edges, repeated, tuple(counts)
        )
    found: WindowStatistics = adjacency.windows[key]
    return found
