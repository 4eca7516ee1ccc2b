"""PGExplainer and HeteroPGExplainer: weights, losses and training are DGL's."""

from __future__ import annotations

import dgl
import dgl.nn as theirs
import pytest
import torch

import dgl_flash
import dgl_flash.nn as ours
from tests.nn.common import draw, every_idtype, raised
from tests.nn.explain_models import (
    HIDDEN,
    WIDTH,
    Model,
    TypedModel,
    assert_same_interface,
    models,
    plain_graph,
    same,
    state_of,
    typed_features,
    typed_graph,
)

NAMES = ["PGExplainer", "HeteroPGExplainer"]
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
model_of = pytest.mark.parametrize("which", [0, 1], ids=["our layers", "DGL's layers"])
training_or_not = pytest.mark.parametrize("training", [False, True])


def explainers(name, pair, which=0, **options):
    """Ours of a model of ours or DGL's, and DGL's."""
    found = []
    for library, model in ((ours, pair[which]), (theirs, pair[1])):
        torch.manual_seed(1)
        found.append(getattr(library, name)(model, HIDDEN, **options))
    return found


def both(pair, method, *args, **kwargs):
    results = []
    for explainer in pair:
        torch.manual_seed(5)
        results.append(getattr(explainer, method)(*args, **kwargs))
    return results


def plain(pooled, idtype=torch.int64):
    return models(Model, pooled), plain_graph(idtype), draw(14, WIDTH)


def typed(pooled, idtype=torch.int64):
    graph = typed_graph(idtype)
    return models(TypedModel, pooled, graph.canonical_etypes), graph, typed_features(graph)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("graphs", [True, False])
def test_interface(name, graphs):
    assert_same_interface(name)
    mine, other = explainers(
        name, models(Model, True), num_hops=2, explain_graph=graphs, sample_bias=0.1
    )
    assert vars(mine).keys() == vars(other).keys()
    for key, value in vars(other).items():
        if not key.startswith("_"):
            assert getattr(mine, key) == value, key
    same(dict(mine.state_dict()), dict(other.state_dict()), rtol=0, atol=0)
    mine.load_state_dict(other.state_dict())
    other.load_state_dict(mine.state_dict())
    same(list(mine.parameters()), list(other.parameters()))
    assert len(list(mine.parameters())) == 4


@every_idtype
@model_of
@training_or_not
def test_graphs(training, which, idtype):
    models_of, graph, feat = plain(True, idtype)
    pair = explainers("PGExplainer", models_of, which)
    same(*both(pair, "explain_graph", graph, feat, 0.7, training), **CLOSE)
    masks = [explainer.edge_mask for explainer in pair]
    assert training or masks == [None, None]
    same(*masks, **CLOSE)
    same(*(explainer.sparse_mask_values for explainer in pair), **CLOSE)
    assert pair[0].explain_graph(graph, feat, training=training)[0].requires_grad is not training


@every_idtype
@model_of
@training_or_not
@pytest.mark.parametrize("nodes", [3, [0, 5, 9], torch.tensor([7, 1])], ids=str)
def test_nodes(nodes, training, which, idtype):
    models_of, graph, feat = plain(False, idtype)
    pair = explainers("PGExplainer", models_of, which, num_hops=2, explain_graph=False)
    same(*both(pair, "explain_node", nodes, graph, feat, 0.7, training), **CLOSE)


@every_idtype
@model_of
@training_or_not
def test_typed_graphs(training, which, idtype):
    models_of, graph, feat = typed(True, idtype)
    pair = explainers("HeteroPGExplainer", models_of, which)
    frames = {ntype: dict(graph.nodes[ntype].data) for ntype in graph.ntypes}
    torch.manual_seed(5)
    found = pair[0].explain_graph(graph, feat, 0.7, training)
    assert frames == {ntype: dict(graph.nodes[ntype].data) for ntype in graph.ntypes}
    torch.manual_seed(5)
    same(found, pair[1].explain_graph(graph, feat, 0.7, training), **CLOSE)


