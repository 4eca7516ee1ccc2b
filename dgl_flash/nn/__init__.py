"""The layers of ``dgl.nn``: same names, arguments, defaults and checkpoints.

Names that are not here yet raise an AttributeError that says so; ``dgl.nn`` can be used beside
this package meanwhile.
"""

from __future__ import annotations

from dgl_flash.nn import conv, functional, linear, softmax, utils
from dgl_flash.nn.common import expand_as_pair
from dgl_flash.nn.conv import (
    APPNPConv,
    AtomicConv,
    CFConv,
    ChebConv,
    DenseChebConv,
    DenseGraphConv,
    DenseSAGEConv,
    EdgeWeightNorm,
    GatedGCNConv,
    GatedGraphConv,
    GATv2Conv,
    GCN2Conv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    GroupRevRes,
    NNConv,
    RelGraphConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TWIRLSConv,
    TWIRLSUnfoldingAndAttention,
)
from dgl_flash.nn.functional import edge_softmax
from dgl_flash.nn.linear import TypedLinear
from dgl_flash.nn.missing import attribute_of, install
from dgl_flash.nn.utils import LabelPropagation

__all__ = [
    "APPNPConv",
    "AtomicConv",
    "CFConv",
    "ChebConv",
    "DenseChebConv",
    "DenseGraphConv",
    "DenseSAGEConv",
    "EdgeWeightNorm",
    "GATv2Conv",
    "GCN2Conv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GatedGCNConv",
    "GatedGraphConv",
    "GraphConv",
    "GroupRevRes",
    "LabelPropagation",
    "NNConv",
    "RelGraphConv",
    "SAGEConv",
    "SGConv",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
    "TypedLinear",
    "conv",
    "edge_softmax",
    "expand_as_pair",
    "functional",
    "linear",
    "softmax",
    "utils",
]

install()
__getattr__ = attribute_of(__name__)

from dgl_flash.nn import pytorch  # noqa: E402, F401  (it re-exports what is above)
