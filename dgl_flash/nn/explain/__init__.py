"""Explanations of what a graph neural network predicts: the edges and features it rests on."""

from __future__ import annotations

from dgl_flash.nn.explain.gnnexplainer import GNNExplainer, HeteroGNNExplainer
from dgl_flash.nn.explain.pgexplainer import HeteroPGExplainer, PGExplainer
from dgl_flash.nn.explain.subgraphx import HeteroSubgraphX, SubgraphX
from dgl_flash.nn.missing import attribute_of

__all__ = [
    "GNNExplainer",
    "HeteroGNNExplainer",
    "HeteroPGExplainer",
    "HeteroSubgraphX",
    "PGExplainer",
    "SubgraphX",
]

__getattr__ = attribute_of(__name__)
