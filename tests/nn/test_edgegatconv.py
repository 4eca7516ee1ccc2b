"""EdgeGATConv gives DGL's outputs and gradients, and never projects the edges."""

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
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    no_nodes,
    path,
    random_graph,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_compiles,
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    raised,
    twins,
)

EDGEGAT = partial(twins, "EdgeGATConv")
ANY_DEGREE = {"allow_zero_in_degree": True}


def efeat(graph, *extra, width=5):
    return draw(graph.num_edges(), *extra, width, seed=4)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    layers = EDGEGAT(4, 5, 3, 2, residual=False, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph))


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    layers = EDGEGAT(4, 5, 3, 2, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, edge_feat=efeat(graph))


VARIANTS = {
    "one head": ((4, 5, 7, 1), {}),
    "width 1": ((4, 5, 1, 3), {}),
    "slope": ((4, 5, 3, 2), {"negative_slope": 0.7}),
    "no bias": ((4, 5, 3, 2), {"bias": False}),
    "no residual": ((4, 5, 3, 2), {"residual": False}),
    "residual of the output's width": ((6, 5, 3, 2), {}),
    "one edge feature": ((4, 1, 3, 2), {}),
    "function": ((4, 5, 3, 2), {"activation": torch.tanh}),
    "module": ((4, 5, 3, 2), {"activation": nn.ELU()}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("builder", [regular, block])
def test_variants(variant, builder, device):
    args, kwargs = VARIANTS[variant]
    graph = builder()
    layers = EDGEGAT(*args, **kwargs, **ANY_DEGREE)
    feat = features(graph, args[0])
    assert_same(layers, graph, feat, device, edge_feat=efeat(graph, width=args[1]))


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block])
@pytest.mark.parametrize("widths", [4, (4, 6), (6, 4)], ids=str)
def test_pairs(builder, widths, device):
    graph = builder()
    left, right = widths if isinstance(widths, tuple) else (widths, widths)
    feat = draw(graph.num_src_nodes(), left), draw(graph.num_dst_nodes(), right, seed=1)
    layers = EDGEGAT(widths, 5, 3, 2, **ANY_DEGREE)
    assert_same(layers, graph, feat, device, edge_feat=efeat(graph))


@pytest.mark.parametrize("builder", [regular, block, bipartite_up, isolated_rows])
def test_attention(builder, device):
    graph = builder()
    found = assert_same(
        EDGEGAT(4, 5, 3, 2, **ANY_DEGREE),
        graph,
        features(graph, 4),
        device,
        edge_feat=efeat(graph),
        get_attention=True,
    )
    assert found["out1"].shape == (graph.num_edges(), 2, 1)


@pytest.mark.parametrize(
    ("of_nodes", "of_edges"),
    [
        ((7,), (7,)),
        ((7,), (1,)),
        ((1,), (7,)),
        ((2, 3), (2, 3)),
        ((2, 3), (1, 3)),
        ((2, 1), (1, 3)),
    ],
    ids=str,
)
@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_further_dimensions(builder, of_nodes, of_edges, device):
    graph = builder()
    found = assert_same(
        EDGEGAT(4, 5, 3, 2, **ANY_DEGREE),
        graph,
        features(graph, 4, *of_nodes),
        device,
        edge_feat=efeat(graph, *of_edges),
        get_attention=True,
    )
    extra = torch.broadcast_shapes(of_nodes, of_edges)
    assert found["out0"].shape == (graph.num_dst_nodes(), *extra, 2, 3)
    assert found["out1"].shape == (graph.num_edges(), *extra, 2, 1)


@pytest.mark.parametrize(("of_nodes", "of_edges"), [((6,), ()), ((), (6,))], ids=str)
def test_further_dimensions_of_one_side(of_nodes, of_edges, device):
    """DGL aligns the edges with the wrong dimension; here each goes with the whole other side."""
    graph = regular()
    layer = EDGEGAT(4, 5, 3, 2)[0].to(device)
    feat, edges = draw(10, *of_nodes, 4).to(device), efeat(graph, *of_edges).to(device)
    out, attention = layer(graph, feat, edges, get_attention=True)
    for i in range(6):
        given = feat[:, i] if of_nodes else feat, edges[:, i] if of_edges else edges
        wanted = layer(graph, *given, get_attention=True)
        torch.testing.assert_close((out[:, i], attention[:, i]), wanted)


def test_nothing_there(device):
    layer = EDGEGAT(4, 5, 3, 2)[0].to(device)
    assert layer(no_nodes(), draw(0, 4).to(device), draw(0, 5).to(device)).shape == (0, 2, 3)
    layers = EDGEGAT(4, 5, 3, 2, bias=False, residual=False, **ANY_DEGREE)
    found = assert_same(layers, empty(), draw(4, 4), device, edge_feat=draw(0, 5))
    assert not found["out0"].any()


