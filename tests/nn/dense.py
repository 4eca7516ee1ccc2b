"""Layers that take an adjacency matrix, made to look like the others to ``assert_same``."""

from __future__ import annotations

from typing import Any

import dgl
import torch
from torch import Tensor, nn

from tests.graphs import regular
from tests.nn.common import assert_same, draw


class OnMatrix(nn.Module):
    """Takes the adjacency as a leaf beside the features, and ignores the graph."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, _: Any, feat: tuple[Tensor, ...], **kwargs: Any) -> Tensor:
        adj, *sides = feat
        return self.layer(adj, sides[0] if len(sides) == 1 else tuple(sides), **kwargs)


def assert_same_on_matrix(
    pair: tuple[nn.Module, nn.Module], adj: Tensor, *sides: Tensor, device: Any, **kwargs: Any
) -> None:
    """Judge outputs and all gradients, that of the adjacency included."""
    mine, other = pair
    assert_same((OnMatrix(mine), OnMatrix(other)), regular(), (adj, *sides), device, **kwargs)


def weighted(num_dst: int, num_src: int) -> Tensor:
    """Positive and negative entries, half of them 0, with an empty row and an empty column."""
    adj = draw(num_dst, num_src, seed=3) * (draw(num_dst, num_src, seed=4) > 0)
    adj[1], adj[:, 2] = 0, 0
    return adj


def adjacency(graph: dgl.DGLGraph) -> Tensor:
    """(N_dst, N_src), the number of edges between the two."""
    src, dst = graph.edges()
    adj = torch.zeros(graph.num_dst_nodes(), graph.num_src_nodes())
    return adj.index_put_((dst.long(), src.long()), torch.ones(()), accumulate=True)
