"""Functions without parameters, as in ``dgl.nn.functional``."""

from __future__ import annotations

from dgl_flash.ops import edge_softmax

__all__ = ["edge_softmax"]
