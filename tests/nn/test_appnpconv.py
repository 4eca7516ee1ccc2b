"""APPNPConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import pytest
import torch

from tests.graphs import (
    batched,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    multi_edges,
    random_bipartite,
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
    homogeneous_graph,
    ours,
    raised,
    theirs,
)


class TheirConv(theirs.APPNPConv):
    """DGL weighs the edges by ones of the default dtype, which float64 features cannot meet."""

    def forward(self, graph, feat, edge_weight=None):
        before = torch.get_default_dtype()
        torch.set_default_dtype(feat.dtype)
        try:
            return super().forward(graph, feat, edge_weight)
        finally:
            torch.set_default_dtype(before)


def APPNP(*args, **kwargs):
    return ours.APPNPConv(*args, **kwargs), TheirConv(*args, **kwargs)


def positive(graph, seed=5):
    return draw(graph.num_edges(), seed=seed).abs() + 0.1


@homogeneous_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(APPNP(3, 0.1), graph, features(graph, 4), device)


@every_idtype
def test_both_id_types(idtype, device):
    graph = batched(idtype)
    assert_same(APPNP(3, 0.1), graph, features(graph, 4), device)


@pytest.mark.parametrize("k", [0, 1, 2, 10])
@pytest.mark.parametrize("alpha", [0, 0.3, 1, 1.5])
@pytest.mark.parametrize("builder", [regular, isolated_rows, multi_edges])
@pytest.mark.parametrize("weighted", [False, True])
def test_hops(k, alpha, builder, weighted, device):
    """Learned weights, too, go through their normalisation."""
    graph = builder()
    edge_weight = positive(graph) if weighted else None
    feat = features(graph, 5)
    assert_same(APPNP(k, alpha), graph, feat, device, edge_weight=edge_weight)


@pytest.mark.parametrize("extra", [(), (2,), (2, 3)], ids=str)
def test_features_of_any_shape(extra, device):
    graph = regular()
    assert_same(APPNP(2, 0.2), graph, features(graph, 4, *extra), device)


def test_features_of_integers(device):
    """The factors of the degrees make floats of them."""
    graph = regular()
    feat = (10 * features(graph, 4)).long()
    mine, other = (library.APPNPConv(2, 0.3) for library in (ours, theirs))
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


def test_one_number_a_node(device):
    """DGL multiplies it by weights of two dimensions, and a matrix comes out."""
    graph = regular()
    layer = APPNP(2, 0.2)[0].to(device)
    feat = draw(10).to(device)
    torch.testing.assert_close(layer(graph, feat), layer(graph, feat.unsqueeze(1)).squeeze(1))


@pytest.mark.parametrize("p", [0.3, 1.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_dropout_draws_what_dgl_draws(p, weighted):
    """One mask a hop, on the CPU the same one."""
    graph = random_graph(20, 90)
    given = {"edge_weight": positive(graph)} if weighted else {}
    outputs = []
    for layer in APPNP(3, 0.2, edge_drop=p):
        torch.manual_seed(2)
        outputs.append(layer(graph, features(graph, 4), **given))
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("weighted", [False, True])
def test_dropout_on_a_device(weighted, device):
    """Whole edges go, the others count twice; another mask in each hop and each call."""
    graph = random_graph(20, 60)
    layer = APPNP(1, 0.0, edge_drop=0.5)[0].to(device)
    given = {"edge_weight": positive(graph).to(device)} if weighted else {}
    feat = torch.eye(20, device=device)
    dropped = torch.stack([layer(graph, feat, **given) for _ in range(500)])
    assert not torch.equal(dropped[0], dropped[1])
    kept = layer.eval()(graph, feat, **given)
    assert not dropped[:, kept == 0].any()
    torch.testing.assert_close(dropped.mean(0), kept, rtol=0.2, atol=0.1)


def test_no_dropout_when_evaluated(device):
    graph = regular()
    layers = tuple(layer.eval() for layer in APPNP(2, 0.2, edge_drop=0.5))
    before = torch.get_rng_state()
    assert_same(layers, graph, features(graph, 4), device)
    assert torch.equal(torch.get_rng_state(), before)


def test_no_edges_leave_the_jump(device):
    feat = draw(4, 4)
    found = assert_same(APPNP(3, 0.25), empty(), feat, device)
    torch.testing.assert_close(found["out0"].cpu(), 0.25 * feat)


@pytest.mark.parametrize(
    "edge_weight",
    [torch.ones(30, 1), -torch.ones(30), torch.ones(29)],
    ids=["two dimensions", "negative", "too few"],
)
def test_wrong_weights(edge_weight):
    graph = regular()
    mine, other = (raised(partial(layer, graph, draw(10, 4), edge_weight)) for layer in APPNP(2, 1))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up, partial(random_bipartite, 5, 5, 9)])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    mine, other = APPNP(2, 0.1)
    assert raised(partial(other, graph, feat))
    assert "homogeneous" in str(raised(partial(mine, graph, feat)))


def test_compiles(device):
    graph = random_graph(20, 90)
    feat = features(graph, 4).to(device).requires_grad_()
    assert_compiles(APPNP(2, 0.1)[0], graph, feat)


def test_dgl_still_reads_the_graph_afterwards():
    graph = regular()
    mine, other = APPNP(2, 0.1)
    feat, edge_weight = features(graph, 4), positive(graph)
    expected = other(for_dgl(graph), feat, edge_weight)
    torch.testing.assert_close(mine(graph, feat, edge_weight), expected)
    assert not graph.ndata
    assert not graph.edata
