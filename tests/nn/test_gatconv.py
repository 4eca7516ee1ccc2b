"""GATConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import (
    batched,
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    no_nodes,
    path,
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
    run,
    twins,
)

GAT = partial(twins, "GATConv")
ANY_DEGREE = {"allow_zero_in_degree": True}


def weights(graph):
    """Of both signs, and zeros."""
    return draw(graph.num_edges(), seed=5) * (torch.arange(graph.num_edges()) % 4 > 0)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(GAT(4, 3, 2, **ANY_DEGREE), graph, features(graph, 4), device)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(GAT(4, 3, 2, **ANY_DEGREE), graph, features(graph, 4), device)


VARIANTS = {
    "one head": ((5, 7, 1), {}),
    "width 1": ((5, 1, 3), {}),
    "slope": ((5, 3, 2), {"negative_slope": 0.7}),
    "no bias": ((5, 3, 2), {"bias": False}),
    "projected residual": ((5, 3, 2), {"residual": True}),
    "projected residual without bias": ((5, 3, 2), {"residual": True, "bias": False}),
    "identical residual": ((6, 3, 2), {"residual": True}),
    "identical residual without bias": ((6, 3, 2), {"residual": True, "bias": False}),
    "function": ((5, 3, 2), {"activation": torch.tanh}),
    "module": ((5, 3, 2), {"residual": True, "activation": nn.ELU()}),
}


@pytest.mark.parametrize("variant", sorted(VARIANTS))
@pytest.mark.parametrize("builder", [regular, block])
def test_variants(variant, builder, device):
    args, kwargs = VARIANTS[variant]
    graph = builder()
    assert_same(GAT(*args, **kwargs, **ANY_DEGREE), graph, features(graph, args[0]), device)


def test_without_nodes(device):
    """DGL cannot view the residual of nothing."""
    layer = GAT(5, 3, 2, residual=True)[0].to(device)
    assert layer(no_nodes(), draw(0, 5).to(device)).shape == (0, 2, 3)


def test_without_edges_bias_and_residual_are_left(device):
    found = assert_same(GAT(4, 3, 2, **ANY_DEGREE), empty(), draw(4, 4), device)
    assert found["out0"].any()
    assert not found["grad_feat0"].any()
    assert_same(GAT(4, 3, 2, residual=True, **ANY_DEGREE), empty(), draw(4, 4), device)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block, regular])
@pytest.mark.parametrize("residual", [False, True])
def test_pairs_of_one_width(builder, residual, device):
    """An int for `in_feats`: one matrix for both sides."""
    graph = builder()
    feat = draw(graph.num_src_nodes(), 5), draw(graph.num_dst_nodes(), 5, seed=1)
    assert_same(GAT(5, 3, 2, residual=residual, **ANY_DEGREE), graph, feat, device)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block])
@pytest.mark.parametrize("widths", [(4, 6), (6, 4)], ids=str)
def test_pairs_of_two_widths(builder, widths, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), widths[0]), draw(graph.num_dst_nodes(), widths[1], seed=1)
    assert_same(GAT(widths, 3, 2, residual=True, **ANY_DEGREE), graph, feat, device)


def test_a_tensor_on_a_block_is_the_pair_with_its_first_rows(device):
    graph = block()
    layer = GAT(4, 3, 2, residual=True)[0].to(device)
    feat = draw(graph.num_src_nodes(), 4).to(device)
    pair = feat, feat[: graph.num_dst_nodes()]
    torch.testing.assert_close(layer(graph, feat), layer(graph, pair))


@pytest.mark.parametrize("builder", [regular, block, bipartite_up, isolated_rows])
@pytest.mark.parametrize("get_attention", [False, True])
def test_edge_weights(builder, get_attention, device):
    """A factor after the softmax, not normalised again; with a gradient."""
    graph = builder()
    found = assert_same(
        GAT(4, 3, 2, **ANY_DEGREE),
        graph,
        features(graph, 4),
        device,
        edge_weight=weights(graph),
        get_attention=get_attention,
    )
    assert found["grad_edge_weight"].shape == (graph.num_edges(),)
    assert found["grad_edge_weight"].any()


@pytest.mark.parametrize(
    "weight", [torch.arange(30), torch.arange(30) > 9, draw(30).half(), torch.tensor([2.0])]
)
def test_edge_weights_of_other_kinds(weight, device):
    """Integers, booleans, narrower floats, one number for all: as in DGL."""
    graph, feat = regular(), draw(10, 4)
    mine, other = GAT(4, 3, 2)
    found = mine.to(device)(graph, feat.to(device), weight.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat, weight))


@pytest.mark.parametrize(
    ("weight", "error"),
    [(torch.ones(29), ValueError), (torch.ones(30).double(), TypeError), ([1.0] * 30, TypeError)],
    ids=["length", "dtype", "list"],
)
def test_wrong_edge_weights(weight, error):
    with pytest.raises(error, match="gat: expected `edge_weight`"):
        GAT(4, 3, 2)[0](regular(), draw(10, 4), weight)


def test_attention_by_edge_id(device):
    """Edges listed in no order: each destination's attention sums to 1."""
    graph = dgl.graph(([0, 1, 2, 2], [2, 0, 1, 0]))
    found = assert_same(GAT(4, 3, 2), graph, draw(3, 4), device, get_attention=True)
    attention = found["out1"].cpu()
    assert attention.shape == (4, 2, 1)
    torch.testing.assert_close(attention[[0, 2]], torch.ones(2, 2, 1))
    torch.testing.assert_close(attention[1] + attention[3], torch.ones(2, 1))


