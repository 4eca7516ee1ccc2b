"""Segments of consecutive rows as a graph, so that the ops of graphs serve them too."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from dgl_flash.structure.adjacency import Adjacency, choose_index_dtype
from dgl_flash.structure.fence import copy_to_device
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.plan import RowFacts


def segment_offsets(lengths: Tensor, num_rows: int) -> Tensor:
    """First row of each segment, then the number of rows, without a read of the device.

    Parameters
    ----------
    lengths : Tensor
        Shape ``(S,)``, integer, on any device. There is a segment if there are rows.
    num_rows : int
        Their sum. Where lengths on a device are wrong, all offsets are still in order and all rows
        in a segment: negative lengths count as 0, what is too long is cut, and rows beyond the sum
        belong to the last segment.

    Returns
    -------
    Tensor
        Shape ``(S + 1,)``, int64.
    """
    offsets = pad(lengths.long().clamp(min=0).cumsum(0), (1, 0)).clamp_(max=num_rows)
    offsets[1:][-1:].fill_(num_rows)
    return offsets


def segment_structure(lengths: Tensor, num_rows: int, device: torch.device) -> GraphStructure:
    """Graph with an edge from each row to its segment; edge ids are rows.

    Parameters
    ----------
    lengths : Tensor
        Shape ``(S,)``, integer, rows of each segment, on any device.
    num_rows : int
        Their sum; what is done where it is not, see :func:`segment_offsets`.
    device : torch.device
        Where the structure is wanted; lengths on another device must be on the CPU.

    Returns
    -------
    GraphStructure
        ``num_rows`` sources, ``S`` destinations.
    """
    dtype = choose_index_dtype(lengths.numel(), num_rows, num_rows)
    given = segment_offsets(lengths, num_rows).to(dtype)
    rows = torch.arange(num_rows, dtype=dtype, device=device)
    in_adj = Adjacency(copy_to_device(given, device), rows, None, num_rows)
    if given.device != device:
        in_adj._facts = RowFacts(given)  # as in a copy of a graph on the CPU
    return GraphStructure.from_adjacency(in_adj)
