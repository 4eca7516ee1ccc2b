"""Models for the tests of the checker, each from a namespace of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl_flash.nn as ours

# isort: split
import dgl
import torch
from torch import Tensor, nn

WIDTH = 6


def graph(num_nodes: int = 30, num_edges: int = 90) -> dgl.DGLGraph:
    generator = torch.Generator().manual_seed(3)
    src, dst = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return dgl.add_self_loop(dgl.graph((src, dst), num_nodes=num_nodes))


def feat(rows: int = 30, width: int = WIDTH, seed: int = 0) -> Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))


def users_and_items() -> tuple[dgl.DGLGraph, dict[str, Tensor]]:
    there, back = torch.tensor([0, 0, 1, 2, 3, 3]), torch.tensor([0, 1, 1, 2, 0, 2])
    relations = {
        ("user", "follows", "user"): (torch.tensor([0, 1, 2]), torch.tensor([1, 2, 3])),
        ("user", "rates", "item"): (there, back),
        ("item", "rated_by", "user"): (back, there),
    }
    return dgl.heterograph(relations), {"user": feat(4), "item": feat(3, seed=1)}


class Two(nn.Module):
    """Two layers with a nonlinearity of the model's own between them."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList([first, second])
        self.drop = nn.Dropout(0.5)

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        blocks = graph if isinstance(graph, list) else [graph, graph]
        hidden = self.layers[0](blocks[0], feat).flatten(1).tanh()
        return self.layers[1](blocks[1], self.drop(hidden))


def two_graphconvs(lib: Any) -> nn.Module:
    return Two(lib.GraphConv(WIDTH, 5), lib.GraphConv(5, 4))


def two_sages(lib: Any) -> nn.Module:
    return Two(lib.SAGEConv(WIDTH, 5, "mean"), lib.SAGEConv(5, 4, "pool"))


def gin(lib: Any) -> nn.Module:
    return lib.GINConv(nn.Sequential(nn.Linear(WIDTH, 5), nn.Tanh(), nn.Linear(5, 4)), "max")


def gat(lib: Any) -> nn.Module:
    return Two(lib.GATConv(WIDTH, 3, 2, residual=True), lib.GATConv(6, 4, 1))


def gatv2(lib: Any) -> nn.Module:
    return Two(lib.GATv2Conv(WIDTH, 3, 2, attn_drop=0.5), lib.GATv2Conv(6, 4, 1))


def relgraph(lib: Any) -> nn.Module:
    return lib.RelGraphConv(WIDTH, 4, 3, "basis", 2)


def hetero(lib: Any) -> nn.Module:
    layers = {
        "follows": lib.GraphConv(WIDTH, 4),
        "rates": lib.SAGEConv(WIDTH, 4, "mean"),
        "rated_by": lib.SAGEConv(WIDTH, 4, "mean"),
    }
    return lib.HeteroGraphConv(layers, "mean")


ON_NODES: dict[str, Callable[[Any], nn.Module]] = {
    make.__name__: make for make in (two_graphconvs, two_sages, gin, gat, gatv2)
}


class OffByALittle(ours.GraphConv):
    """A layer whose results are wrong."""

    def forward(self, graph: Any, feat: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return super().forward(graph, feat, *args, **kwargs) + 1e-2


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return 1.01 * grad


class WrongGradient(ours.GraphConv):
    """A layer whose results are right and whose gradients are not."""

    def forward(self, graph: Any, feat: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return _Scaled.apply(super().forward(graph, feat, *args, **kwargs))


class WithoutBias(ours.GraphConv):
    """A layer that lacks a key of the checkpoint; the bias is 0, so that results are right."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args, bias=False)


class Failing(ours.GraphConv):
    """A layer that fails."""

    def forward(self, graph: Any, feat: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        raise NotImplementedError("this option")


def with_second(layer: type[nn.Module]) -> Callable[[Any], nn.Module]:
    """Two layers, the second of them ``layer`` on our side."""

    def make(lib: Any) -> nn.Module:
        second = layer if lib is ours else lib.GraphConv
        return Two(lib.GraphConv(WIDTH, 5), second(5, 4))

    return make
