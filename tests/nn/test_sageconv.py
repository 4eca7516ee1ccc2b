"""SAGEConv gives DGL's outputs and gradients."""

from __future__ import annotations

import itertools
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
    multi_edges,
    no_nodes,
    permuted_edges,
    random_graph,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_compiles,
    assert_same,
    draw,
    every_idtype,
    features,
    for_dgl,
    raised,
    run,
    twins,
)
from tests.numerics import pseudo_random

SAGE = partial(twins, "SAGEConv")
AGGREGATORS = ("mean", "gcn", "pool", "lstm")
every_aggregator = pytest.mark.parametrize("kind", AGGREGATORS)
# Narrowing projects before the mean, widening after it.
every_order = pytest.mark.parametrize("widths", [(7, 3), (3, 7), (4, 4)], ids=str)


# Without edges DGL gives the gradient of a maximum to node 0: see the test of no edges below.
@pytest.mark.parametrize(
    ("kind", "name"), sorted({*itertools.product(AGGREGATORS, zoo())} - {("pool", "empty")})
)
def test_zoo(kind, name, device):
    graph = zoo()[name](torch.int64)
    assert_same(SAGE(4, 3, kind), graph, features(graph, 4), device)


@every_idtype
@every_aggregator
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, kind, idtype, device):
    graph = builder(idtype)
    assert_same(SAGE(4, 3, kind), graph, features(graph, 4), device)


@every_order
@every_aggregator
@pytest.mark.parametrize("builder", [regular, block, bipartite_up, bipartite_down, multi_edges])
@pytest.mark.parametrize("weighted", [False, True])
def test_orders_and_weights(widths, kind, builder, weighted, device):
    """Weights of both signs, which are learned."""
    graph = builder()
    edge_weight = draw(graph.num_edges(), seed=5) if weighted else None
    layers = SAGE(*widths, kind)
    assert_same(layers, graph, features(graph, widths[0]), device, edge_weight=edge_weight)


@every_order
@every_aggregator
@pytest.mark.parametrize("size", [1, "width"])
def test_weights_of_two_dimensions(widths, kind, size, device):
    graph = isolated_rows()
    width = min(widths) if kind in ("mean", "gcn") else widths[0]
    edge_weight = draw(graph.num_edges(), width if size == "width" else 1, seed=5)
    layers = SAGE(*widths, kind)
    assert_same(layers, graph, features(graph, widths[0]), device, edge_weight=edge_weight)


@every_order
@pytest.mark.parametrize("kind", ["mean", "pool"])
@pytest.mark.parametrize("weighted", [False, True])
def test_leading_dimensions(widths, kind, weighted, device):
    graph = regular()
    edge_weight = draw(graph.num_edges(), seed=5) if weighted else None
    feat = features(graph, widths[0], 2)
    assert_same(SAGE(*widths, kind), graph, feat, device, edge_weight=edge_weight)


@every_order
def test_leading_dimensions_of_gcn(widths, device):
    """DGL divides by the degrees along the wrong dimension: each slice stands for itself."""
    graph = isolated_rows()
    layer = SAGE(*widths, "gcn")[0].to(device)
    feat = features(graph, widths[0], 2).to(device)
    expected = torch.stack([layer(graph, feat[:, 0]), layer(graph, feat[:, 1])], dim=1)
    torch.testing.assert_close(layer(graph, feat), expected)


@pytest.mark.parametrize("kind", ["mean", "pool", "lstm"])
@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block])
def test_pairs_of_two_widths(kind, builder, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 6, seed=1)
    assert_same(SAGE((4, 6), 3, kind), graph, feat, device)


@every_aggregator
def test_a_pair_on_a_homogeneous_graph(kind, device):
    graph = regular()
    feat = draw(10, 4), draw(10, 4, seed=1)
    if kind != "gcn":
        assert_same(SAGE(4, 3, kind), graph, feat, device)
        return
    # DGL keeps both in one frame, where the destinations overwrite the sources; ours keep apart.
    layer = SAGE(4, 3, kind)[0].to(device)
    src, dst = graph.edges()
    bipartite = dgl.heterograph({("a", "to", "b"): (src, dst)}, {"a": 10, "b": 10})
    feat = tuple(part.to(device) for part in feat)
    torch.testing.assert_close(layer(graph, feat), layer(bipartite, feat))


