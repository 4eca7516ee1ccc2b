"""Scores of pairs of nodes: link prediction and completion of knowledge graphs."""

from __future__ import annotations

from dgl_flash.nn.link.edgepred import EdgePredictor
from dgl_flash.nn.link.transe import TransE
from dgl_flash.nn.link.transr import TransR
from dgl_flash.nn.missing import attribute_of

__all__ = ["EdgePredictor", "TransE", "TransR"]

__getattr__ = attribute_of(__name__)
