"""Message passing as functions: fused on CUDA, plain torch elsewhere, differentiable everywhere.

The names of ``dgl.ops`` are here, generated as DGL generates them (``copy_u_sum``, ``u_dot_v``,
``u_mul_e_mean``, ``e_sub_u``, ...), and need no CUDA build of DGL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgl_flash.ops.dot_attention import dot_attention
from dgl_flash.ops.edge_softmax import edge_softmax
from dgl_flash.ops.gat import gat
from dgl_flash.ops.gatv2 import gatv2
from dgl_flash.ops.gsddmm import GENERATED as _OF_EDGES
from dgl_flash.ops.gsddmm import copy_e, copy_u, copy_v, gsddmm
from dgl_flash.ops.gspmm import GENERATED as _OF_NODES
from dgl_flash.ops.gspmm import gspmm
from dgl_flash.ops.relational import relational_sum
from dgl_flash.ops.segment import segment_reduce, segment_softmax
from dgl_flash.ops.spmm import spmm
from dgl_flash.ops.statistics import statistics
from dgl_flash.ops.typed_mm import gather_mm, segment_mm

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """The generated names, for type checkers."""


globals().update(_OF_NODES, **_OF_EDGES)

__all__ = [
    "copy_e",
    "copy_u",
    "copy_v",
    "dot_attention",
    "edge_softmax",
    "gather_mm",
    "gat",
    "gatv2",
    "gsddmm",
    "gspmm",
    "relational_sum",
    "segment_mm",
    "segment_reduce",
    "segment_softmax",
    "spmm",
    "statistics",
    *_OF_NODES,
    *_OF_EDGES,
]
