"""An order of nodes that was found: the graph in it, what it gains, and the way back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dgl_flash.reordering.measuring import MeasuredChange, measure_change
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.windows import WindowStatistics
from dgl_flash.tables import as_html, as_text

STORED = "stored"
_HEAD = ("order", "gathered rows", "edges a row", "in shared columns", "change")


@dataclass(frozen=True, repr=False)
class Reordering:
    """What :func:`reorder` found; ``print`` it, or show it in a notebook.

    Attributes
    ----------
    graph : DGLGraph, dgl_flash.Graph or GraphStructure
        The graph in its new order, with its features. Edges keep their ids.
    permutation : Tensor
        (N,), int64, on the device of the graph: at each new place, the node that has come there.
    method : str
        The order taken; "stored" if "auto" found none that gains 5 %.
    statistics : dict of str to WindowStatistics
        Of each order that was looked at, with that of the graph as it was given under "stored".

    Notes
    -----
    **Fused path.** There is none: nothing is computed.
    """

    graph: Any
    permutation: Tensor
    method: str
    statistics: Mapping[str, WindowStatistics]
    _structures: tuple[GraphStructure, GraphStructure] = field(compare=False)

    @property
    def inverse(self) -> Tensor:
        """(N,), int64: the new number of each node."""
        return places_of(self.permutation)

    def apply(self, feat: Tensor) -> Tensor:
        """Bring features, labels or masks of nodes into the new order.

        Parameters
        ----------
        feat : Tensor
            (N, ...), by the numbers that nodes had.

        Returns
        -------
        Tensor
            (N, ...), differentiable.
        """
        return self._rows("apply", feat)[self.permutation.to(feat.device)]

    def undo(self, out: Tensor) -> Tensor:
        """Bring what was computed on the reordered graph back into the order that nodes had.

        Parameters
        ----------
        out : Tensor
            (N, ...), by new numbers.

        Returns
        -------
        Tensor
            (N, ...), differentiable.
        """
        return self._rows("undo", out)[self.inverse.to(out.device)]

    def _rows(self, method: str, rows: Tensor) -> Tensor:
        expected = self.permutation.numel()
        if rows.dim() == 0 or rows.shape[0] != expected:
            raise ValueError(
                f"{method}: expected a tensor with a row for each of {expected} nodes, got shape "
                f"{tuple(rows.shape)}"
            )
        return rows

    @property
    def predicted(self) -> float:
        """Rows that windows gather, over those before: 0.5 is half the traffic, 1 no change."""
        return change(self.statistics[self.method], self.statistics[STORED])

    def measure(
        self,
        op: str = "sum",
        *,
        width: int = 128,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str | None = None,
        repeats: int = 20,
    ) -> MeasuredChange:
        """Time an op on the graph as it was given and as it is now.

        Parameters
        ----------
        op : {"sum", "gatv2", "dot_attention"}
            The sum of neighbours' rows, or attention with 4 heads.
        width : int
            Numbers in a row, for attention a multiple of 4.
        dtype : torch.dtype
            Of the features.
        device : torch.device or str, optional
            Where to run; default: where the graph is.
        repeats : int
            Measured calls of each, which take turns.

        Returns
        -------
        MeasuredChange
            Milliseconds before and after.
        """
        given, reordered = (
            struct if device is None else struct.to(device) for struct in self._structures
        )
        return measure_change(given, reordered, op, width, dtype, repeats)

    def rows(self) -> list[tuple[str, ...]]:
        """One row an order, as ``print`` shows it.

        Its name; rows that windows of 64 gather; edges that each of them serves; share of edges in
        columns with at least 4 edges of a window; change of the gathered rows.
        """
        stored = self.statistics[STORED]
        return [
            (
                name + (" (taken)" if name == self.method else ""),
                f"{found.num_columns:,}",
                f"{found.edges_per_column:.2f}",
                f"{found.share(4):.0%}",
                f"x {change(found, stored):.2f}",
            )
            for name, found in self.statistics.items()
        ]

    def __repr__(self) -> str:
        return as_text([_HEAD, *self.rows()])

    def _repr_html_(self) -> str:
        return as_html([_HEAD, *self.rows()])


def change(found: WindowStatistics, before: WindowStatistics) -> float:
    """Rows that windows gather, over those before."""
    return found.num_columns / before.num_columns if before.num_columns else 1.0


def places_of(order: Tensor) -> Tensor:
    """The inverse of a permutation."""
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel(), device=order.device)
    return places