@every_aggregator
@pytest.mark.parametrize("bias", [False, True])
def test_without_bias(kind, bias, device):
    graph = isolated_rows()
    assert_same(SAGE(4, 3, kind, bias=bias), graph, features(graph, 4), device)


@every_aggregator
def test_activation_and_norm(kind, device):
    graph = regular()
    layers = SAGE(4, 3, kind, norm=nn.LayerNorm(3), activation=torch.tanh)
    assert_same(layers, graph, features(graph, 4), device)


@every_aggregator
@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_dropout_draws_what_dgl_draws(kind, builder):
    graph = builder()
    outputs = []
    for layer in SAGE(4, 3, kind, feat_drop=0.5):
        torch.manual_seed(2)
        outputs.append(layer(graph, features(graph, 4)))
    torch.testing.assert_close(*outputs)


@every_aggregator
def test_no_dropout_when_evaluated(kind, device):
    graph = regular()
    layers = [layer.eval() for layer in SAGE(4, 3, kind, feat_drop=0.5)]
    before = torch.get_rng_state()
    assert_same(tuple(layers), graph, features(graph, 4), device)
    assert torch.equal(torch.get_rng_state(), before)


@every_aggregator
@every_order
@pytest.mark.parametrize("builder", [empty, no_nodes])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_edges_leave_the_node_itself(kind, widths, builder, weighted, device):
    graph = builder()
    layer = SAGE(*widths, kind)[0]
    given = {"edge_weight": torch.ones(0)} if weighted else {}
    feat = features(graph, widths[0])
    found = run(layer, graph, feat, device, torch.float32, **given)
    alone = feat.to(device).requires_grad_()
    if kind == "gcn":
        expected = layer.fc_neigh(alone) + layer.bias
    else:
        expected = layer.fc_self(alone)
    expected.backward(pseudo_random(expected))
    torch.testing.assert_close(found["out0"], expected.detach())
    torch.testing.assert_close(found["grad_feat0"], alone.grad)


def test_all_negative_features_pool_to_zero_only_without_edges(device):
    """-1 where there are edges, 0 elsewhere: the maximum does not begin at 0."""
    layer = SAGE(1, 1, "pool")[0].to(device)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1)
        layer.fc_self.weight.fill_(0)
        layer.fc_self.bias.fill_(0)
    graph = dgl.graph(([0, 1], [1, 1]), num_nodes=3)
    weight = torch.tensor([-1.0, -2.0], device=device)
    out = layer(graph, torch.zeros(3, 1, device=device), edge_weight=weight)
    assert out.flatten().tolist() == [0, -1, 0]


def test_the_lstm_reads_in_the_order_of_the_edge_ids(device):
    """An LSTM by hand over the sources of each destination; the order matters."""
    graph = permuted_edges()
    layer = SAGE(4, 3, "lstm")[0].to(device)
    feat = draw(6, 4).to(device)
    src, dst = (end.to(device) for end in graph.edges())
    rows = []
    for v in range(6):
        sequence = feat[src[dst == v]].unsqueeze(0)
        rows.append(layer.lstm(sequence)[0][0, -1] if sequence.numel() else feat.new_zeros(4))
    expected = layer.fc_self(feat) + layer.fc_neigh(torch.stack(rows))
    torch.testing.assert_close(layer(graph, feat), expected)
    reversed_ids = dgl.graph((graph.edges()[0].flip(0), graph.edges()[1].flip(0)), num_nodes=6)
    assert not torch.allclose(layer(reversed_ids, feat), expected)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 8, 9, 31, 33])
def test_the_lstm_on_every_size_of_batch(degree, device):
    """Rows one shorter and one longer than a power of 2, beside others of fewer edges."""
    dst = torch.cat([torch.full((k,), k) for k in range(degree + 1)])
    graph = dgl.graph((torch.arange(dst.numel()) % (degree + 1), dst), num_nodes=degree + 1)
    assert_same(SAGE(3, 2, "lstm"), graph, features(graph, 3), device)


