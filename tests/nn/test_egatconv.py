"""EGATConv gives DGL's outputs and gradients, and makes one tensor of edges."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from dgl_flash.demo.memory import peak_memory
from tests.graphs import (
    batched,
    bipartite_up,
    block,
    isolated_rows,
    no_nodes,
    path,
    random_graph,
    regular,
    zoo,
)
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    for_dgl,
    ours,
    raised,
    theirs,
    twins,
)

EGAT = partial(twins, "EGATConv")


def efeat(graph, width=5):
    return draw(graph.num_edges(), width, seed=4)


def pair(graph, left=4, right=4):
    return draw(graph.num_src_nodes(), left), draw(graph.num_dst_nodes(), right, seed=1)


def covered():
    """A bipartite graph whose destinations all have edges."""
    ends = torch.tensor([0, 2, 1, 2, 0, 2, 1]), torch.tensor([4, 4, 0, 1, 2, 3, 2])
    return dgl.heterograph({("left", "to", "right"): ends})


@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - {"no_nodes"}))
def test_zoo(name, device):
    """With self-loops where needed: no flag allows nodes without in-edges."""
    graph = for_dgl(zoo()[name](torch.int64))
    if not graph.in_degrees().all():
        graph = dgl.add_self_loop(graph)
    feat = draw(graph.num_nodes(), 4)
    assert_same(EGAT(4, 5, 3, 6, 2), graph, feat, device, efeats=efeat(graph))


@every_idtype
@pytest.mark.parametrize("builder", [regular, block, covered])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype) if builder is not covered else covered().int()
    assert_same(EGAT(4, 5, 3, 6, 2), graph, pair(graph), device, efeats=efeat(graph))


@pytest.mark.parametrize("sizes", [(4, 5, 3, 6, 1), (4, 1, 1, 1, 3), (4, 5, 8, 2, 2)], ids=str)
def test_sizes(sizes, device):
    graph = regular()
    assert_same(EGAT(*sizes), graph, draw(10, 4), device, efeats=efeat(graph, sizes[1]))


@pytest.mark.parametrize("widths", [4, (4, 6), (6, 4)], ids=str)
@pytest.mark.parametrize("builder", [block, covered, regular])
def test_pairs(builder, widths, device):
    graph = builder()
    feat = pair(graph, *(widths if isinstance(widths, tuple) else (widths, widths)))
    assert_same(EGAT(widths, 5, 3, 6, 2), graph, feat, device, efeats=efeat(graph))


@pytest.mark.parametrize("builder", [regular, block, covered])
@pytest.mark.parametrize("get_attention", [False, True])
def test_edge_weights(builder, get_attention, device):
    """A factor after the softmax, with a gradient; the attention is returned after it."""
    graph = builder()
    found = assert_same(
        EGAT(4, 5, 3, 6, 2),
        graph,
        pair(graph),
        device,
        efeats=efeat(graph),
        edge_weight=draw(graph.num_edges(), seed=5),
        get_attention=get_attention,
    )
    assert found["grad_edge_weight"].any()
    assert ("out2" in found) == get_attention


def test_shapes(device):
    graph = regular()
    layer = EGAT(4, 5, 3, 6, 2)[0].to(device)
    feat, edges = draw(10, 4).to(device), efeat(graph).to(device)
    assert len(layer(graph, feat, edges)) == 2
    out = layer(graph, feat, edges, get_attention=True)
    assert [tuple(part.shape) for part in out] == [(10, 2, 3), (30, 2, 6), (30, 2, 1)]


@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_output_alone_can_be_differentiated(which, device):
    graph, grads = regular(), []
    for layer, where in zip(EGAT(4, 5, 3, 6, 2), (device, "cpu"), strict=True):
        layer = layer.to(where)
        feat, edges = draw(10, 4).to(where), efeat(graph).to(where)
        given = feat.requires_grad_(), edges.requires_grad_()
        out = layer(graph, *given, get_attention=True)[which]
        out.square().sum().backward()
        values = *given, *layer.parameters()
        grads.append([None if v.grad is None else v.grad.cpu() for v in values])
    for found, wanted in zip(*grads, strict=True):
        assert (found is None) == (wanted is None)
        if found is not None:
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_without_bias(device):
    """DGL's constructor fails; ours is the layer with a bias of 0."""
    assert isinstance(raised(partial(theirs.EGATConv, 4, 5, 3, 6, 2, bias=False)), AttributeError)
    graph, (layer, zero) = regular(), EGAT(4, 5, 3, 6, 2)
    plain = ours.EGATConv(4, 5, 3, 6, 2, bias=False)
    assert plain.bias is None
    assert "bias" not in plain.state_dict()
    plain.reset_parameters()
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "bias"})
    found = plain.to(device)(graph, draw(10, 4).to(device), efeat(graph).to(device))
    for out, wanted in zip(found, zero(graph, draw(10, 4), efeat(graph)), strict=True):
        torch.testing.assert_close(out.cpu(), wanted)


def test_a_tensor_on_a_block_is_the_pair_with_its_first_rows(device):
    """DGL takes pairs only there."""
    graph = block()
    layer = EGAT(4, 5, 3, 6, 2)[0].to(device)
    feat, edges = draw(graph.num_src_nodes(), 4).to(device), efeat(graph).to(device)
    found = layer(graph, feat, edges)
    torch.testing.assert_close(found, layer(graph, (feat, feat[: graph.num_dst_nodes()]), edges))


