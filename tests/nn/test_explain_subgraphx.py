"""SubgraphX and HeteroSubgraphX search as DGL's would, if it worked under a current NumPy."""

from __future__ import annotations

import inspect
import types

import dgl
import dgl.nn as theirs
import numpy as np
import pytest
import torch
from dgl.nn.pytorch.explain import subgraphx as of_dgl
from torch import nn

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

NAMES = ["SubgraphX", "HeteroSubgraphX"]
FAST = {"num_rollouts": 4, "num_child": 5, "shapley_steps": 6}
FEW = {"num_rollouts": 2, "num_child": 3, "shapley_steps": 2}
model_of = pytest.mark.parametrize("which", [0, 1], ids=["our layers", "DGL's layers"])

# What DGL 2.1.0 has wrong, and what is meant. The sums of the types of nodes are what it counts.
MENDED = {
    "np.where(permuted_space == split_point)[0]": "np.where(permuted_space == split_point)[0][0]",
    " exclude_mask[ntype][subgn] = 1.0": " include_mask[ntype][subgn] = 1.0",
    "if len(mcts_node.nodes) > self.node_min": "if size_of(mcts_node) > self.node_min",
}


def size_of(mcts_node):
    nodes = mcts_node.nodes
    return sum(map(len, nodes.values())) if isinstance(nodes, dict) else len(nodes)


@pytest.fixture(scope="module")
def mended():
    """DGL's module with these three mended."""
    source = inspect.getsource(of_dgl)
    for wrong, right in MENDED.items():
        assert wrong in source
        source = source.replace(wrong, right)
    module = types.ModuleType(of_dgl.__name__)
    module.__package__ = of_dgl.__package__
    module.size_of = size_of
    exec(compile(source, "mended", "exec"), vars(module))
    return module


def explain(library, name, model, *args, options=(), **kwargs):
    explainer = getattr(library, name)(model, **{"num_hops": 2, **FAST, **dict(options)})
    np.random.seed(4)
    return explainer, explainer.explain_graph(*args, **kwargs)


def ids_of(nodes):
    if isinstance(nodes, dict):
        return {ntype: sorted(ids.tolist()) for ntype, ids in nodes.items()}
    return nodes.tolist()


def tree(explainer):
    """Every subgraph that was met, with all that is known of it."""
    nodes = explainer.mcts_node_maps.values()
    places = [
        (ids_of(node.nodes), node.num_visit, [ids_of(child.nodes) for child in node.children])
        for node in nodes
    ]
    return places, torch.tensor([(node.total_reward, node.immediate_reward) for node in nodes])


def assert_same(found, expected):
    same(tree(found[0]), tree(expected[0]))
    same(found[1], expected[1])


@pytest.mark.parametrize("name", NAMES)
def test_interface(name):
    assert_same_interface(name)
    mine, other = (getattr(library, name)(Model(library, True), 3) for library in (ours, theirs))
    assert vars(mine).keys() == vars(other).keys()
    for key, value in vars(other).items():
        assert key.startswith("_") or getattr(mine, key) == value, key
    assert list(mine.state_dict()) == list(other.state_dict())


class Dense(nn.Module):
    """Two layers in plain torch, for the many calls of a search."""

    def __init__(self, graph):
        super().__init__()
        flat = graph if graph.is_homogeneous else dgl.to_homogeneous(graph)
        self.near = torch.eye(flat.num_nodes())
        self.near[tuple(ends.long() for ends in flat.edges())] += 1
        self.weight = draw(WIDTH, 3)

    def forward(self, graph, feat):
        feat = torch.cat([*feat.values()]) if isinstance(feat, dict) else feat
        return (self.near @ (self.near @ feat @ self.weight).tanh()).mean(0, keepdim=True)


@every_idtype
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"high2low": False},
        {"num_hops": 1},
        {"num_hops": 3, "coef": 0.5},
        {"node_min": 1},
        {"num_child": 50, "node_min": 5},
    ],
    ids=str,
)
def test_the_same_search(name, options, idtype, mended):
    if name == "SubgraphX":
        graph, feat = plain_graph(idtype), draw(14, WIDTH)
    else:
        graph = typed_graph(idtype)
        feat = typed_features(graph)
    given = (name, Dense(graph), graph, feat, 1)
    expected = explain(mended, *given, options=options)
    drawn = np.random.random()
    assert_same(explain(ours, *given, options=options), expected)
    assert np.random.random() == drawn  # as many numbers were drawn before


@model_of
def test_layers(which, mended):
    graph, pair = plain_graph(), models(Model, True)
    given = (graph, draw(14, WIDTH), 1)
    expected = explain(mended, "SubgraphX", pair[1], *given, options=FEW)
    assert_same(explain(ours, "SubgraphX", pair[which], *given, options=FEW), expected)

    graph = typed_graph()
    pair = models(TypedModel, True, graph.canonical_etypes)
    given = (graph, typed_features(graph), 1)
    expected = explain(mended, "HeteroSubgraphX", pair[1], *given, options=FEW)
    assert_same(explain(ours, "HeteroSubgraphX", pair[which], *given, options=FEW), expected)


class Planted(nn.Module):
    """The class is what the features of some nodes say, which have to be seen together."""

    def __init__(self, ids):
        super().__init__()
        self.ids = ids

    def forward(self, graph, feat, scale=4.0):
        if isinstance(feat, dict):
            seen = torch.stack([feat[ntype][i, 0] for ntype, i in self.ids]).prod()
        else:
            seen = feat[self.ids, 0].prod()
        return torch.stack([-scale * seen, scale * seen]).unsqueeze(0)


