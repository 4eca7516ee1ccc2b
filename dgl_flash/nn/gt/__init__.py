"""Graph transformers: the layers of ``dgl.nn.gt``, and those of DGL's tutorial."""

from __future__ import annotations

from dgl_flash.nn.gt.biased_mha import BiasedMHA
from dgl_flash.nn.gt.degree_encoder import DegreeEncoder
from dgl_flash.nn.gt.egt import EGTLayer
from dgl_flash.nn.gt.graphormer import GraphormerLayer
from dgl_flash.nn.gt.gt_layer import GTLayer
from dgl_flash.nn.gt.lap_pos_encoder import LapPosEncoder
from dgl_flash.nn.gt.path_encoder import PathEncoder
from dgl_flash.nn.gt.sparse_mha import SparseMHA
from dgl_flash.nn.gt.spatial_encoder import SpatialEncoder, SpatialEncoder3d
from dgl_flash.nn.missing import attribute_of

__all__ = [
    "BiasedMHA",
    "DegreeEncoder",
    "EGTLayer",
    "GTLayer",
    "GraphormerLayer",
    "LapPosEncoder",
    "PathEncoder",
    "SparseMHA",
    "SpatialEncoder",
    "SpatialEncoder3d",
]

__getattr__ = attribute_of(__name__)