def test_a_hub_does_not_overflow_in_16_bits(device):
    """The sum of 70,000 ones is infinite in float16, and so is their number."""
    count = 70_000
    src = torch.arange(count)
    graph = dgl.graph((src, torch.zeros_like(src)), num_nodes=count)
    for kind in ("mean", "gcn"):
        layer = SAGE(2, 2, kind)[0].to(device, torch.float16)
        out = layer(graph, torch.ones(count, 2, dtype=torch.float16, device=device))
        assert out.isfinite().all()
        expected = layer.fc_neigh(torch.ones(2, dtype=torch.float16, device=device))
        if kind == "gcn":
            torch.testing.assert_close(out[0], expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("kind", ["mean", "gcn"])
def test_compiles(kind, device):
    graph = random_graph(20, 90)
    layer = SAGE(4, 3, kind)[0].to(device)
    assert_compiles(layer, graph, features(graph, 4).to(device))


def test_unknown_aggregator():
    mine, other = (
        raised(partial(library.nn.SAGEConv, 4, 3, "sum")) for library in (dgl_flash, dgl)
    )
    assert type(mine) is type(other)
    # The text holds a set, whose order may differ between two modules of a process.
    assert sorted(str(mine)) == sorted(str(other))


@every_aggregator
def test_wrong_number_of_weights(kind):
    graph = regular()
    calls = [
        partial(layer, graph, features(graph, 4), edge_weight=torch.ones(29))
        for layer in SAGE(4, 3, kind)
    ]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@every_aggregator
def test_weights_that_do_not_broadcast(kind):
    graph = regular()
    calls = [
        partial(layer, graph, features(graph, 4), edge_weight=torch.ones(30, 5))
        for layer in SAGE(4, 3, kind)
    ]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@every_aggregator
@pytest.mark.parametrize("count", [7, 12])
def test_wrong_number_of_rows(kind, count):
    """DGL names the numbers too; only the LSTM has its words, the ops have theirs."""
    graph = bipartite_up()
    calls = [partial(layer, graph, (draw(count, 4), draw(5, 4))) for layer in SAGE(4, 3, kind)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError
    assert str(count) in str(mine)
    if kind == "lstm":
        assert str(mine) == str(other)


def test_gcn_needs_features_of_the_destinations():
    graph = bipartite_up()
    mine, other = (raised(partial(layer, graph, draw(3, 4))) for layer in SAGE(4, 3, "gcn"))
    assert type(mine) is type(other) is dgl.DGLError
    assert str(mine) == str(other)


def test_gcn_needs_one_width():
    graph = bipartite_up()
    feat = draw(3, 4), draw(5, 6)
    mine, other = (raised(partial(layer, graph, feat)) for layer in SAGE((4, 6), 3, "gcn"))
    assert type(mine) is type(other) is dgl.DGLError
    assert str(mine) == str(other)


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    feat = features(graph, 4)
    for kind in AGGREGATORS:
        mine, other = SAGE(4, 3, kind)
        torch.testing.assert_close(mine(graph, feat), other(for_dgl(graph), feat))
    assert not graph.ndata
    assert not graph.edata


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["hub", "regular"])
@pytest.mark.parametrize("training", [False, True])
def test_the_lstm_reads_what_cudnn_refuses(name, training):
    """Sequences of more than 65,535 steps, and gradients while it is being evaluated."""
    graph = zoo()[name](torch.int64)
    layer = SAGE(4, 3, "lstm")[0].cuda().train(training)
    feat = features(graph, 4).cuda().requires_grad_()
    out = layer(graph, feat)
    out.sum().backward()
    assert out.isfinite().all()
    assert feat.grad.isfinite().all()
    expected = layer.cpu()(graph, feat.cpu())
    torch.testing.assert_close(out.cpu(), expected, rtol=1e-2, atol=1e-2)