@pytest.mark.parametrize("extra", [(7,), (2, 3), (1,)], ids=str)
@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_further_dimensions(builder, extra, device):
    graph = builder()
    feat = features(graph, 4, *extra)
    layers = GAT(4, 3, 2, residual=True, **ANY_DEGREE)
    found = assert_same(layers, graph, feat, device, get_attention=True)
    assert found["out0"].shape == (graph.num_dst_nodes(), *extra, 2, 3)
    assert found["out1"].shape == (graph.num_edges(), *extra, 2, 1)


@pytest.mark.parametrize(
    "extra", [((7,), (1,)), ((1,), (7,)), ((7,), ()), ((), (7,)), ((2, 1), (3,))], ids=str
)
def test_further_dimensions_broadcast(extra, device):
    graph = bipartite_up()
    feat = draw(3, *extra[0], 4), draw(5, *extra[1], 4, seed=1)
    assert_same(GAT(4, 3, 2, **ANY_DEGREE), graph, feat, device, get_attention=True)


def test_the_residual_belongs_to_the_node_whatever_the_dimensions(device):
    """DGL aligns a residual of fewer dimensions with the wrong ones."""
    layer = GAT(4, 3, 2, residual=True, **ANY_DEGREE)[0].to(device)
    feat = draw(3, 7, 4).to(device), draw(5, 4, seed=1).to(device)
    spread = feat[0], feat[1].unsqueeze(1).expand(5, 7, 4)
    torch.testing.assert_close(layer(bipartite_up(), feat), layer(bipartite_up(), spread))


def test_further_dimensions_that_do_not_broadcast():
    feat = draw(3, 2, 4), draw(5, 3, 4)
    calls = [partial(layer, bipartite_up(), feat) for layer in GAT(4, 3, 2, **ANY_DEGREE)]
    assert type(raised(calls[0])) is type(raised(calls[1])) is dgl.DGLError


def test_edge_weights_and_further_dimensions(device):
    """DGL aligns the weights with the wrong dimension; here they weigh the edges."""
    graph, weight = regular(), weights(regular()).to(device)
    layer = GAT(4, 3, 2)[0].to(device)
    feat = draw(10, 6, 4).to(device)
    out, attention = layer(graph, feat, weight, get_attention=True)
    for i in range(6):
        wanted = layer(graph, feat[:, i], weight, get_attention=True)
        torch.testing.assert_close((out[:, i], attention[:, i]), wanted)


@pytest.mark.parametrize("extra", [(), (3,)], ids=str)
def test_dropout_draws_what_dgl_draws(extra):
    """Same seed, same masks: on features first, source before destination, then on attention."""
    graph = block()
    feat = draw(graph.num_src_nodes(), *extra, 4)
    for given in (feat, (feat, draw(3, *extra, 4))):
        outs = []
        for layer in GAT(4, 3, 2, feat_drop=0.3, attn_drop=0.4, **ANY_DEGREE):
            torch.manual_seed(11)
            outs.append(layer(graph, given, get_attention=True))
        for found, expected in zip(*outs, strict=True):
            torch.testing.assert_close(found, expected)


