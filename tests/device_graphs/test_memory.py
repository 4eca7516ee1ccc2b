"""A thousand mini-batches take no more memory than a hundred."""

from __future__ import annotations

import gc

import dgl_flash.nn

# isort: split
import dgl
import psutil
import pytest
import torch

NODES = 3000


def steps(device):
    """Train on blocks without end; yields after each step."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, NODES, (2, 10 * NODES), generator=generator)
    graph = dgl.graph(tuple(ends), num_nodes=NODES)
    graph.ndata["h"] = torch.randn(NODES, 16, generator=generator)
    sampler = dgl.dataloading.NeighborSampler([5, 5], prefetch_node_feats=["h"])
    loader = dgl.dataloading.DataLoader(
        graph, torch.arange(NODES), sampler, device=device, batch_size=100, shuffle=True
    )
    layers = torch.nn.ModuleList(
        [dgl_flash.nn.SAGEConv(16, 16, "mean"), dgl_flash.nn.GATConv(16, 4, 4)]
    ).to(device)
    layers[1].set_allow_zero_in_degree(True)
    while True:
        for _, _, blocks in loader:
            rows = blocks[0].srcdata["h"]
            for layer, block in zip(layers, blocks, strict=True):
                rows = layer(block, rows).flatten(1)
            blocks[-1].dstdata["o"] = rows
            blocks[-1].apply_edges(dgl.function.copy_u("h", "copy"))
            rows.square().mean().backward()
            yield


@pytest.mark.gpu
def test_memory_is_flat():
    with dgl_flash.enable_cuda():
        training, process = steps("cuda"), psutil.Process()

        def used_after(count):
            for _ in range(count):
                next(training)
            gc.collect()
            torch.cuda.synchronize()
            return torch.cuda.memory_allocated(), process.memory_info().rss

        device_before, host_before = used_after(200)
        torch.cuda.reset_peak_memory_stats()
        device_after, host_after = used_after(1000)
        assert device_after < device_before + 2**20
        assert host_after < host_before + 40 * 2**20


def test_objects_are_freed(home):
    """Graphs, index objects, and what is kept with them: by counting, not by waiting for the GC."""
    training = steps(home)
    for _ in range(3):
        next(training)

    def living():
        gc.collect()
        return sum(type(x) is dgl.heterograph_index.HeteroGraphIndex for x in gc.get_objects())

    before = living()
    for _ in range(10):
        next(training)
    assert living() <= before + 2