@every_idtype
@model_of
@training_or_not
@pytest.mark.parametrize(
    "nodes", [{"user": [0]}, {"item": torch.tensor([2, 1]), "user": [4, 1]}], ids=str
)
def test_typed_nodes(nodes, training, which, idtype):
    models_of, graph, feat = typed(False, idtype)
    pair = explainers("HeteroPGExplainer", models_of, which, num_hops=2, explain_graph=False)
    same(*both(pair, "explain_node", nodes, graph, feat, 0.7, training), **CLOSE)


def train(explainer, method, *args, steps=8):
    """A temperature that falls, as in the paper."""
    optimizer = torch.optim.Adam(explainer.parameters(), lr=0.05)
    losses = []
    torch.manual_seed(6)
    for step in range(steps):
        loss = getattr(explainer, method)(*args, 5.0 * 0.4 ** (step / steps))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), dict(explainer.elayers.state_dict())


@pytest.mark.parametrize("bias", [0.0, 0.1])
@pytest.mark.parametrize("budget", [0.01, -0.01])
@pytest.mark.parametrize("mode", [True, False])
def test_training_on_graphs(mode, budget, bias):
    """The model's own dropout is drawn in DGL's order."""
    models_of, graph, feat = plain(True)
    options = {"coff_budget": budget, "sample_bias": bias, "coff_connect": 0.1}
    pair = [explainer.train(mode) for explainer in explainers("PGExplainer", models_of, **options)]
    batched, feats = dgl.batch([graph, graph]), torch.cat([feat, feat + 1])
    found = [train(explainer, "train_step", batched, feats) for explainer in pair]
    same(*found, **CLOSE)
    assert models_of[0].calls == models_of[1].calls


@pytest.mark.parametrize("nodes", [3, [0, 5, 9]], ids=str)
def test_training_on_nodes(nodes):
    models_of, graph, feat = plain(False)
    pair = explainers("PGExplainer", models_of, num_hops=2, explain_graph=False)
    found = [train(explainer, "train_step_node", nodes, graph, feat) for explainer in pair]
    same(*found, **CLOSE)
    same(*(explainer.batched_feats for explainer in pair))


def test_training_on_typed_graphs():
    models_of, graph, feat = typed(True)
    pair = explainers("HeteroPGExplainer", models_of)
    same(*(train(explainer, "train_step", graph, feat) for explainer in pair), **CLOSE)


def test_training_on_typed_nodes():
    models_of, graph, feat = typed(False)
    nodes = {"item": [2, 1], "user": [4, 1]}
    pair = explainers("HeteroPGExplainer", models_of, num_hops=2, explain_graph=False)
    found = [train(explainer, "train_step_node", nodes, graph, feat) for explainer in pair]
    same(*found, **CLOSE)


def test_masks_of_ones_own():
    _, graph, _ = plain(True)
    pair = explainers("PGExplainer", models(Model, True))
    both(pair, "set_masks", graph)
    same(*(explainer.edge_mask for explainer in pair))
    given = draw(graph.num_edges()).sigmoid()
    for explainer in pair:
        explainer.set_masks(graph, given)
        explainer.sparse_mask_values = given
        assert torch.equal(explainer.edge_mask, given)
    prob, label = draw(4, 3).softmax(-1), torch.tensor([0, 2, 1, 1])
    before = prob.clone()
    same(*both(pair, "loss", prob, label))
    assert torch.equal(prob, before)
    both(pair, "clear_masks")
    assert pair[0].edge_mask is pair[1].edge_mask is None


@training_or_not
def test_samples(training):
    pair = explainers("PGExplainer", models(Model, True), sample_bias=0.2)
    same(*both(pair, "concrete_sample", draw(50), 0.5, training))


