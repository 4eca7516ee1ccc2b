"""Where in the row at its other end an edge stands."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_flash.structure.adjacency import Adjacency

SHORT_ROW = 255  # edges of a row whose places one byte tells apart, with a value left for none


def bytes_of_place(max_degree: int) -> int:
    """Fewest bytes that hold every place in a row and one more value, which stands for none."""
    return max((max_degree.bit_length() + 7) // 8, 1)


def positions_in_rows(rows: Adjacency, other: Adjacency) -> Tensor:
    """Position of each edge in the adjacency whose rows are meant.

    Parameters
    ----------
    rows, other : Adjacency
        The same edges grouped by either end.

    Returns
    -------
    Tensor
        (E,), index dtype, on the device of both, in the order of the positions of ``other``.
    """
    ids = torch.arange(rows.num_edges, dtype=rows.index_dtype, device=rows.device)
    positions = ids
    if rows.eids is not None:
        positions = torch.empty_like(ids).scatter_(0, rows.eids.long(), ids)
    return positions if other.eids is None else positions.index_select(0, other.eids)


def places_in_rows(rows: Adjacency, other: Adjacency) -> Tensor:
    """Place of each edge in its row: how many edges of the row come before it.

    Parameters
    ----------
    rows, other : Adjacency
        As in :func:`positions_in_rows`.

    Returns
    -------
    Tensor
        The same shape and order. Places in rows of more than ``SHORT_ROW`` edges are inverted bit
        by bit, hence negative.
    """
    places = positions_in_rows(rows, other) - rows.indptr.index_select(0, other.indices)
    is_long = rows.indptr.diff().index_select(0, other.indices) > SHORT_ROW
    return torch.where(is_long, ~places, places)