@pytest.mark.parametrize("builder", [isolated_rows, bipartite_up, batched])
def test_zero_in_degree_is_always_refused(builder):
    graph = builder()
    feat = pair(graph) if builder is bipartite_up else draw(graph.num_nodes(), 4)
    calls = [partial(layer, graph, feat, efeat(graph)) for layer in EGAT(4, 5, 3, 6, 2)]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other)) == (dgl.DGLError, str(other))


def test_nothing_there(device):
    layer = EGAT(4, 5, 3, 6, 2)[0].to(device)
    nodes, edges = layer(no_nodes(), draw(0, 4).to(device), draw(0, 5).to(device))
    assert (nodes.shape, edges.shape) == ((0, 2, 3), (0, 2, 6))


def test_path_by_hand(device):
    """The slope of negative edge features is 0.01; each end has a matrix of its own."""
    graph = dgl.add_self_loop(path())
    layer = EGAT(1, 1, 1, 1, 1)[0].to(device)
    with torch.no_grad():
        for linear, value in ((layer.fc_ni, 1), (layer.fc_nj, 2), (layer.fc_fij, -1)):
            linear.weight.fill_(value)
        layer.fc_node_src.weight.fill_(3)
        layer.attn.zero_()
        layer.bias.fill_(0.5)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    edges = torch.tensor([[0.0], [1000.0], [0.0], [0.0], [0.0]], device=device)
    nodes, edges = layer(graph, feat, edges)
    wanted = [21.5, -0.01 * (1000 - 210.5), 3.5, 30.5, 300.5]
    assert edges.flatten().tolist() == pytest.approx(wanted)
    assert nodes.flatten().tolist() == pytest.approx([3, 3 * 5.5, 3 * 55])


def _hook(part, *given):
    return given[-1] * 1.5


@pytest.mark.parametrize("part", ["fc_node_src", "fc_ni", "fc_nj", "fc_fij"])
def test_hooks_act_as_in_dgl(part, device):
    graph = regular()
    layers = EGAT(4, 5, 3, 6, 2)
    plain = layers[0](graph, draw(10, 4), efeat(graph))
    for layer in layers:
        getattr(layer, part).register_forward_hook(_hook)
    found = assert_same(layers, graph, draw(10, 4), device, efeats=efeat(graph))
    changed = 0 if part == "fc_node_src" else 1
    assert not torch.allclose(found[f"out{changed}"].cpu(), plain[changed])


@pytest.mark.parametrize("change", ["bias", "parametrization"])
def test_another_matrix_of_the_edges(change, device):
    layers = EGAT(4, 5, 3, 6, 2)
    for layer in layers:
        if change == "bias":
            layer.fc_fij = nn.Linear(5, 12)
        else:
            parametrizations.weight_norm(layer.fc_fij)
    assert_same(layers, regular(), draw(10, 4), device, efeats=efeat(regular()))


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (None, TypeError),
        (draw(29, 5), RuntimeError),
        (draw(30, 4), RuntimeError),
        (draw(30, 5).double(), RuntimeError),
    ],
    ids=["none", "rows", "width", "dtype"],
)
def test_wrong_edge_features(given, error):
    layer = EGAT(4, 5, 3, 6, 2)[0]
    assert isinstance(raised(partial(layer, regular(), draw(10, 4), given)), error)
    layer(regular(), draw(10, 4), efeat(regular()))


def test_own_container(device):
    graph = regular()
    feat, edges = draw(10, 4).to(device), efeat(graph).to(device)
    layer = EGAT(4, 5, 3, 6, 2)[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, edges), layer(graph, feat, edges))


@pytest.mark.parametrize("grad", [False, True])
def test_the_forward_makes_one_tensor_of_edges(grad, device):
    num_edges, heads, width = 60_000, 4, 32
    graph = dgl.add_self_loop(random_graph(200, num_edges))
    layer = EGAT(4, 2, 3, width, heads)[0].to(device).requires_grad_(grad)
    feat, edges = draw(200, 4).to(device), efeat(graph, 2).to(device)
    one = 4 * graph.num_edges() * heads * width
    layer(graph, feat, edges)  # what is made once
    assert peak_memory(lambda: layer(graph, feat, edges), device) < 1.6 * one


@pytest.mark.filterwarnings("ignore")
def test_compiles(device):
    graph = regular()
    layer = EGAT(4, 5, 3, 6, 2)[0].to(device)
    feat, edges = draw(10, 4).to(device), efeat(graph).to(device)
    expected = layer(graph, feat, edges)
    torch._dynamo.reset()
    found = torch.compile(layer, backend="aot_eager", fullgraph=True)(graph, feat, edges)
    torch.testing.assert_close(found, expected)
    sum(out.square().sum() for out in found).backward()
    compiled = [parameter.grad.clone() for parameter in layer.parameters()]
    layer.zero_grad()
    sum(out.square().sum() for out in expected).backward()
    for parameter, gradient in zip(layer.parameters(), compiled, strict=True):
        torch.testing.assert_close(gradient, parameter.grad)