def test_attention_is_returned_after_dropout_and_weights(device):
    graph, feat = regular(), draw(10, 4).to(device)
    layer = GAT(4, 3, 2, attn_drop=0.5)[0].to(device)
    weight = torch.full((30,), 0.25, device=device)
    torch.manual_seed(3)
    out, attention = layer(graph, feat, weight, get_attention=True)
    torch.manual_seed(3)
    again = layer(graph, feat, weight)
    torch.testing.assert_close(out, again)
    kept = layer.eval()(graph, feat, weight, get_attention=True)[1]
    dropped = attention == 0
    assert 0.2 < dropped.float().mean() < 0.8
    torch.testing.assert_close(attention[~dropped], 2 * kept[~dropped])


def test_dropout_is_off_in_eval(device):
    graph, feat = regular(), draw(10, 4).to(device)
    layer = GAT(4, 3, 2, feat_drop=0.5, attn_drop=0.5)[0].to(device).eval()
    state = torch.get_rng_state()
    assert torch.equal(layer(graph, feat), layer(graph, feat))
    assert torch.equal(state, torch.get_rng_state())


def _hook(part, *given):
    return given[-1] * 1.5


@pytest.mark.parametrize("part", ["fc", "leaky_relu", "attn_drop", "feat_drop", "res_fc"])
@pytest.mark.parametrize("extra", [(), (3,)], ids=str)
def test_hooks_act_as_in_dgl(part, extra, device):
    graph, feat = regular(), draw(10, *extra, 4)
    layers = GAT(4, 3, 2, residual=True)
    weight = None if extra else weights(graph)
    plain = layers[0](graph, feat, weight)
    for layer in layers:
        getattr(layer, part).register_forward_hook(_hook)
    found = assert_same(
        layers, graph, feat, device, edge_weight=weight, get_attention=True, ulps=128
    )
    assert not torch.allclose(found["out0"].cpu(), plain)


@pytest.mark.parametrize("part", ["leaky_relu", "attn_drop"])
def test_replaced_modules_act_as_in_dgl(part, device):
    layers = GAT(4, 3, 2)
    for layer in layers:
        setattr(layer, part, nn.Tanh())
    found = assert_same(layers, regular(), draw(10, 4), device)
    assert not torch.allclose(found["out0"].cpu(), GAT(4, 3, 2)[0](regular(), draw(10, 4)))


def test_a_hook_sees_the_attention(device):
    seen = []
    layer = GAT(4, 3, 2, attn_drop=0.5)[0].to(device).eval()
    feat = draw(10, 4).to(device)
    expected, attention = layer(regular(), feat, get_attention=True)
    layer.attn_drop.register_forward_hook(lambda *given: seen.append(given[-1]))
    torch.testing.assert_close(layer(regular(), feat), expected)
    torch.testing.assert_close(seen, [attention])


def test_path_by_hand(device):
    """One in-edge: the attention is 1, whatever the score; the first node has the bias alone."""
    layer = GAT(1, 1, 1, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.fc.weight.fill_(2)
        layer.bias.fill_(0.5)
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device))
    assert out.flatten().tolist() == pytest.approx([0.5, 2.5, 20.5])


def test_scores_of_two_neighbours_by_hand(device):
    """exp(3) against exp(-0.2 * 3): the slope is inside the softmax."""
    layer = GAT(1, 1, 1, bias=False, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        for parameter in (layer.fc.weight, layer.attn_l):
            parameter.fill_(1)
        layer.attn_r.zero_()
    graph = dgl.graph(([0, 1], [2, 2]))
    out = layer(graph, torch.tensor([[3.0], [-3.0], [5.0]], device=device))
    high, low = torch.tensor(3.0).exp(), torch.tensor(-0.6).exp()
    assert out[2].item() == pytest.approx((3 * (high - low) / (high + low)).item())


def test_large_scores_stay_finite(device):
    layers = GAT(4, 3, 2)
    for layer in layers:
        with torch.no_grad():
            layer.attn_l.fill_(1e4)
    graph, feat = regular(), draw(10, 4)
    found = run(layers[0], graph, feat, device, torch.float32)
    assert all(value.isfinite().all() for value in found.values())


def test_a_single_tensor_for_two_widths():
    calls = [partial(layer, regular(), draw(10, 4)) for layer in GAT((4, 4), 3, 2)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is AttributeError
    assert "GATConv: expected a pair" in str(mine)


def test_own_container(device):
    graph, feat = regular(), draw(10, 4).to(device)
    layer = GAT(4, 3, 2)[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat), layer(graph, feat))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("extra", [(), (3,)], ids=str)
def test_compiles(extra, device):
    graph, feat = regular(), draw(10, *extra, 4).to(device)
    layer = GAT(4, 3, 2, residual=True)[0].to(device)
    assert_compiles(layer, graph, feat, edge_weight=weights(graph).to(device))
