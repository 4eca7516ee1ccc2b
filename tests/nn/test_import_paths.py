"""DGL's import paths lead to the same modules and classes."""

from __future__ import annotations

import importlib
import pickle
import subprocess
import sys

import pytest

import dgl_flash.nn as ours

PATHS = {
    "dgl_flash.nn": ("GATv2Conv", "GraphConv", "EdgeWeightNorm", "edge_softmax"),
    "dgl_flash.nn.conv": ("GATv2Conv", "GraphConv", "EdgeWeightNorm"),
    "dgl_flash.nn.conv.gatv2conv": ("GATv2Conv",),
    "dgl_flash.nn.conv.graphconv": ("GraphConv", "EdgeWeightNorm"),
    "dgl_flash.nn.conv.sageconv": ("SAGEConv",),
    "dgl_flash.nn.conv.hgtconv": ("HGTConv",),
    "dgl_flash.nn.conv.cugraph_gatconv": ("CuGraphGATConv",),
    "dgl_flash.nn.conv.cugraph_relgraphconv": ("CuGraphRelGraphConv",),
    "dgl_flash.nn.conv.cugraph_sageconv": ("CuGraphSAGEConv",),
    "dgl_flash.nn.factory": ("KNNGraph", "RadiusGraph", "SegmentedKNNGraph", "knn_graph"),
    "dgl_flash.nn.gt": ("GTLayer", "SparseMHA", "BiasedMHA", "EGTLayer", "PathEncoder"),
    "dgl_flash.nn.gt.biased_mha": ("BiasedMHA",),
    "dgl_flash.nn.gt.degree_encoder": ("DegreeEncoder",),
    "dgl_flash.nn.gt.egt": ("EGTLayer",),
    "dgl_flash.nn.gt.graphormer": ("GraphormerLayer",),
    "dgl_flash.nn.gt.lap_pos_encoder": ("LapPosEncoder",),
    "dgl_flash.nn.gt.path_encoder": ("PathEncoder",),
    "dgl_flash.nn.glob": ("SumPooling", "Set2Set", "SetTransformerEncoder", "WeightAndSum"),
    "dgl_flash.nn.hetero": ("HeteroGraphConv", "HeteroLinear", "HeteroEmbedding"),
    "dgl_flash.nn.link": ("EdgePredictor", "TransE", "TransR"),
    "dgl_flash.nn.link.edgepred": ("EdgePredictor",),
    "dgl_flash.nn.explain": ("GNNExplainer", "PGExplainer", "SubgraphX"),
    "dgl_flash.nn.explain.gnnexplainer": ("GNNExplainer", "HeteroGNNExplainer"),
    "dgl_flash.nn.explain.pgexplainer": ("PGExplainer", "HeteroPGExplainer"),
    "dgl_flash.nn.explain.subgraphx": ("SubgraphX", "HeteroSubgraphX"),
    "dgl_flash.nn.network_emb": ("DeepWalk", "MetaPath2Vec"),
    "dgl_flash.nn.sparse_emb": ("NodeEmbedding",),
    "dgl_flash.nn.utils": ("LabelPropagation", "JumpingKnowledge", "Sequential", "WeightBasis"),
    "dgl_flash.nn.linear": ("TypedLinear",),
    "dgl_flash.nn.functional": ("edge_softmax",),
    "dgl_flash.nn.softmax": ("edge_softmax",),
    "dgl_flash.nn.pytorch": ("GATv2Conv", "GraphConv", "EdgeWeightNorm", "edge_softmax"),
    "dgl_flash.nn.pytorch.conv": ("GATv2Conv", "GraphConv", "EdgeWeightNorm"),
    "dgl_flash.nn.pytorch.conv.gatv2conv": ("GATv2Conv",),
    "dgl_flash.nn.pytorch.conv.graphconv": ("GraphConv", "EdgeWeightNorm"),
    "dgl_flash.nn.pytorch.conv.sageconv": ("SAGEConv",),
    "dgl_flash.nn.pytorch.conv.hgtconv": ("HGTConv",),
    "dgl_flash.nn.pytorch.conv.cugraph_gatconv": ("CuGraphGATConv",),
    "dgl_flash.nn.pytorch.factory": ("KNNGraph", "RadiusGraph", "pairwise_squared_distance"),
    "dgl_flash.nn.pytorch.gt": ("GTLayer", "SparseMHA", "BiasedMHA", "EGTLayer", "PathEncoder"),
    "dgl_flash.nn.pytorch.gt.biased_mha": ("BiasedMHA",),
    "dgl_flash.nn.pytorch.gt.spatial_encoder": ("SpatialEncoder", "SpatialEncoder3d"),
    "dgl_flash.nn.pytorch.glob": ("SumPooling", "Set2Set", "SetTransformerEncoder"),
    "dgl_flash.nn.pytorch.hetero": ("HeteroGraphConv", "HeteroLinear", "HeteroEmbedding"),
    "dgl_flash.nn.pytorch.link": ("EdgePredictor", "TransE", "TransR"),
    "dgl_flash.nn.pytorch.link.transe": ("TransE",),
    "dgl_flash.nn.pytorch.link.transr": ("TransR",),
    "dgl_flash.nn.pytorch.explain": ("HeteroGNNExplainer", "HeteroPGExplainer"),
    "dgl_flash.nn.pytorch.explain.subgraphx": ("SubgraphX", "HeteroSubgraphX"),
    "dgl_flash.nn.pytorch.network_emb": ("DeepWalk", "MetaPath2Vec"),
    "dgl_flash.nn.pytorch.sparse_emb": ("NodeEmbedding",),
    "dgl_flash.nn.pytorch.utils": ("LabelPropagation", "Sequential", "JumpingKnowledge"),
    "dgl_flash.nn.pytorch.linear": ("TypedLinear",),
    "dgl_flash.nn.pytorch.softmax": ("edge_softmax",),
}


@pytest.mark.parametrize("path", sorted(PATHS))
def test_one_object_under_every_path(path):
    module = importlib.import_module(path)
    for name in PATHS[path]:
        assert getattr(module, name) is getattr(ours, name)


@pytest.mark.parametrize("path", [path for path in sorted(PATHS) if "pytorch" in path])
def test_each_path_can_be_the_first_import(path):
    code = f"import {path} as m; from {path} import {PATHS[path][0]} as x; assert m and x"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_modules_are_not_loaded_twice():
    short = importlib.import_module("dgl_flash.nn.conv.gatv2conv")
    assert importlib.import_module("dgl_flash.nn.pytorch.conv.gatv2conv") is short


def test_pickles_name_the_short_path():
    layer_class = importlib.import_module("dgl_flash.nn.pytorch.conv").GATv2Conv
    assert layer_class.__module__ == "dgl_flash.nn.conv.gatv2conv"
    assert pickle.loads(pickle.dumps(layer_class)) is layer_class


def test_star_import_has_the_layers():
    namespace: dict[str, object] = {}
    exec("from dgl_flash.nn import *", namespace)
    exec("from dgl_flash.nn.pytorch import *", namespace)
    assert {"GATv2Conv", "GraphConv", "EdgeWeightNorm"} <= set(namespace)


def test_importing_the_layers_does_not_import_dgl():
    code = "import sys, dgl_flash.nn; assert 'dgl' not in sys.modules and 'cupy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