def test_a_planted_subgraph_is_found():
    graph = dgl.to_bidirected(dgl.graph((torch.arange(9), torch.arange(1, 10))))
    options = {"num_rollouts": 30, "shapley_steps": 20, "node_min": 3}
    _, nodes = explain(
        ours, "SubgraphX", Planted([4, 5, 6]), graph, torch.ones(10, 1), 1, options=options
    )
    assert nodes.tolist() == [4, 5, 6]


def test_a_planted_subgraph_of_several_types_is_found():
    path = (torch.arange(5), torch.arange(5)), (torch.arange(4), torch.arange(1, 5))
    graph = dgl.heterograph({("a", "to", "b"): path[0], ("b", "back", "a"): path[1]})
    feat = {ntype: torch.ones(5, 1) for ntype in graph.ntypes}
    model = Planted([("a", 2), ("b", 2), ("a", 3)])
    options = {"num_rollouts": 30, "shapley_steps": 20, "node_min": 3}
    _, nodes = explain(ours, "HeteroSubgraphX", model, graph, feat, 1, options=options)
    assert {ntype: ids.tolist() for ntype, ids in nodes.items()} == {"a": [2, 3], "b": [2]}


def test_types_without_edges_between_them(mended):
    """What is left may have no edge: then one node of it is drawn."""
    graph = dgl.heterograph(
        {("a", "to", "b"): ([0, 0, 0], [0, 1, 2]), ("b", "back", "a"): ([0, 1, 2], [0, 0, 0])}
    )
    feat = {"a": draw(1, 2), "b": draw(3, 2)}
    model = nn.Module()
    model.forward = lambda graph, feat: sum(part.sum(0, keepdim=True) for part in feat.values())
    found, expected = (
        explain(library, "HeteroSubgraphX", model, graph, feat, 1, options={"node_min": 2})
        for library in (ours, mended)
    )
    assert any(len(node.nodes) == 1 for node in found[0].mcts_node_maps.values())
    assert_same(found, expected)


def test_deep_and_wide_trees():
    """Deeper than Python's recursion, of more nodes than torch prints."""
    count = 1200
    graph = dgl.to_bidirected(dgl.graph((torch.arange(count - 1), torch.arange(1, count))))
    model = nn.Module()
    model.forward = lambda graph, feat: feat.sum(0, keepdim=True).log_softmax(-1)
    options = {"num_rollouts": 1, "num_child": 1, "shapley_steps": 1, "high2low": False}
    explainer, nodes = explain(
        ours, "SubgraphX", model, graph, draw(count, 2) / 40, 1, options=options
    )
    assert len(nodes) == 3
    assert len(explainer.mcts_node_maps) == count - 2


def test_further_arguments_and_text(capsys):
    graph = dgl.to_bidirected(dgl.graph(([0, 1, 2, 3], [1, 2, 3, 4])))
    given = (Planted([1, 2]), graph, torch.ones(5, 1), 1)
    options = {"num_rollouts": 2, "log": True}
    explainer, _ = explain(ours, "SubgraphX", *given, scale=0.0, options=options)
    assert all(node.immediate_reward == 0 for node in explainer.mcts_node_maps.values())
    assert "Rollout 1/2, " in capsys.readouterr().out
    explain(ours, "SubgraphX", *given, options={"num_rollouts": 2})
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_types_of_features(dtype):
    """Masked features keep their type."""
    graph, feat = plain_graph(), draw(14, WIDTH).to(dtype)
    explain(ours, "SubgraphX", models(Model, True)[0].to(dtype), graph, feat, 1, options=FEW)


def test_nothing_of_the_users_is_changed():
    graph, feat = plain_graph(), draw(14, WIDTH).requires_grad_()
    model = models(Model, True)[0].train()
    model.first.train(False)
    before, frames = state_of(model), (dict(graph.ndata), dict(graph.edata))
    explain(ours, "SubgraphX", model, graph, feat, 1, options=FEW)
    same(state_of(model), before, rtol=0, atol=0)
    assert feat.grad is None
    assert (dict(graph.ndata), dict(graph.edata)) == frames


def test_errors():
    graph, feat = plain_graph(), draw(14, WIDTH)
    model = models(Model, True)[0]

    def error(*given, **options):
        return raised(lambda: explain(ours, "SubgraphX", model, *given, options=options))

    assert isinstance(error(graph, feat, 1, node_min=14), AssertionError)
    assert isinstance(
        raised(lambda: theirs.SubgraphX(model, 2, node_min=14).explain_graph(graph, feat, 1)),
        AssertionError,
    )
    assert isinstance(error(dgl_flash.graph(graph.edges()), feat, 1), TypeError)
    for given in ({"num_rollouts": 0}, {}):
        found = error(graph, feat if given else feat * float("nan"), 1, **given)
        assert isinstance(found, ValueError)
        assert "no subgraph was found" in str(found)


def test_devices(device):
    """The graph stays on the CPU."""
    graph, typed = plain_graph(), typed_graph()
    feats = {key: value.to(device) for key, value in typed_features(typed).items()}
    model = models(Model, True)[0].to(device)
    _, nodes = explain(ours, "SubgraphX", model, graph, draw(14, WIDTH).to(device), 1, options=FEW)
    assert nodes.device == graph.device
    model = models(TypedModel, True, typed.canonical_etypes)[0].to(device)
    _, nodes = explain(ours, "HeteroSubgraphX", model, typed, feats, 1, options=FEW)
    assert {ids.device for ids in nodes.values()} == {typed.device}
    assert {ids.dtype for ids in nodes.values()} == {typed.idtype}
