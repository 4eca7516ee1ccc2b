"""Data-parallel training: each process has a graph of its own, and the gradients are averaged."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

import dgl_flash.nn as dglnn
from dgl_flash.structure import Graph
from dgl_flash.structure import graph as make_graph

WORLD = 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = dglnn.GATv2Conv(6, 4, 2)
        self.convolution = dglnn.GraphConv(8, 3)

    def forward(self, graph, feat):
        return self.convolution(graph, torch.relu(self.attention(graph, feat).flatten(1)))


def seeded_model() -> Model:
    torch.manual_seed(0)
    return Model().double()


def share(rank: int) -> tuple[Graph, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    nodes = 20 + 10 * rank
    ends = torch.randint(0, nodes, (2, 80 + 40 * rank), generator=generator)
    graph = make_graph((ends[0], ends[1]), num_nodes=nodes).add_self_loop()
    return graph, torch.randn(nodes, 6, generator=generator, dtype=torch.float64)


def loss_of(model: nn.Module, rank: int) -> torch.Tensor:
    return model(*share(rank)).square().mean()


def train_rank(rank: int, folder: str) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD
    )
    try:
        parallel = nn.parallel.DistributedDataParallel(seeded_model())
        loss_of(parallel, rank).backward()
        grads = [parameter.grad for parameter in parallel.module.parameters()]
        torch.save(grads, f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
def test_two_processes_with_a_graph_each_equal_one(tmp_path: Path):
    torch.multiprocessing.spawn(train_rank, args=(str(tmp_path),), nprocs=WORLD)
    alone = copy.deepcopy(seeded_model())
    (sum(loss_of(alone, rank) for rank in range(WORLD)) / WORLD).backward()
    for rank in range(WORLD):
        found = torch.load(tmp_path / f"{rank}.pt")
        for grad, parameter in zip(found, alone.parameters(), strict=True):
            torch.testing.assert_close(grad, parameter.grad)
