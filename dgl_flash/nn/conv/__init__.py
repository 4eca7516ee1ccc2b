"""Graph convolutions, under DGL's file and class names."""

from __future__ import annotations

from dgl_flash.nn.conv.agnnconv import AGNNConv
from dgl_flash.nn.conv.appnpconv import APPNPConv
from dgl_flash.nn.conv.atomicconv import AtomicConv
from dgl_flash.nn.conv.cfconv import CFConv
from dgl_flash.nn.conv.chebconv import ChebConv
from dgl_flash.nn.conv.cugraph_gatconv import CuGraphGATConv
from dgl_flash.nn.conv.cugraph_relgraphconv import CuGraphRelGraphConv
from dgl_flash.nn.conv.cugraph_sageconv import CuGraphSAGEConv
from dgl_flash.nn.conv.densechebconv import DenseChebConv
from dgl_flash.nn.conv.densegraphconv import DenseGraphConv
from dgl_flash.nn.conv.densesageconv import DenseSAGEConv
from dgl_flash.nn.conv.dgnconv import DGNConv
from dgl_flash.nn.conv.dotgatconv import DotGatConv
from dgl_flash.nn.conv.edgeconv import EdgeConv
from dgl_flash.nn.conv.edgegatconv import EdgeGATConv
from dgl_flash.nn.conv.egatconv import EGATConv
from dgl_flash.nn.conv.egnnconv import EGNNConv
from dgl_flash.nn.conv.gatconv import GATConv
from dgl_flash.nn.conv.gatedgcnconv import GatedGCNConv
from dgl_flash.nn.conv.gatedgraphconv import GatedGraphConv
from dgl_flash.nn.conv.gatv2conv import GATv2Conv
from dgl_flash.nn.conv.gcn2conv import GCN2Conv
from dgl_flash.nn.conv.ginconv import GINConv
from dgl_flash.nn.conv.gineconv import GINEConv
from dgl_flash.nn.conv.gmmconv import GMMConv
from dgl_flash.nn.conv.graphconv import EdgeWeightNorm, GraphConv
from dgl_flash.nn.conv.grouprevres import GroupRevRes
from dgl_flash.nn.conv.hgtconv import HGTConv
from dgl_flash.nn.conv.nnconv import NNConv
from dgl_flash.nn.conv.pnaconv import PNAConv
from dgl_flash.nn.conv.relgraphconv import RelGraphConv
from dgl_flash.nn.conv.sageconv import SAGEConv
from dgl_flash.nn.conv.sgconv import SGConv
from dgl_flash.nn.conv.tagconv import TAGConv
from dgl_flash.nn.conv.twirlsconv import TWIRLSConv, TWIRLSUnfoldingAndAttention
from dgl_flash.nn.missing import attribute_of

__all__ = [
    "AGNNConv",
    "APPNPConv",
    "AtomicConv",
    "CFConv",
    "ChebConv",
    "CuGraphGATConv",
    "CuGraphRelGraphConv",
    "CuGraphSAGEConv",
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
    "GatedGCNConv",
    "GatedGraphConv",
    "GraphConv",
    "GroupRevRes",
    "HGTConv",
    "NNConv",
    "PNAConv",
    "RelGraphConv",
    "SAGEConv",
    "SGConv",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
]

__getattr__ = attribute_of(__name__)
