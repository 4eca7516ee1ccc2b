"""Every op once more in plain torch, one step after the other: the oracle of the fast paths.

What no fast path covers runs here as well.
"""

from __future__ import annotations

from dgl_flash.reference.dot_attention import dot_attention
from dgl_flash.reference.edge_map import edge_map
from dgl_flash.reference.edge_softmax import edge_softmax
from dgl_flash.reference.extremum import extremum, pick_won, put_won
from dgl_flash.reference.gat import gat
from dgl_flash.reference.gatv2 import gatv2, gatv2_scores
from dgl_flash.reference.gsddmm import gsddmm
from dgl_flash.reference.gspmm import gspmm
from dgl_flash.reference.sddmm import dot_rows, u_dot_v
from dgl_flash.reference.spmm import spmm, sum_rows
from dgl_flash.reference.statistics import statistics
from dgl_flash.reference.typed_mm import add_outer_products, typed_mm

__all__ = [
    "add_outer_products",
    "dot_attention",
    "dot_rows",
    "edge_map",
    "edge_softmax",
    "extremum",
    "gat",
    "gatv2",
    "gatv2_scores",
    "gsddmm",
    "gspmm",
    "pick_won",
    "put_won",
    "spmm",
    "statistics",
    "sum_rows",
    "typed_mm",
    "u_dot_v",
]
