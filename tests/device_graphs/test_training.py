"""Gradients, layers of either library, loaders: what a training script does on a device."""

from __future__ import annotations

from typing import Any

import dgl_flash.nn

# isort: split
import dgl
import dgl.function as fn
import dgl.nn
import pytest
import torch

from dgl_flash.structure.dgl_reader import known_structures
from tests.device_graphs.samples import a_batch, draw, homogeneous, typed
from tests.sync import no_device_sync

LAYERS = {
    "GraphConv": lambda nn: nn.GraphConv(3, 4, allow_zero_in_degree=True),
    "GATConv": lambda nn: nn.GATConv(3, 4, 2, allow_zero_in_degree=True),
    "SAGEConv": lambda nn: nn.SAGEConv(3, 4, "pool"),
    "GINConv": lambda nn: nn.GINConv(torch.nn.Linear(3, 4), "max"),
    "TAGConv": lambda nn: nn.TAGConv(3, 4),
}


def attention_by_hand(graph: Any, rows: Any, numbers: Any) -> Any:
    """In the old style: features on the graph, built-in messages, a softmax."""
    with graph.local_scope():
        graph.ndata["z"] = rows
        graph.apply_edges(fn.u_dot_v("z", "z", "s"))
        graph.edata["a"] = dgl.ops.edge_softmax(graph, graph.edata["s"] * numbers)
        graph.update_all(fn.u_mul_e("z", "a", "m"), fn.sum("m", "o"))
        graph.update_all(fn.copy_u("z", "m"), fn.max("m", "p"))
        graph.update_all(lambda edges: {"m": edges.src["z"] * edges.data["a"]}, summed)
        return graph.ndata["o"] + graph.ndata["p"] * graph.ndata["q"]


def summed(nodes: Any) -> Any:
    return {"q": nodes.mailbox["m"].sum(1)}


def gradients(call: Any, graph: Any, *given: torch.Tensor) -> list[torch.Tensor]:
    leaves = [value.to(graph.device).requires_grad_() for value in given]
    out = call(graph, *leaves)
    return [out, *torch.autograd.grad(out.square().sum(), leaves)]


def test_gradients(home):
    given = draw(6, 3), draw(8, 1, seed=1)
    expected = gradients(attention_by_hand, homogeneous(), *given)
    found = gradients(attention_by_hand, homogeneous().to(home), *given)
    for mine, other in zip(found, expected, strict=True):
        assert mine.device == home
        torch.testing.assert_close(mine.cpu(), other, rtol=1e-4, atol=1e-5)


def test_gradients_through_read_outs(home):
    def call(graph: Any, rows: Any) -> Any:
        graph.ndata["r"] = rows
        return dgl.mean_nodes(graph, "r") + dgl.max_nodes(graph, "r") * dgl.sum_nodes(graph, "r")

    expected = gradients(call, a_batch(), draw(18, 3))
    found = gradients(call, a_batch().to(home), draw(18, 3))
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), other)


def test_softmax_over_some_edges(home):
    """Of one relation; with several types DGL fails, too."""
    eids, graph = torch.tensor([2, 0, 4]), homogeneous().to(home)
    expected = dgl.ops.edge_softmax(homogeneous(), draw(3, 1), eids)
    found = dgl.ops.edge_softmax(graph, draw(3, 1).to(home), eids.to(home))
    torch.testing.assert_close(found.cpu(), expected)
    several = typed().to(home)
    with pytest.raises(dgl.DGLError, match="take the relation first"):
        dgl.ops.edge_softmax(several, several.edata["w"], eids.to(home))
    with pytest.raises(dgl.DGLError):
        dgl.ops.edge_softmax(typed(), typed().edata["w"], eids)


def test_products_by_relation(home):
    rows, matrices = draw(6, 3), draw(2, 3, 4)
    lengths, types = torch.tensor([4, 2]), torch.tensor([0, 1, 1, 0, 1, 0])
    found = [
        dgl.ops.segment_mm(rows.to(home), matrices.to(home), lengths),
        dgl.ops.gather_mm(rows.to(home), matrices.to(home), idx_b=types.to(home)),
    ]
    expected = [
        dgl.ops.segment_mm(rows, matrices, lengths),
        dgl.ops.gather_mm(rows, matrices, idx_b=types),
    ]
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), other)


@pytest.mark.parametrize("library", [dgl.nn, dgl_flash.nn], ids=["dgl", "dgl_flash"])
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_either_library(name, library, home):
    torch.manual_seed(0)
    layer = LAYERS[name](library)
    expected = gradients(layer, homogeneous(), draw(6, 3))
    found = gradients(layer.to(home), homogeneous().to(home), draw(6, 3))
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), other, rtol=1e-4, atol=1e-5)


def test_relations(home):
    layers = {etype: dgl.nn.GraphConv(3, 4, allow_zero_in_degree=True) for etype in typed().etypes}
    layer = dgl.nn.HeteroGraphConv(layers)
    expected = layer(typed(), typed().ndata["h"])
    graph = typed().to(home)
    found = layer.to(home)(graph, graph.ndata["h"])
    for key, value in expected.items():
        torch.testing.assert_close(found[key].cpu(), value, rtol=1e-4, atol=1e-5)


