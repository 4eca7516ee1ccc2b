"""The layers of ``dgl.nn``: same names, arguments, defaults and checkpoints.

Names that are not here yet raise an AttributeError that says so; ``dgl.nn`` can be used beside
this package meanwhile.
"""

from __future__ import annotations

from dgl_flash.nn import conv, functional, softmax
from dgl_flash.nn.common import expand_as_pair
from dgl_flash.nn.conv import EdgeWeightNorm, GATv2Conv, GraphConv
from dgl_flash.nn.functional import edge_softmax
from dgl_flash.nn.missing import attribute_of, install

__all__ = [
    "EdgeWeightNorm",
    "GATv2Conv",
    "GraphConv",
    "conv",
    "edge_softmax",
    "expand_as_pair",
    "functional",
    "softmax",
]

install()
__getattr__ = attribute_of(__name__)

from dgl_flash.nn import pytorch  # noqa: E402, F401  (it re-exports what is above)
