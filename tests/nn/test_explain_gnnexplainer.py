"""GNNExplainer and HeteroGNNExplainer learn DGL's masks from the same seed."""

from __future__ import annotations

import dgl
import dgl.nn as theirs
import pytest
import torch
import tqdm.auto

import dgl_flash
import dgl_flash.nn as ours
from tests.nn.common import draw, every_idtype, raised
from tests.nn.explain_models import (
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

NAMES = ["GNNExplainer", "HeteroGNNExplainer"]
EPOCHS = 15
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
model_of = pytest.mark.parametrize("which", [0, 1], ids=["our layers", "DGL's layers"])


def explain(library, name, model, method, *args, device="cpu", **kwargs):
    there = {"log": False, "num_epochs": EPOCHS, **kwargs.pop("options", {})}
    explainer = getattr(library, name)(model.to(device), 2, 0.05, **there)
    torch.manual_seed(5)
    return getattr(explainer, method)(*args, **kwargs)


@pytest.mark.parametrize("name", NAMES)
def test_interface(name):
    assert_same_interface(name)
    explainers = [
        getattr(library, name)(Model(library, False), 2, lr=0.1, alpha2=3)
        for library in (ours, theirs)
    ]
    mine, other = (vars(explainer) for explainer in explainers)
    assert mine.keys() == other.keys()
    for key in ("num_hops", "lr", "num_epochs", "alpha1", "alpha2", "beta1", "beta2", "log"):
        assert mine[key] == other[key]
    mine, other = (list(explainer.state_dict()) for explainer in explainers)
    assert mine == other


@every_idtype
@model_of
@pytest.mark.parametrize("node", [0, 3, torch.tensor([5])], ids=str)
def test_nodes(node, which, idtype):
    graph, feat = plain_graph(idtype), draw(14, WIDTH)
    node = node.to(idtype) if torch.is_tensor(node) else node
    pair = models(Model, False)
    expected = explain(theirs, "GNNExplainer", pair[1], "explain_node", node, graph, feat)
    same(
        explain(ours, "GNNExplainer", pair[which], "explain_node", node, graph, feat),
        expected,
        **CLOSE,
    )


@every_idtype
@model_of
def test_graphs(which, idtype):
    graph, feat = plain_graph(idtype), draw(14, WIDTH)
    pair = models(Model, True)
    expected = explain(theirs, "GNNExplainer", pair[1], "explain_graph", graph, feat)
    same(
        explain(ours, "GNNExplainer", pair[which], "explain_graph", graph, feat), expected, **CLOSE
    )


@every_idtype
@model_of
@pytest.mark.parametrize("ntype", ["user", "item"])
@pytest.mark.parametrize("node", [0, 3])
def test_typed_nodes(ntype, node, which, idtype):
    graph = typed_graph(idtype)
    given = ("explain_node", ntype, node, graph, typed_features(graph))
    pair = models(TypedModel, False, graph.canonical_etypes)
    expected = explain(theirs, "HeteroGNNExplainer", pair[1], *given)
    same(explain(ours, "HeteroGNNExplainer", pair[which], *given), expected, **CLOSE)


@every_idtype
@model_of
def test_typed_graphs(which, idtype):
    graph = typed_graph(idtype)
    given = ("explain_graph", graph, typed_features(graph))
    pair = models(TypedModel, True, graph.canonical_etypes)
    expected = explain(theirs, "HeteroGNNExplainer", pair[1], *given)
    same(explain(ours, "HeteroGNNExplainer", pair[which], *given), expected, **CLOSE)


def test_a_type_without_edges_or_nodes():
    """Within one hop of an item there are no edges between users."""
    graph = typed_graph()
    given = ("explain_node", "item", 3, graph, typed_features(graph))
    pair = models(TypedModel, False, graph.canonical_etypes)
    found, expected = (
        library.HeteroGNNExplainer(model, 1, num_epochs=5, log=False)
        for library, model in zip((ours, theirs), pair, strict=True)
    )
    results = []
    for explainer in (found, expected):
        torch.manual_seed(5)
        results.append(explainer.explain_node(*given[1:]))
    assert len(results[0][3]["user", "knows", "user"]) == 0
    same(*results, **CLOSE)


@pytest.mark.parametrize(
    "options", [{"alpha1": 0.5}, {"alpha2": 0.0}, {"beta1": 0.0}, {"beta2": 3.0}], ids=str
)
def test_coefficients(options):
    graph, feat = plain_graph(), draw(14, WIDTH)
    found, expected = (
        explain(library, "GNNExplainer", model, "explain_graph", graph, feat, options=options)
        for library, model in zip((ours, theirs), models(Model, True), strict=True)
    )
    same(found, expected, **CLOSE)


@pytest.mark.parametrize("shape", [(14, 4), (1, 4), ()], ids=str)
def test_further_arguments(shape):
    """A tensor with a row for each node is cut down to the subgraph."""
    graph, feat, shift = plain_graph(), draw(14, WIDTH), torch.full(shape, 0.5)
    pair = models(Model, False)
    found = explain(ours, "GNNExplainer", pair[0], "explain_node", 3, graph, feat, shift=shift)
    size = found[1].num_nodes()
    assert size < 14
    kept = (size, 4) if shape == (14, 4) else shape
    assert {call[2] for call in pair[0].calls} == {torch.Size(kept)}
    if shape:  # DGL asks a number for its rows
        expected = explain(
            theirs, "GNNExplainer", pair[1], "explain_node", 3, graph, feat, shift=shift
        )
        same(found, expected, **CLOSE)
        assert pair[0].calls == pair[1].calls


def test_one_feature():
    pair = [torch.nn.Linear(1, 2) for _ in range(2)]
    pair[1].load_state_dict(pair[0].state_dict())

    class Narrow(torch.nn.Module):
        def __init__(self, linear):
            super().__init__()
            self.linear = linear

        def forward(self, graph, feat, eweight=None):
            return self.linear(feat)

    found, expected = (
        explain(
            library, "GNNExplainer", Narrow(part), "explain_node", 1, plain_graph(), draw(14, 1)
        )
        for library, part in zip((ours, theirs), pair, strict=True)
    )
    assert found[2].shape == ()
    same(found, expected, **CLOSE)


@pytest.mark.parametrize("training", [True, False])
def test_nothing_of_the_users_is_changed(training):
    graph, feat = plain_graph(), draw(14, WIDTH).requires_grad_()
    model = models(Model, False)[0].train(training)
    model.first.train(False)
    before, frames = state_of(model), (dict(graph.ndata), dict(graph.edata))
    with torch.no_grad():
        explain(ours, "GNNExplainer", model, "explain_node", 3, graph, feat)
    same(state_of(model), before, rtol=0, atol=0)
    assert feat.grad is None
    assert (dict(graph.ndata), dict(graph.edata)) == frames


def test_modes_return_after_an_error():
    model = models(Model, False)[0].train()
    raised(
        lambda: explain(ours, "GNNExplainer", model, "explain_node", 3, plain_graph(), draw(14, 9))
    )
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_types_of_features(dtype):
    """Masks stay in float32."""
    graph, feat = plain_graph(), draw(14, WIDTH).to(dtype)
    model, usual = models(Model, False)
    found = explain(ours, "GNNExplainer", model.to(dtype), "explain_node", 3, graph, feat)
    expected = explain(ours, "GNNExplainer", usual, "explain_node", 3, graph, feat.float())
    same(found[2:], expected[2:], rtol=0.1, atol=0.05)


def test_progress_bars(monkeypatch):
    seen = []

    class Bar:
        def __init__(self, total, desc):
            seen.append((total, desc))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            seen.append("closed")

        def update(self):
            seen.append(1)

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    model, options = models(Model, False)[0], {"log": True, "num_epochs": 2}
    given = (3, plain_graph(), draw(14, WIDTH))
    explain(ours, "GNNExplainer", model, "explain_node", *given, options=options)
    assert seen == [(2, "Explain node 3"), 1, 1, "closed"]


def test_our_own_graphs():
    graph, feat = plain_graph(), draw(14, WIDTH)
    light = dgl_flash.graph(graph.edges(), num_nodes=14)
    model = models(Model, True)[0]
    found, expected = (
        explain(ours, "GNNExplainer", model, "explain_graph", each, feat) for each in (light, graph)
    )
    same(found, expected, **CLOSE)
    error = raised(lambda: explain(ours, "GNNExplainer", model, "explain_node", 3, light, feat))
    assert isinstance(error, TypeError)
    assert "expected `graph` to be a DGLGraph" in str(error)


def test_errors():
    graph, feat = plain_graph(), draw(14, WIDTH)
    mine, other = models(Model, False)
    errors = [
        raised(
            lambda lib=lib, m=m: explain(lib, "GNNExplainer", m, "explain_node", 99, graph, feat)
        )
        for lib, m in ((ours, mine), (theirs, other))
    ]
    assert [type(error) for error in errors] == [dgl.DGLError] * 2
    for name, given in (("GNNExplainer", feat[0]), ("HeteroGNNExplainer", {"_N": feat[0]})):
        error = raised(lambda n=name, f=given: explain(ours, n, mine, "explain_graph", graph, f))
        assert isinstance(error, ValueError)
        assert f"{name}: expected `feat`" in str(error)
    typed = typed_graph()
    model = models(TypedModel, False, typed.canonical_etypes)[0]
    lacking = {"user": typed_features(typed)["user"]}
    error = raised(
        lambda: explain(
            ours, "HeteroGNNExplainer", model, "explain_node", "user", 0, typed, lacking
        )
    )
    assert isinstance(error, KeyError)


def test_devices(device):
    """The graph stays on the CPU; results are where the features are."""
    graph, feat = plain_graph(), draw(14, WIDTH).to(device)
    model = models(Model, False)[0]
    center, sg, *masks = explain(
        ours, "GNNExplainer", model, "explain_node", 3, graph, feat, device=device
    )
    assert center.device == sg.device == graph.device
    typed = typed_graph()
    feats = {key: value.to(device) for key, value in typed_features(typed).items()}
    model = models(TypedModel, False, typed.canonical_etypes)[0]
    *_, feat_masks, edge_masks = explain(
        ours, "HeteroGNNExplainer", model, "explain_node", "item", 0, typed, feats, device=device
    )
    for mask in (*masks, *feat_masks.values(), *edge_masks.values()):
        assert mask.device == feat.device
        assert ((mask > 0) & (mask < 1)).all()
