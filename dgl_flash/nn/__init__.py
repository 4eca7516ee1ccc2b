"""The layers of ``dgl.nn``: same names, arguments, defaults and checkpoints.

Names that are not here yet raise an AttributeError that says so; ``dgl.nn`` can be used beside
this package meanwhile.
"""

from __future__ import annotations

from dgl_flash.nn import conv, functional, gt, linear, softmax, utils
from dgl_flash.nn.common import expand_as_pair
from dgl_flash.nn.conv import (
    AGNNConv,
    APPNPConv,
    AtomicConv,
    CFConv,
    ChebConv,
    DenseChebConv,
    DenseGraphConv,
    DenseSAGEConv,
    DotGatConv,
    EdgeGATConv,
    EdgeWeightNorm,
    EGATConv,
    GATConv,
    GatedGCNConv,
    GatedGraphConv,
    GATv2Conv,
    GCN2Conv,
    GINConv,
    GINEConv,
    GMMConv,
    GraphConv,
    GroupRevRes,
    HGTConv,
    NNConv,
    RelGraphConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TWIRLSConv,
    TWIRLSUnfoldingAndAttention,
)
from dgl_flash.nn.functional import edge_softmax
from dgl_flash.nn.gt import GTLayer, SparseMHA
from dgl_flash.nn.linear import TypedLinear
from dgl_flash.nn.missing import attribute_of, install
from dgl_flash.nn.utils import LabelPropagation

__all__ = [
    "AGNNConv",
    "APPNPConv",
    "AtomicConv",
    "CFConv",
    "ChebConv",
    "DenseChebConv",
    "DenseGraphConv",
    "DenseSAGEConv",
    "DotGatConv",
    "EGATConv",
    "EdgeGATConv",
    "EdgeWeightNorm",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GTLayer",
    "GatedGCNConv",
    "GatedGraphConv",
    "GraphConv",
    "GroupRevRes",
    "HGTConv",
    "LabelPropagation",
    "NNConv",
    "RelGraphConv",
    "SAGEConv",
    "SGConv",
    "SparseMHA",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
    "TypedLinear",
    "conv",
    "edge_softmax",
    "expand_as_pair",
    "functional",
    "gt",
    "linear",
    "softmax",
    "utils",
]

install()
__getattr__ = attribute_of(__name__)

from dgl_flash.nn import pytorch  # noqa: E402, F401  (it re-exports what is above)
