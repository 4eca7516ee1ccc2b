"""Segments of consecutive rows as a graph, so that the ops of graphs serve them too."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from dgl_flash.structure.adjacency import Adjacency, choose_index_dtype
from dgl_flash.structure.fence import copy_to_device
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.plan import RowFacts


def segment_structure(lengths: Tensor, num_rows: int, device: torch.device) -> GraphStructure:
    """Graph with an edge from each row to its segment; edge ids are rows.

    Parameters
    ----------
    lengths : Tensor
        Shape ``(S,)``, integer, rows of each segment, on any device.
    num_rows : int
        Their sum. Longer lengths are cut, rows beyond them count to no segment.
    device : torch.device
        Where the structure is wanted; lengths on another device must be on the CPU.

    Returns
    -------
    GraphStructure
        ``num_rows`` sources, ``S`` destinations.
    """
    dtype = choose_index_dtype(lengths.numel(), num_rows, num_rows)
    given = pad(lengths.long().cumsum(0), (1, 0)).clamp_(max=num_rows).to(dtype)
    rows = torch.arange(num_rows, dtype=dtype, device=device)
    in_adj = Adjacency(copy_to_device(given, device), rows, None, num_rows)
    if given.device != device:
        in_adj._facts = RowFacts(given)  # as in a copy of a graph on the CPU
    return GraphStructure.from_adjacency(in_adj)
