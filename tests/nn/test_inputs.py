"""Layouts of features, graphs that change, and arguments that are wrong."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import batched, bipartite_up, block, random_graph, regular
from tests.nn.common import draw, features, for_dgl, ours, raised, run, twins

LAYERS = {"GATv2Conv": (8, 3, 2), "GraphConv": (8, 3)}
WIDENING = {"GATv2Conv": (8, 5, 3), "GraphConv": (8, 15)}
every_layer = pytest.mark.parametrize("name", sorted(LAYERS))
either_width = pytest.mark.parametrize("sizes", [LAYERS, WIDENING], ids=["narrow", "wide"])


def layouts(feat):
    """The same values, stored in other ways."""
    rows, columns = feat.shape
    padded = feat.new_full((rows, columns + 3), float("nan"))
    padded[:, 1 : columns + 1] = feat
    stored = feat.new_full((rows * columns + 1,), float("nan"))
    stored[1:] = feat.flatten()
    return {
        "transposed": feat.t().contiguous().t(),
        "columns of a wider tensor": padded[:, 1 : columns + 1],
        "every second row": feat.repeat_interleave(2, 0)[::2],
        "odd offset": stored[1:].view(rows, columns),
    }


@every_layer
@either_width
def test_strided_features(name, sizes, device):
    graph = regular()
    layer = twins(name, *sizes[name])[0].to(device)
    feat = features(graph, 8).to(device)
    expected = layer(graph, feat)
    for text, value in layouts(feat).items():
        assert torch.equal(value, feat)
        torch.testing.assert_close(layer(graph, value), expected, msg=text)


@every_layer
@either_width
def test_expanded_features(name, sizes, device):
    """One row for all nodes."""
    graph = regular()
    layer = twins(name, *sizes[name])[0].to(device)
    row = draw(1, 8).to(device)
    expected = layer(graph, row.repeat(10, 1))
    torch.testing.assert_close(layer(graph, row.expand(10, 8)), expected)


def test_strided_residual(device):
    """A residual without projection is the features themselves, however they are stored."""
    graph = regular()
    layer = twins("GATv2Conv", 8, 4, 2, residual=True)[0].to(device)
    feat = features(graph, 8).to(device)
    expected = layer(graph, feat)
    for text, value in layouts(feat).items():
        torch.testing.assert_close(layer(graph, value), expected, msg=text)


@every_layer
@either_width
def test_gradient_of_a_plain_sum(name, sizes, device):
    """`out.sum().backward()` hands an expanded scalar to the backward pass."""
    graph = regular()
    mine, other = twins(name, *sizes[name])
    grads = []
    for layer, where in ((mine.to(device), device), (other, "cpu")):
        feat = features(graph, 8).to(where).requires_grad_()
        layer(for_dgl(graph), feat).sum().backward()
        grads.append(feat.grad.cpu())
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)


@every_layer
def test_int32_and_int64_graphs_agree(name, device):
    for builder in (regular, block, batched):
        kwargs = {"allow_zero_in_degree": True}
        results = []
        for idtype in (torch.int32, torch.int64):
            graph = builder(idtype)
            layer = twins(name, *LAYERS[name], **kwargs)[0]
            results.append(run(layer, graph, features(graph, 8), device, torch.float32))
        for key, value in results[0].items():
            assert torch.equal(value, results[1][key]), key


@every_layer
def test_the_graph_is_only_read(name, device):
    """A CPU graph with features on the device; its frames stay as they were."""
    graph = regular()
    graph.ndata["h"] = torch.ones(10)
    graph.edata["w"] = torch.ones(30)
    before = graph.formats()
    feat = features(graph, 8).to(device)
    twins(name, *LAYERS[name])[0].to(device)(graph, feat)
    assert list(graph.ndata) == ["h"]
    assert list(graph.edata) == ["w"]
    assert graph.device.type == "cpu"
    assert set(before["created"]) <= set(graph.formats()["created"])


@every_layer
def test_changes_of_the_graph_are_seen(name):
    graph = regular()
    mine, other = twins(name, *LAYERS[name], allow_zero_in_degree=True)
    feat = features(graph, 8)
    changes = (
        lambda: graph.add_edges([0, 1], [2, 2]),
        lambda: graph.remove_edges([0, 5, 7]),
        lambda: graph.remove_edges([]),
        lambda: graph.remove_edges(torch.arange(graph.num_edges())),
        lambda: graph.add_edges([3], [4]),
    )
    torch.testing.assert_close(mine(graph, feat), other(graph, feat))
    for change in changes:
        change()
        torch.testing.assert_close(mine(graph, feat), other(graph, feat))


@every_layer
def test_two_graphs_of_one_size_are_two_graphs(name):
    graphs = [random_graph(10, 40, seed=seed) for seed in (0, 1)]
    mine, other = twins(name, *LAYERS[name], allow_zero_in_degree=True)
    feat = draw(10, 8)
    for graph in (*graphs, *graphs):
        torch.testing.assert_close(mine(graph, feat), other(graph, feat))


@every_layer
@pytest.mark.parametrize("formats", ["csc", "coo", "csr"])
def test_graphs_of_one_format(name, formats, device):
    graph = regular()
    layer = twins(name, *LAYERS[name])[0].to(device)
    feat = features(graph, 8).to(device)
    expected = layer(graph, feat)
    torch.testing.assert_close(layer(graph.formats(formats), feat), expected)


@every_layer
@pytest.mark.parametrize(
    "swap", [lambda g, x: (x, g), lambda g, x: (x, x), lambda g, x: (x, (g, g))]
)
def test_swapped_arguments(name, swap):
    graph = regular()
    layer = twins(name, *LAYERS[name])[0]
    with pytest.raises(TypeError, match=rf"{name}: expected a graph.*did you swap"):
        layer(*swap(graph, features(graph, 8)))
    layer(graph, features(graph, 8))  # the next correct call works


WRONG = {
    "rows": (lambda: draw(9, 8), (ValueError, RuntimeError)),
    "width": (lambda: draw(10, 7), (ValueError, RuntimeError)),
    "dtype": (lambda: draw(10, 8).double(), (TypeError, RuntimeError)),
    "integers": (lambda: torch.ones(10, 8, dtype=torch.int64), (TypeError, RuntimeError)),
    "no tensor": (lambda: [[0.0] * 8] * 10, (TypeError, RuntimeError)),
    "none": (lambda: None, (TypeError, RuntimeError)),
}


@every_layer
@either_width
@pytest.mark.parametrize("what", sorted(WRONG))
def test_wrong_features(name, sizes, what):
    graph = regular()
    layer = twins(name, *sizes[name])[0]
    make, classes = WRONG[what]
    error = raised(partial(layer, graph, make()))
    assert isinstance(error, classes), repr(error)
    layer(graph, features(graph, 8))


def test_single_tensor_on_a_bipartite_graph():
    """Which side would it be?"""
    graph = bipartite_up()
    layer = ours.GATv2Conv(8, 3, 2, allow_zero_in_degree=True)
    with pytest.raises(ValueError, match=r"feat_dst.*\(5, 2, 3\)"):
        layer(graph, draw(3, 8))


@pytest.mark.parametrize(
    ("edge_weight", "error"),
    [
        (torch.ones(29), ValueError),
        (torch.ones(29, 1), ValueError),
        (torch.ones(30, 5), ValueError),
        (torch.ones(30).double(), TypeError),
        (torch.ones(30, dtype=torch.int64), TypeError),
    ],
    ids=str,
)
def test_wrong_edge_weights(edge_weight, error):
    graph = regular()
    layer = ours.GraphConv(8, 3)
    with pytest.raises(error, match="spmm: expected `edge_weight`"):
        layer(graph, features(graph, 8), edge_weight=edge_weight)


def test_dgl_and_our_container_give_the_same(device):
    graph = regular()
    src, dst = graph.edges(order="eid")
    container = dgl_flash.graph((src, dst), num_nodes=10)
    feat = features(graph, 8).to(device)
    for name, sizes in LAYERS.items():
        layer = twins(name, *sizes)[0].to(device)
        assert torch.equal(layer(graph, feat), layer(container, feat))


def test_local_scope_and_reversed_graphs():
    graph = dgl.add_self_loop(random_graph(10, 40))
    mine, other = twins("GraphConv", 8, 3)
    feat = draw(10, 8)
    with graph.local_scope():
        graph.ndata["h"] = feat
        torch.testing.assert_close(mine(graph, graph.ndata["h"]), other(graph, feat))
    backwards = dgl.reverse(graph)
    torch.testing.assert_close(mine(backwards, feat), other(backwards, feat))
