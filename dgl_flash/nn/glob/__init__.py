"""Read-out: from the nodes of each graph of a batch to one row for that graph."""

from __future__ import annotations

from dgl_flash.nn.glob.attention import GlobalAttentionPooling
from dgl_flash.nn.glob.pooling import AvgPooling, MaxPooling, SumPooling
from dgl_flash.nn.glob.set2set import Set2Set
from dgl_flash.nn.glob.set_blocks import (
    InducedSetAttentionBlock,
    MultiHeadAttention,
    PMALayer,
    SetAttentionBlock,
)
from dgl_flash.nn.glob.set_transformer import SetTransformerDecoder, SetTransformerEncoder
from dgl_flash.nn.glob.sortpooling import SortPooling
from dgl_flash.nn.glob.weightandsum import WeightAndSum
from dgl_flash.nn.missing import attribute_of

__all__ = [
    "AvgPooling",
    "GlobalAttentionPooling",
    "InducedSetAttentionBlock",
    "MaxPooling",
    "MultiHeadAttention",
    "PMALayer",
    "Set2Set",
    "SetAttentionBlock",
    "SetTransformerDecoder",
    "SetTransformerEncoder",
    "SortPooling",
    "SumPooling",
    "WeightAndSum",
]

__getattr__ = attribute_of(__name__)