def test_nothing_of_the_users_is_changed():
    (model, _), graph, feat = plain(False)
    feat.requires_grad_()
    model.train()
    before, frames = state_of(model), (dict(graph.ndata), dict(graph.edata))
    (explainer, _) = explainers("PGExplainer", (model, model), num_hops=2, explain_graph=False)
    explainer.train_step_node([3, 4], graph, feat, 1.0).backward()
    assert all(parameter.grad is not None for parameter in explainer.elayers.parameters())
    explainer.explain_node([3, 4], graph, feat)
    same(state_of(model), before, rtol=0, atol=0)
    assert feat.grad is None
    assert (dict(graph.ndata), dict(graph.edata)) == frames


def test_wrong_kind_of_explanation():
    for graphs in (True, False):
        for build, name, nodes in ((plain, "PGExplainer", 3), (typed, "HeteroPGExplainer", {})):
            models_of, graph, feat = build(graphs)
            pair = explainers(name, models_of, explain_graph=graphs)
            calls = {
                "explain_node": (nodes, graph, feat),
                "train_step_node": (nodes, graph, feat, 1.0),
            }
            if not graphs:  # an explainer of nodes, and without its number of hops
                calls |= {"explain_graph": (graph, feat), "train_step": (graph, feat, 1.0)}
            for method, given in calls.items():
                mine, other = (
                    raised(lambda e=e, m=method, g=given: getattr(e, m)(*g)) for e in pair
                )
                assert type(mine) is type(other) is AssertionError
                assert str(mine) == str(other)


@pytest.mark.parametrize("ends", [([0, 1, 2], [1, 2, 3]), ([0, 1, 1], [1, 0, 2])], ids=str)
def test_edges_without_reverse(ends):
    """Where there are several, DGL fails at the text of its error."""
    (explainer, _) = explainers("PGExplainer", models(Model, True))
    error = raised(lambda: explainer.explain_graph(dgl.graph(ends), draw(max(ends[1]) + 1, WIDTH)))
    assert isinstance(error, dgl.DGLError)
    assert "PGExplainer: expected a reverse of every edge" in str(error)


def test_other_errors():
    models_of, graph, feat = plain(False)
    (explainer, _) = explainers("PGExplainer", models_of, num_hops=2, explain_graph=False)
    light = dgl_flash.graph(graph.edges(), num_nodes=14)
    error = raised(lambda: explainer.explain_node(3, light, feat))
    assert isinstance(error, TypeError)

    class Lacking(torch.nn.Module):
        def forward(self, graph, feat, embed=False, edge_weight=None):
            return {"user": feat["user"][:, :HIDDEN]}

    _, graph, feat = typed(True)
    pair = explainers("HeteroPGExplainer", (Lacking(), Lacking()))
    errors = [raised(lambda e=e: e.explain_graph(graph, feat)) for e in pair]
    assert [type(error) for error in errors] == [KeyError] * 2


@training_or_not
def test_devices(training, device):
    """The graph stays on the CPU; results are DGL's, where the features are."""
    models_of, graph, feat = plain(False)
    mine, other = explainers("PGExplainer", models_of, num_hops=2, explain_graph=False)
    mine.eval(), other.eval()
    torch.manual_seed(5)
    found = mine.explain_node([3, 9], graph, feat.to(device), 0.7, training)
    torch.manual_seed(5)
    same(found, other.explain_node([3, 9], graph, feat, 0.7, training), **CLOSE)
    assert found[0].device == found[1].device == device
    assert found[2].device == graph.device
    mine.train_step_node([3, 9], graph, feat.to(device), 0.7).backward()
    mine.set_masks(graph)
    assert mine.edge_mask.device == device

    models_of, graph, feat = typed(False)
    mine, other = explainers("HeteroPGExplainer", models_of, num_hops=2, explain_graph=False)
    there = {key: value.to(device) for key, value in feat.items()}
    nodes = {"item": [2, 1], "user": [4, 1]}
    torch.manual_seed(5)
    found = mine.explain_node(nodes, graph, there, 0.7, training)
    torch.manual_seed(5)
    same(found, other.explain_node(nodes, graph, feat, 0.7, training), **CLOSE)
    assert {mask.device for mask in found[1].values()} == {device}
    mine.train_step_node(nodes, graph, there, 0.7).backward()
