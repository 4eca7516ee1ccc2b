"""The path from which scripts of DGL's earlier days import ``edge_softmax``."""

from __future__ import annotations

from dgl_flash.nn.functional import edge_softmax

__all__ = ["edge_softmax"]