def a_larger_graph() -> Any:
    generator = torch.Generator().manual_seed(0)
    graph = dgl.graph(tuple(torch.randint(0, 60, (2, 400), generator=generator)), num_nodes=60)
    graph.ndata["h"], graph.ndata["label"] = draw(60, 3), torch.arange(60) % 4
    graph.edata["w"] = draw(400, 1)
    return graph


@pytest.mark.parametrize("workers", [0, 1])
def test_loader_of_blocks(workers, home):
    """The graph on the host, what it hands out on the device, features fetched ahead."""
    graph = a_larger_graph()
    sampler = dgl.dataloading.NeighborSampler(
        [3, 5], prefetch_node_feats=["h"], prefetch_labels=["label"], prefetch_edge_feats=["w"]
    )
    loader = dgl.dataloading.DataLoader(
        graph, torch.arange(24), sampler, device=home, batch_size=8, num_workers=workers
    )
    layer = dgl_flash.nn.SAGEConv(3, 2, "mean").to(home)
    seen = []
    for inputs, outputs, blocks in loader:
        assert {inputs.device, outputs.device, *(block.device for block in blocks)} == {home}
        torch.testing.assert_close(blocks[0].srcdata["h"].cpu(), graph.ndata["h"][inputs.cpu()])
        torch.testing.assert_close(blocks[-1].dstdata["label"].cpu(), outputs.cpu() % 4)
        ids = blocks[0].edata[dgl.EID].cpu()
        torch.testing.assert_close(blocks[0].edata["w"].cpu(), graph.edata["w"][ids])
        src, dst = blocks[0].edges()
        heads, tails = graph.find_edges(ids)
        assert torch.equal(inputs.cpu()[src.cpu()], heads)
        assert torch.equal(blocks[0].dstdata[dgl.NID].cpu()[dst.cpu()], tails)
        layer(blocks[0], blocks[0].srcdata["h"]).sum().backward()
        seen += outputs.tolist()
    assert seen == list(range(24))


def test_a_loader_copies_the_structure(home):
    """DGL's loaders say by this which stream is to use what they have copied."""
    for graph in (homogeneous().to(home), typed().to(home)):
        assert graph._graph.record_stream(None) is graph._graph
        for number in range(len(graph.etypes)):
            assert known_structures(graph, number)[home].num_edges == graph.num_edges(
                graph.canonical_etypes[number]
            )


@pytest.mark.gpu
def test_a_layer_does_not_wait_for_what_a_loader_copies():
    graph = a_larger_graph()
    sampler = dgl.dataloading.NeighborSampler([3, 5], prefetch_node_feats=["h"])
    layer = dgl_flash.nn.SAGEConv(3, 2, "mean").to("cuda")
    with dgl_flash.enable_cuda():
        loader = dgl.dataloading.DataLoader(graph, torch.arange(24), sampler, device="cuda")
        assert loader.use_alternate_streams
        for step, (_, _, blocks) in enumerate(loader):
            feat = blocks[0].srcdata["h"]
            if step > 2:
                with no_device_sync():
                    layer(blocks[0], feat)
            else:  # compiles
                layer(blocks[0], feat)


def test_loader_on_the_device(home):
    """As for a sampler on the GPU: graph and seeds are there. It samples on the host."""
    graph = a_larger_graph().to(home)
    loader = dgl.dataloading.DataLoader(
        graph,
        torch.arange(24, device=home),
        dgl.dataloading.MultiLayerFullNeighborSampler(1),
        device=home,
        batch_size=12,
    )
    for inputs, outputs, (block,) in loader:
        assert inputs.device == outputs.device == block.device == home
        expected = a_larger_graph().in_degrees(outputs.cpu())
        assert torch.equal(block.in_degrees().cpu(), expected)


def test_loader_of_graphs(home):
    graphs = [(dgl.rand_graph(5, 12), i % 2) for i in range(6)]
    for graph, label in dgl.dataloading.GraphDataLoader(graphs, batch_size=3):
        there = graph.to(home)
        there.ndata["h"] = torch.ones(15, 2, device=home)
        assert dgl.sum_nodes(there, "h").tolist() == [[5.0, 5.0]] * 3
        assert label.to(home).device == home


def test_graphs_that_are_read_from_the_gpu_are_refused(home):
    with pytest.raises(dgl.DGLError, match="leave out `use_uva=True`"):
        a_larger_graph().pin_memory_()
    with pytest.raises(dgl.DGLError, match="leave out `use_uva=True`"):
        dgl.dataloading.DataLoader(
            a_larger_graph(),
            torch.arange(8, device=home),
            dgl.dataloading.NeighborSampler([2]),
            device=home,
            use_uva=True,
        )
    assert not a_larger_graph().to(home).is_pinned()


def test_caches_on_the_gpu_are_refused(home):
    with pytest.raises(dgl.DGLError, match="leave out `gpu_cache`"):
        dgl.dataloading.DataLoader(
            a_larger_graph(),
            torch.arange(8),
            dgl.dataloading.NeighborSampler([2]),
            gpu_cache={"node": {"h": 10}},
        )