def test_dropout_draws_what_dgl_draws():
    graph = block()
    feat = draw(graph.num_src_nodes(), 4)
    for given in (feat, (feat, draw(3, 4))):
        outs = []
        for layer in EDGEGAT(4, 5, 3, 2, feat_drop=0.3, attn_drop=0.4, **ANY_DEGREE):
            torch.manual_seed(11)
            outs.append(layer(graph, given, efeat(graph), get_attention=True))
        for found, expected in zip(*outs, strict=True):
            torch.testing.assert_close(found, expected)


def _hook(part, *given):
    return given[-1] * 1.5


@pytest.mark.parametrize("part", ["fc", "fc_edge", "leaky_relu", "attn_drop", "res_fc"])
@pytest.mark.parametrize("extra", [(), (3,)], ids=str)
def test_hooks_act_as_in_dgl(part, extra, device):
    graph, feat = regular(), draw(10, *extra, 4)
    layers = EDGEGAT(4, 5, 3, 2)
    plain = layers[0](graph, feat, efeat(graph, *extra))
    for layer in layers:
        getattr(layer, part).register_forward_hook(_hook)
    found = assert_same(
        layers, graph, feat, device, edge_feat=efeat(graph, *extra), get_attention=True
    )
    assert not torch.allclose(found["out0"].cpu(), plain)


def test_a_bias_of_the_edges_is_not_lost(device):
    """DGL's has none; who puts one there means it."""
    layers = EDGEGAT(4, 5, 3, 2)
    for layer in layers:
        layer.fc_edge = nn.Linear(5, 6)
    graph = regular()
    found = assert_same(layers, graph, draw(10, 4), device, edge_feat=efeat(graph))
    assert found["grad_fc_edge.bias"].any()


def test_a_parametrised_matrix_is_used_as_it_is(device):
    layers = EDGEGAT(4, 5, 3, 2)
    for layer in layers:
        parametrizations.weight_norm(layer.fc_edge)
    graph = regular()
    assert_same(layers, graph, draw(10, 4), device, edge_feat=efeat(graph))


def test_path_by_hand(device):
    """One in-edge: the projected source plus the projected edge."""
    layer = EDGEGAT(1, 1, 1, 1, residual=False, bias=False, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.fc.weight.fill_(2)
        layer.fc_edge.weight.fill_(3)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    out = layer(path(), feat, torch.tensor([[5.0], [7.0]], device=device))
    assert out.flatten().tolist() == pytest.approx([0, 17, 41])


def test_features_of_other_edges_are_refused():
    graph = regular()
    layers = EDGEGAT(4, 5, 3, 2)
    calls = [partial(layer, graph, features(graph, 4), draw(29, 5)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other)) == (dgl.DGLError, str(other))


@pytest.mark.parametrize(
    ("given", "error"),
    [(None, TypeError), (draw(30, 4), RuntimeError), (draw(30, 5).double(), RuntimeError)],
    ids=["none", "width", "dtype"],
)
def test_wrong_edge_features(given, error):
    layer = EDGEGAT(4, 5, 3, 2)[0]
    assert isinstance(raised(partial(layer, regular(), draw(10, 4), given)), error)
    layer(regular(), draw(10, 4), efeat(regular()))


def test_a_single_tensor_for_two_widths():
    layers = EDGEGAT((4, 4), 5, 3, 2)
    calls = [partial(layer, regular(), draw(10, 4), efeat(regular())) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is AttributeError
    assert "EdgeGATConv: expected a pair" in str(mine)


def test_own_container(device):
    graph = regular()
    feat, edges = draw(10, 4).to(device), efeat(graph).to(device)
    layer = EDGEGAT(4, 5, 3, 2)[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, edges), layer(graph, feat, edges))


def test_no_tensor_of_edges_times_heads_times_width(device):
    """Forward and backward, with the gradient of the edge features."""
    num_edges, heads, width = 60_000, 4, 64
    graph = random_graph(200, num_edges)
    layer = EDGEGAT(4, 2, width, heads, **ANY_DEGREE)[0].to(device)
    feat = draw(200, 4).to(device).requires_grad_()
    edges = draw(num_edges, 2).to(device).requires_grad_()

    def step(layer):
        layer(graph, feat, edges).square().sum().backward()

    messages = 4 * num_edges * heads * width
    step(layer)  # what is made once
    assert peak_memory(partial(step, layer), device) < messages / 2
    layer.fc_edge.register_forward_hook(lambda *given: given[-1])
    assert peak_memory(partial(step, layer), device) > messages


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("extra", [(), (3,)], ids=str)
def test_compiles(extra, device):
    graph = regular()
    feat, edges = draw(10, *extra, 4).to(device), efeat(graph, *extra).to(device)
    assert_compiles(EDGEGAT(4, 5, 3, 2)[0].to(device), graph, feat, edge_feat=edges)
