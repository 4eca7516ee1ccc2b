"""The layers of ``dgl.nn``: same names, arguments, defaults and checkpoints.

Names that are not here yet raise an AttributeError that says so; ``dgl.nn`` can be used beside
this package meanwhile.
"""

from __future__ import annotations

from dgl_flash.nn import conv, functional, glob, gt, linear, softmax, utils
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
    DGNConv,
    DotGatConv,
    EdgeConv,
    EdgeGATConv,
    EdgeWeightNorm,
    EGATConv,
    EGNNConv,
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
    PNAConv,
    RelGraphConv,
    SAGEConv,
    SGConv,
    TAGConv,
    TWIRLSConv,
    TWIRLSUnfoldingAndAttention,
)
from dgl_flash.nn.functional import edge_softmax
from dgl_flash.nn.glob import (
    AvgPooling,
    GlobalAttentionPooling,
    MaxPooling,
    Set2Set,
    SetTransformerDecoder,
    SetTransformerEncoder,
    SortPooling,
    SumPooling,
    WeightAndSum,
)
from dgl_flash.nn.gt import GTLayer, SparseMHA
from dgl_flash.nn.linear import TypedLinear
from dgl_flash.nn.missing import attribute_of, install
from dgl_flash.nn.utils import LabelPropagation

__all__ = [
    "AGNNConv",
    "APPNPConv",
    "AtomicConv",
    "AvgPooling",
    "CFConv",
    "ChebConv",
    "DGNConv",
    "DenseChebConv",
    "DenseGraphConv",
    "DenseSAGEConv",
    "DotGatConv",
    "EGATConv",
    "EGNNConv",
    "EdgeConv",
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
    "GlobalAttentionPooling",
    "GraphConv",
    "GroupRevRes",
    "HGTConv",
    "LabelPropagation",
    "MaxPooling",
    "NNConv",
    "PNAConv",
    "RelGraphConv",
    "SAGEConv",
    "SGConv",
    "Set2Set",
    "SetTransformerDecoder",
    "SetTransformerEncoder",
    "SortPooling",
    "SparseMHA",
    "SumPooling",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
    "TypedLinear",
    "WeightAndSum",
    "conv",
    "edge_softmax",
    "expand_as_pair",
    "functional",
    "glob",
    "gt",
    "linear",
    "softmax",
    "utils",
]

install()
__getattr__ = attribute_of(__name__)

from dgl_flash.nn import pytorch  # noqa: E402, F401  (it re-exports what is above)
