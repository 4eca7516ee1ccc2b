"""Graph transformers; what ``dgl.nn.gt`` has is not here yet."""

from __future__ import annotations

from dgl_flash.nn.gt.gt_layer import GTLayer
from dgl_flash.nn.gt.sparse_mha import SparseMHA
from dgl_flash.nn.missing import attribute_of

__all__ = ["GTLayer", "SparseMHA"]

__getattr__ = attribute_of(__name__)
