"""Every op once more in plain torch: the CPU path and the oracle of the kernels."""

from __future__ import annotations

from dgl_flash.reference.edge_softmax import edge_softmax
from dgl_flash.reference.gatv2 import gatv2, gatv2_scores
from dgl_flash.reference.sddmm import u_dot_v
from dgl_flash.reference.spmm import spmm

__all__ = ["edge_softmax", "gatv2", "gatv2_scores", "spmm", "u_dot_v"]
