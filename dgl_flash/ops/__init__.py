"""Message passing as functions: fused on CUDA, plain torch elsewhere, differentiable everywhere."""

from __future__ import annotations

from dgl_flash.ops.edge_softmax import edge_softmax
from dgl_flash.ops.gatv2 import gatv2
from dgl_flash.ops.sddmm import u_dot_v
from dgl_flash.ops.spmm import spmm

__all__ = ["edge_softmax", "gatv2", "spmm", "u_dot_v"]
