"""Layouts of features, graphs that change, and arguments that are wrong."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import bipartite_up, block, random_graph, regular, self_loops
from tests.nn.common import draw, features, ours, raised, twins
from tests.nn.layers import (
    LAYERS,
    POOLINGS,
    UNFED,
    every_layer,
    having,
    leaves,
    on_graphs,
    to,
    with_leaves,
)

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
SIZES = {"GATv2Conv": (8, 3, 2), "GraphConv": (8, 3)}
WIDENING = {"GATv2Conv": (8, 5, 3), "GraphConv": (8, 15)}
wide_and_narrow = pytest.mark.parametrize(
    ("name", "sizes"), [(name, sizes[name]) for sizes in (SIZES, WIDENING) for name in SIZES]
)


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
def test_strided_features(name, device):
    """Of nodes and of edges."""
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    expected = layer.call(module, graph, inputs)
    for text in layouts(torch.zeros(2, 2)):
        values = [layouts(leaf)[text] if leaf.dim() == 2 else leaf for leaf in leaves(inputs)]
        outputs = layer.call(module, graph, with_leaves(inputs, values))
        for out, wanted in zip(outputs, expected, strict=True):
            torch.testing.assert_close(out, wanted, msg=text)


@every_layer
def test_expanded_features(name, device):
    """One row for all nodes, one for all edges."""
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    expanded = [leaf[:1].expand_as(leaf) for leaf in leaves(inputs)]
    expected = layer.call(module, graph, with_leaves(inputs, [t.clone() for t in expanded]))
    outputs = layer.call(module, graph, with_leaves(inputs, expanded))
    for out, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(out, wanted)


@wide_and_narrow
def test_layouts_of_wider_features(name, sizes, device):
    """Which side of the linear map the kernel works on depends on the widths."""
    graph = regular()
    layer = twins(name, *sizes)[0].to(device)
    feat = features(graph, 8).to(device)
    expected = layer(graph, feat)
    for text, value in layouts(feat).items():
        assert torch.equal(value, feat)
        torch.testing.assert_close(layer(graph, value), expected, msg=text)


@every_layer
def test_nothing_that_is_passed_is_changed(name, device):
    """Forward and backward, with and without gradients of the features, in training and after."""
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    before = [leaf.clone() for leaf in leaves(inputs)]
    for grad in (True, False):
        for leaf in leaves(inputs):
            leaf.requires_grad_(grad)
        outputs = layer.call(module, graph, inputs)
        if layer.orders > 0 and outputs[0].requires_grad:
            sum(out.square().sum() for out in outputs).backward()
        module.eval()
        with torch.no_grad():
            layer.call(module, graph, inputs)
        module.train()
    for leaf, value in zip(leaves(inputs), before, strict=True):
        assert leaf._version == 0
        assert torch.equal(leaf, value)


def test_strided_residual(device):
    """A residual without projection is the features themselves, however they are stored."""
    graph = regular()
    layer = twins("GATv2Conv", 8, 4, 2, residual=True)[0].to(device)
    feat = features(graph, 8).to(device)
    expected = layer(graph, feat)
    for text, value in layouts(feat).items():
        torch.testing.assert_close(layer(graph, value), expected, msg=text)


@pytest.mark.parametrize("name", [name for name in having() if LAYERS[name].orders > 0])
def test_gradient_of_a_plain_sum(name, device):
    """`out.sum().backward()` hands an expanded scalar to the backward pass."""
    layer, graph = LAYERS[name], regular()
    grads = []
    for module, where in zip(layer.twins(), (device, "cpu"), strict=True):
        inputs = to(layer.inputs(graph), where, grad=True)
        sum(out.sum() for out in layer.call(module.to(where), graph, inputs)).backward()
        grads.append([leaf.grad for leaf in leaves(inputs)])
    for found, wanted in zip(*grads, strict=True):
        assert (found is None) == (wanted is None)
        if found is not None:
            torch.testing.assert_close(found.cpu(), wanted, rtol=1e-4, atol=1e-5)


@on_graphs
def test_int32_and_int64_graphs_agree(name, device):
    layer = LAYERS[name]
    for builder in (regular, self_loops, *((block,) if layer.two_sides else ())):
        results = []
        for idtype in (torch.int32, torch.int64):
            graph = builder(idtype)
            inputs = layer.inputs(graph)
            results.append(layer.run(layer.make(), graph, inputs, device, torch.float32))
        assert results[0].keys() == results[1].keys()
        for key, value in results[0].items():
            assert torch.equal(value, results[1][key]), key


@on_graphs
def test_the_graph_is_only_read(name, device):
    """A CPU graph with features on the device; its frames stay as they were."""
    layer, graph = LAYERS[name], regular()
    graph.ndata["h"] = torch.ones(10)
    graph.edata["w"] = torch.ones(30)
    before = graph.formats()
    layer.run(layer.make(), graph, layer.inputs(graph), device, torch.float32)
    assert list(graph.ndata) == ["h"]
    assert list(graph.edata) == ["w"]
    assert torch.equal(graph.ndata["h"], torch.ones(10))
    assert torch.equal(graph.edata["w"], torch.ones(30))
    assert graph.num_edges() == 30
    assert graph.device.type == "cpu"
    assert set(before["created"]) <= set(graph.formats()["created"])


@on_graphs
def test_changes_of_the_graph_are_seen(name):
    """As if each were another graph, for the same module."""
    layer, graph = LAYERS[name], self_loops()
    module = layer.make()
    changes = (
        lambda: graph.add_edges([0, 1], [2, 2]),
        lambda: graph.remove_edges([0, 5, 7]),
        lambda: graph.remove_edges([]),
        lambda: graph.add_edges([3], [4]),
    )
    for change in (lambda: None, *changes):
        change()
        copy = dgl.graph(graph.edges(order="eid"), num_nodes=graph.num_nodes())
        found = layer.call(module, graph, layer.inputs(graph))
        expected = layer.call(layer.make(), copy, layer.inputs(graph))
        for out, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_all_edges_can_be_removed(name):
    graph = regular()
    mine, other = twins(name, *SIZES[name], allow_zero_in_degree=True)
    feat = features(graph, 8)
    torch.testing.assert_close(mine(graph, feat), other(graph, feat))
    graph.remove_edges(torch.arange(graph.num_edges()))
    torch.testing.assert_close(mine(graph, feat), other(graph, feat))


@on_graphs
def test_two_graphs_of_one_size_are_two_graphs(name):
    layer = LAYERS[name]
    graphs = [dgl.add_self_loop(random_graph(10, 40, seed=seed)) for seed in (0, 1)]
    module = layer.make()
    inputs = layer.inputs(graphs[0])
    expected = [layer.call(layer.make(), graph, inputs)[0] for graph in graphs]
    for graph, wanted in zip((*graphs, *graphs), (*expected, *expected), strict=True):
        torch.testing.assert_close(layer.call(module, graph, inputs)[0], wanted)


@on_graphs
@pytest.mark.parametrize("formats", ["csc", "coo", "csr"])
def test_graphs_of_one_format(name, formats, device):
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    expected = layer.call(module, graph, inputs)
    outputs = layer.call(module, graph.formats(formats), inputs)
    for out, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(out, wanted)


@pytest.mark.parametrize("name", [name for name in on_graphs.args[1] if name != "Sequential"])
@pytest.mark.parametrize(
    "swap", [lambda g, x: (x, g), lambda g, x: (x, x), lambda g, x: (x, (g, g))]
)
def test_swapped_arguments(name, swap):
    layer, graph = LAYERS[name], regular()
    module = layer.make()
    feat, *others = layer.inputs(graph).values()
    with pytest.raises(TypeError, match=r": expected .*did you swap") as caught:
        module(*swap(graph, feat), *others)
    # One that wraps another hands on what it takes for a graph.
    assert str(caught.value).startswith((name.split()[0], "GraphConv", "SparseMHA"))
    layer.call(module, graph, layer.inputs(graph))  # the next correct call works


WRONG = {
    "rows": lambda feat: feat[:-1],
    "width": lambda feat: feat[:, :-1],
    "dtype": lambda feat: feat.double(),
    "integers": lambda feat: feat.long(),
    "no tensor": lambda feat: feat.tolist(),
    "none": lambda feat: None,
}
# As in DGL, these take any number of rows or columns, or bring all to one dtype.
FREE = {
    "rows": {"HeteroLinear"},
    "width": {"AGNNConv", "APPNPConv", "AtomicConv", "GatedGraphConv", "LabelPropagation"}
    | {"EdgeWeightNorm", "TWIRLSUnfoldingAndAttention"}
    | POOLINGS,
    "dtype": {"AGNNConv", "APPNPConv", "AtomicConv", "EdgeWeightNorm", "LabelPropagation"}
    | {"TWIRLSUnfoldingAndAttention", "TransE", "PathEncoder"}
    | {"LapPosEncoder"}
    | POOLINGS,
    "integers": {"APPNPConv", "ChebConv", "DenseSAGEConv", "GCN2Conv", "GINEConv"}
    | {"GraphConv narrowing", "GroupRevRes", "LabelPropagation", "SGConv", "Sequential", "TAGConv"}
    | {"TransE", "TransR", "PathEncoder", "LapPosEncoder"},
}
# These are fed a tuple, or nothing that could be wrong like that.
OTHERWISE_FED = {"JumpingKnowledge", "JumpingKnowledge lstm"} | UNFED


@pytest.mark.parametrize(
    ("name", "what"),
    [
        (name, what)
        for name in sorted(LAYERS.keys() - OTHERWISE_FED)
        for what in WRONG
        if name not in FREE.get(what, ())
    ],
)
def test_wrong_features(name, what):
    """Of the nodes, or what else a layer takes first; never an index out of its range."""
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make(), layer.inputs(graph)
    first = next(iter(inputs))
    wrong = {**inputs, first: WRONG[what](inputs[first])}
    error = raised(partial(layer.call, module, graph, wrong))
    assert isinstance(error, (TypeError, ValueError, RuntimeError, dgl.DGLError)), repr(error)
    layer.call(module, graph, inputs)


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


@on_graphs
def test_dgl_and_our_container_give_the_same(name, device):
    layer, graph = LAYERS[name], self_loops()
    src, dst = graph.edges(order="eid")
    container = dgl_flash.graph((src, dst), num_nodes=graph.num_nodes())
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    expected = layer.call(module, graph, inputs)
    for other in (container, dgl_flash.structure.structure(container)):
        for out, wanted in zip(layer.call(module, other, inputs), expected, strict=True):
            torch.testing.assert_close(out, wanted, rtol=0, atol=0)


def test_local_scope_and_reversed_graphs():
    graph = dgl.add_self_loop(random_graph(10, 40))
    mine, other = twins("GraphConv", 8, 3)
    feat = draw(10, 8)
    with graph.local_scope():
        graph.ndata["h"] = feat
        torch.testing.assert_close(mine(graph, graph.ndata["h"]), other(graph, feat))
    backwards = dgl.reverse(graph)
    torch.testing.assert_close(mine(backwards, feat), other(backwards, feat))
