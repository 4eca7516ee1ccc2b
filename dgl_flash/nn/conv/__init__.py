"""Graph convolutions, under DGL's file and class names."""

from __future__ import annotations

from dgl_flash.nn.conv.gatv2conv import GATv2Conv
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm, GraphConv
from dgl_flash.nn.missing import attribute_of

__all__ = ["EdgeWeightNorm", "GATv2Conv", "GraphConv"]

__getattr__ = attribute_of(__name__)
