"""EdgeConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

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
    self_loops,
    zoo,
)
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    features,
    for_dgl,
    raised,
    run,
    theirs,
    twins,
)

EDGE = partial(twins, "EdgeConv")
ANY_DEGREE = {"allow_zero_in_degree": True}
with_and_without_norm = pytest.mark.parametrize("batch_norm", [False, True])


def normalised(*args, **kwargs):
    """Layers whose biases are frozen: normalisation leaves rounding as their gradient."""
    layers = EDGE(*args, batch_norm=True, **kwargs)
    for layer in layers:
        layer.theta.bias.requires_grad_(False)
        layer.phi.bias.requires_grad_(False)
    return layers


# DGL's maximum has no gradient on a graph without edges; see below.
@pytest.mark.parametrize("name", sorted(zoo().keys() - {"empty", "no_nodes"}))
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(EDGE(4, 3, **ANY_DEGREE), graph, features(graph, 4), device)


# A batch of one edge is refused; one message out of two is normalised to a sign.
@pytest.mark.parametrize(
    "name", sorted(zoo().keys() - {"empty", "no_nodes", "single_node", "path"})
)
def test_zoo_of_batches(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(normalised(4, 3, **ANY_DEGREE), graph, features(graph, 4), device, ulps=256)


@every_idtype
@with_and_without_norm
@pytest.mark.parametrize("builder", [batched, bipartite_up, bipartite_down, block])
def test_both_id_types(builder, batch_norm, idtype, device):
    graph = builder(idtype)
    layers = (normalised if batch_norm else EDGE)(4, 3, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device)


@with_and_without_norm
@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_pairs(builder, batch_norm, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 4, seed=1)
    layers = (normalised if batch_norm else EDGE)(4, 3, **ANY_DEGREE)
    assert_same(layers, graph, feat, device)


@pytest.mark.parametrize("extra", [(2,), (2, 3)], ids=str)
def test_leading_dimensions(extra, device):
    graph = regular()
    assert_same(EDGE(4, 3), graph, features(graph, 4, *extra), device)


def test_normalised_channels(device):
    """With three dimensions the normalisation reads the second as its channels, as in DGL."""
    graph = regular()
    layers = EDGE(4, 3, True)
    for layer in layers:
        layer.eval()
    assert_same(layers, graph, features(graph, 4, 3), device)


def test_a_pair_stays_apart_on_one_set_of_nodes(device):
    """DGL lets the destinations overwrite the sources."""
    graph = self_loops()
    layer = EDGE(4, 3)[0].to(device)
    feat = draw(12, 4).to(device), draw(12, 4, seed=1).to(device)
    src, dst = (ends.to(device) for ends in graph.edges())
    messages = layer.theta(feat[1][dst] - feat[0][src]) + layer.phi(feat[1])[dst]
    rows = [messages[dst == node].amax(dim=0) for node in range(12)]
    torch.testing.assert_close(layer(graph, feat), torch.stack(rows))


@with_and_without_norm
@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_no_edges(builder, batch_norm, device):
    graph = builder()
    layer = EDGE(4, 3, batch_norm, **ANY_DEGREE)[0]
    found = run(layer, graph, features(graph, 4), device, torch.float32)
    assert found["out0"].shape == (graph.num_nodes(), 3)
    assert not any(value.any() for value in found.values())


def test_path_by_hand(device):
    layer = EDGE(1, 1, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.theta.weight.fill_(2)
        layer.theta.bias.fill_(0.5)
        layer.phi.weight.fill_(-1)
        layer.phi.bias.zero_()
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device))
    assert out.flatten().tolist() == [0, 2 * 9 + 0.5 - 10, 2 * 90 + 0.5 - 100]


def test_far_from_zero(device):
    """The offset of a cloud of points cancels as exactly as in DGL."""
    graph = regular()
    layers = EDGE(4, 3)
    for layer in layers:
        nn.init.zeros_(layer.phi.weight)
        layer.phi.weight.requires_grad_(False)
    feat = features(graph, 4) + 1e5
    mine, other = (layer(graph, feat) for layer in layers)
    exact = layers[1].double()(graph, feat.double())
    torch.testing.assert_close(other.double(), exact, rtol=1e-5, atol=1e-5)
    found = layers[0].to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.double().cpu(), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_not_finite_stays_with_its_neighbours(value, device):
    graph = path()
    layer = EDGE(2, 3, **ANY_DEGREE)[0].to(device)
    feat = draw(3, 2).to(device)
    expected = layer(graph, feat)
    feat[2] = value
    torch.testing.assert_close(layer(graph, feat)[:2], expected[:2])


@with_and_without_norm
@pytest.mark.parametrize("builder", [regular, block])
def test_hooks_and_replacements_of_theta(builder, batch_norm, device):
    graph = builder()
    layers = (normalised if batch_norm else EDGE)(4, 3)
    for layer in layers:
        layer.theta.register_forward_hook(lambda *given: torch.tanh(given[-1]))
    assert_same(layers, graph, features(graph, 4), device)


def test_theta_without_bias(device):
    graph = regular()
    layers = EDGE(4, 3)
    for layer in layers:
        torch.manual_seed(3)
        layer.theta = nn.Linear(4, 3, bias=False)
    assert_same(layers, graph, features(graph, 4), device)


def test_batch_statistics_are_tracked():
    graph = regular()
    layers = EDGE(4, 3, True)
    for layer in layers:
        layer(graph, features(graph, 4))
    mine, other = (layer.state_dict() for layer in layers)
    for key, value in other.items():
        torch.testing.assert_close(mine[key], value, msg=key)


def test_no_memory_for_edges(device):
    """Node by node; DGL holds the differences and what theta makes of them, (E, 16) each."""
    graph = random_graph(200, 40_000)
    layers = EDGE(16, 16, **ANY_DEGREE)
    feat = features(graph, 16).to(device).requires_grad_()
    layers[0].to(device)

    def step(layer):
        layer(graph, feat).sum().backward()

    of_edges = 4 * 16 * graph.num_edges()
    step(layers[0])  # what is made once
    assert peak_memory(partial(step, layers[0]), device) < 0.5 * of_edges
    if device.type == "cpu":
        step(layers[1])
        assert peak_memory(partial(step, layers[1]), device) > 2 * of_edges


def test_zero_in_degree():
    graph = isolated_rows()
    calls = [partial(layer, graph, features(graph, 4)) for layer in EDGE(4, 3)]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("rows", [(2, 5), (3, 4), (3, 1)], ids=str)
def test_wrong_number_of_rows(rows):
    graph = bipartite_up()
    feat = draw(rows[0], 4), draw(rows[1], 4)
    mine, other = (raised(partial(layer, graph, feat)) for layer in EDGE(4, 3, **ANY_DEGREE))
    assert (type(mine), str(mine)) == (type(other), str(other))
    assert type(mine) is dgl.DGLError


def test_wrong_width():
    graph = regular()
    mine, other = (raised(partial(layer, graph, features(graph, 5))) for layer in EDGE(4, 3))
    assert type(mine) is type(other) is RuntimeError


def test_one_edge_is_no_batch():
    graph = dgl.graph(([0], [0]))
    mine, other = (raised(partial(layer, graph, draw(1, 4))) for layer in EDGE(4, 3, True))
    assert (type(mine), str(mine)) == (type(other), str(other))


@with_and_without_norm
def test_own_container(batch_norm, device):
    graph = regular()
    layer = EDGE(4, 3, batch_norm)[0].to(device)
    feat = features(graph, 4).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat), layer(graph, feat))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    mine, other = EDGE(4, 3)
    feat = features(graph, 4)
    torch.testing.assert_close(mine(graph, feat), other(for_dgl(graph), feat))
    assert not graph.ndata
    assert not graph.edata


def test_beside_layers_of_dgl(device):
    """Two in a row, one of each library."""
    graph = regular()
    first, _ = EDGE(4, 6)
    second = theirs.EdgeConv(6, 3)
    hidden = first.to(device)(graph, features(graph, 4).to(device))
    assert second(graph, hidden.cpu()).shape == (10, 3)
