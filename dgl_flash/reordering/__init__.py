"""Orders of nodes in which neighbours share more: permuted graphs, and what they gain."""

from dgl_flash.reordering.measuring import MeasuredChange
from dgl_flash.reordering.result import Reordering
from dgl_flash.reordering.search import reorder

__all__ = ["MeasuredChange", "Reordering", "reorder"]
