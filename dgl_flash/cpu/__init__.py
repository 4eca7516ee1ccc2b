"""The products of a graph on the CPU: fast, bounded in memory, without derivatives of their own.

They are what the kernels are on a GPU: ``dgl_flash.ops`` differentiates both by the same
formulas. ``dgl_flash.reference`` holds the obvious twins. Only ``gatv2_scores``, for which there is
no kernel, and ``extremum`` bring their derivatives with them.
"""

from __future__ import annotations

from dgl_flash.cpu.edge_map import edge_map
from dgl_flash.cpu.edge_softmax import edge_softmax, edge_softmax_backward
from dgl_flash.cpu.extreme_rows import extreme_rows
from dgl_flash.cpu.extremum import extremum
from dgl_flash.cpu.gatv2 import gatv2_scores
from dgl_flash.cpu.sddmm import dot_rows
from dgl_flash.cpu.spmm import sum_rows

__all__ = [
    "dot_rows",
    "edge_map",
    "edge_softmax",
    "edge_softmax_backward",
    "extreme_rows",
    "extremum",
    "gatv2_scores",
    "sum_rows",
]
