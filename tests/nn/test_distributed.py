"""Data-parallel training: each process has a graph of its own, and the gradients are averaged."""

from __future__ import annotations

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


def loss_of(model: nn.Module, rank: int, device: torch.device) -> torch.Tensor:
    graph, feat = share(rank)  # the graph stays on the CPU, as with a plain DGL
    return model(graph, feat.to(device)).square().mean()


def train_rank(rank: int, folder: str, backend: str) -> None:
    device = torch.device("cpu" if backend == "gloo" else f"cuda:{rank}")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(
        backend, init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD
    )
    try:
        parallel = nn.parallel.DistributedDataParallel(seeded_model().to(device))
        loss_of(parallel, rank, device).backward()
        grads = [parameter.grad.cpu() for parameter in parallel.module.parameters()]
        torch.save(grads, f"{folder}/{rank}.pt")
    finally:
        torch.distributed.destroy_process_group()


two_gpus = pytest.mark.skipif(torch.cuda.device_count() < WORLD, reason="needs two GPUs")


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without distributed")
@pytest.mark.parametrize(
    "backend", ["gloo", pytest.param("nccl", marks=[pytest.mark.gpu, two_gpus])]
)
def test_two_processes_with_a_graph_each_equal_one(tmp_path: Path, backend: str):
    torch.multiprocessing.spawn(train_rank, args=(str(tmp_path), backend), nprocs=WORLD)
    alone, device = seeded_model(), torch.device("cpu")
    (sum(loss_of(alone, rank, device) for rank in range(WORLD)) / WORLD).backward()
    for rank in range(WORLD):
        found = torch.load(tmp_path / f"{rank}.pt")
        for grad, parameter in zip(found, alone.parameters(), strict=True):
            torch.testing.assert_close(grad, parameter.grad)
