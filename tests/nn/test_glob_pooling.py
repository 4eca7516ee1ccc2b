"""Sums, means, maxima and weighted sums over the nodes of each graph are DGL's."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from tests.graphs import block, two_relations
from tests.nn.batches import FULL, empty_graphs, every_batch, every_gap, gaps, mixed
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    ours,
    raised,
    run,
    theirs,
    twins,
)


def attention(*feat_nn):
    """Without a bias of the gate, which shifts all scores of a graph alike and changes nothing."""
    layers = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        parts = [nn.Linear(4, 1, bias=False), *(make() for make in feat_nn)]
        layers.append(library.GlobalAttentionPooling(*parts))
    return layers


def linear():
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh())


BUILDERS = {
    "SumPooling": partial(twins, "SumPooling"),
    "AvgPooling": partial(twins, "AvgPooling"),
    "MaxPooling": partial(twins, "MaxPooling"),
    "WeightAndSum": partial(twins, "WeightAndSum", 4),
    "GlobalAttentionPooling": attention,
    "GlobalAttentionPooling feat": partial(attention, linear),
}
POOLS = ("SumPooling", "AvgPooling", "MaxPooling")
every_kind = pytest.mark.parametrize("kind", BUILDERS)
every_pool = pytest.mark.parametrize("kind", POOLS)


@every_batch
@every_kind
@every_idtype
def test_batches(kind, name, idtype, device):
    graph = FULL[name](idtype)
    found = assert_same(BUILDERS[kind](), graph, draw(graph.num_nodes(), 4), device)
    assert found["out0"].shape[0] == graph.batch_size


@every_gap
@every_kind
def test_members_without_nodes_are_zero(kind, name, device):
    graph = gaps(name)
    feat = draw(graph.num_nodes(), 4)
    pair = BUILDERS[kind]()
    if name == "nothing":  # DGL's mean is NaN, and the gradient of a maximum fails
        found = run(pair[0], graph, feat, device, torch.float32)
        assert not found["out0"].any()
    else:
        found = assert_same(pair, graph, feat, device)
    without = (graph.batch_num_nodes() == 0).to(device)
    assert without.any()
    assert not found["out0"][without].any()


@every_kind
@pytest.mark.parametrize("name", empty_graphs())
def test_graphs_without_nodes(kind, name, device):
    found = run(BUILDERS[kind]()[0], empty_graphs()[name], draw(0, 4), device, torch.float32)
    assert found["out0"].shape[0] == 1
    for key, value in found.items():
        assert not value.any(), key


@every_pool
@pytest.mark.parametrize("shape", [(), (1,), (33,), (2, 3)], ids=str)
def test_shapes_of_features(kind, shape, device):
    graph = mixed()
    found = assert_same(BUILDERS[kind](), graph, draw(graph.num_nodes(), *shape), device)
    assert found["out0"].shape[1:] == shape


@pytest.mark.parametrize("kind", ["WeightAndSum", "GlobalAttentionPooling feat"])
def test_leading_dimensions(kind, device):
    graph = mixed()
    assert_same(BUILDERS[kind](), graph, draw(graph.num_nodes(), 3, 4), device)


def test_negative_maxima(device):
    """No 0 slips in, which only stands where there is nothing."""
    graph = gaps("gaps")
    out = ours.MaxPooling()(graph, -torch.ones(graph.num_nodes(), 2, device=device))
    expected = -(graph.batch_num_nodes() > 0).float()
    assert torch.equal(out.cpu(), expected.unsqueeze(1).expand(-1, 2))


def test_the_first_of_equal_maxima_gets_the_gradient(device):
    graph = mixed()
    feat = torch.ones(graph.num_nodes(), 1, device=device, requires_grad=True)
    ours.MaxPooling()(graph, feat).sum().backward()
    sizes = graph.batch_num_nodes()
    firsts = (sizes.cumsum(0) - sizes).tolist()
    assert feat.grad.flatten().nonzero().flatten().tolist() == firsts


@every_batch
def test_attention_is_returned(name, device):
    """Of each node; it sums up to 1 in each graph, and has a gradient."""
    graph = FULL[name]()
    feat = draw(graph.num_nodes(), 4)
    pair = BUILDERS["GlobalAttentionPooling feat"]()
    found = assert_same(pair, graph, feat, device, get_attention=True)
    assert found["out1"].shape == (graph.num_nodes(), 1)
    total = ours.SumPooling()(graph, found["out1"])
    torch.testing.assert_close(total, torch.ones_like(total))


def test_large_scores(device):
    graph = mixed()
    pair = BUILDERS["GlobalAttentionPooling"]()
    assert_same(pair, graph, 1e4 * draw(graph.num_nodes(), 4), device)


def test_gate_of_another_dtype(device):
    """The product has the wider one, as in DGL."""

    class Wide(nn.Module):
        def forward(self, feat):
            return feat.double().sum(-1, keepdim=True)

    graph = mixed()
    feat = draw(graph.num_nodes(), 4)
    mine, other = twins("GlobalAttentionPooling", Wide())
    found, expected = mine(graph, feat.to(device)), other(graph, feat)
    assert found.dtype == expected.dtype == torch.float64
    torch.testing.assert_close(found.cpu(), expected)


def test_a_gate_must_give_one_number():
    graph = mixed()
    pair = twins("GlobalAttentionPooling", nn.Linear(4, 2))
    errors = [raised(partial(layer, graph, draw(graph.num_nodes(), 4))) for layer in pair]
    assert [type(error) for error in errors] == [AssertionError] * 2
    assert str(errors[0]) == str(errors[1])


@every_kind
def test_errors(kind):
    """Rows that do not fit the nodes, as in DGL; several sets of nodes."""
    graph = mixed()
    mine, other = BUILDERS[kind]()
    for rows in (graph.num_nodes() - 1, graph.num_nodes() + 1):
        errors = [raised(partial(layer, graph, draw(rows, 4))) for layer in (mine, other)]
        assert [type(error) for error in errors] == [dgl.DGLError] * 2
        assert str(errors[0]) == str(errors[1])
    for several in (two_relations(), block()):
        error = raised(partial(mine, several, draw(several.num_nodes(), 4)))
        assert isinstance(error, dgl.DGLError)
        assert "more than one node types" in str(error)


@every_pool
def test_integers_are_refused(kind):
    graph = mixed()
    mine, other = BUILDERS[kind]()
    feat = torch.ones(graph.num_nodes(), 2, dtype=torch.int64)
    assert isinstance(raised(partial(other, graph, feat)), dgl.DGLError)
    with pytest.raises(TypeError, match="of dtype float64, float32"):
        mine(graph, feat)


@every_kind
def test_our_own_graph_is_one_member(kind, device):
    graph = FULL["lone"]()
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    layer = BUILDERS[kind]()[0].to(device)
    feat = draw(graph.num_nodes(), 4).to(device)
    assert torch.equal(layer(own, feat), layer(graph, feat))


def test_our_own_graph_of_two_sets_is_refused():
    graph = dgl_flash.graph(([0, 1], [0, 1]), num_src_nodes=2, num_dst_nodes=2)
    assert not graph.is_homogeneous
    with pytest.raises(Exception, match="more than one node types"):
        ours.SumPooling()(graph, torch.ones(2, 3))


def test_frames_are_left_alone(device):
    graph = mixed()
    graph.ndata["h"] = torch.arange(graph.num_nodes())
    for build in BUILDERS.values():
        build()[0].to(device)(graph, draw(graph.num_nodes(), 4).to(device))
    assert list(graph.ndata) == ["h"]
    assert torch.equal(graph.ndata["h"], torch.arange(graph.num_nodes()))


def test_a_hub_of_a_member(device):
    """Rows enough for the work on one member to be shared."""
    graph = dgl.batch([dgl.graph(([], []), num_nodes=n) for n in (3, 40_000, 2)])
    for kind in BUILDERS:
        assert_same(BUILDERS[kind](), graph, draw(graph.num_nodes(), 4), device, ulps=512)
