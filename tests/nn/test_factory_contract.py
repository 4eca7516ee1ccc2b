"""The graphs of points have DGL's interface, feed layers, and do without DGL."""

from __future__ import annotations

import copy
import inspect
import subprocess
import sys

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch

import dgl_flash
from dgl_flash.nn import point_graphs
from tests.nn.common import draw, twins
from tests.nn.test_contract import parameters

LAYERS = {"KNNGraph": (3,), "SegmentedKNNGraph": (3,), "RadiusGraph": (0.5, 1, True)}
FUNCTIONS = ["knn_graph", "segmented_knn_graph", "radius_graph"]
every_layer = pytest.mark.parametrize("name", LAYERS)


@every_layer
@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_signatures(name, method):
    mine, other = (getattr(getattr(lib, name), method) for lib in (ours, theirs))
    assert parameters(mine) == parameters(other)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name))
    assert getattr(ours, name).__module__ == "dgl_flash.nn.factory"
    assert inspect.getdoc(getattr(ours, name))


@every_layer
def test_layers(name):
    mine, other = twins(name, *LAYERS[name])
    assert type(mine).__module__ == "dgl_flash.nn.factory"
    assert repr(mine) == repr(other)
    assert list(mine.state_dict()) == list(other.state_dict()) == []
    public = [{key for key in vars(layer) if not key.startswith("_")} for layer in (mine, other)]
    assert public[0] == public[1]
    for key in public[0] - {"training"}:
        assert getattr(mine, key) == getattr(other, key)
    assert repr(copy.deepcopy(mine)) == repr(mine)


@pytest.mark.parametrize("shape", [(20, 3), (2, 20, 3), (0, 3), (2, 0, 3)], ids=str)
def test_squared_distances(shape, device):
    x = draw(*shape).double().to(device).requires_grad_()
    found = ours.pairwise_squared_distance(x)
    expected = theirs.pairwise_squared_distance(x)
    torch.testing.assert_close(found, expected)
    weights = draw(*found.shape).to(found)
    grads = [torch.autograd.grad((out * weights).sum(), x)[0] for out in (found, expected)]
    torch.testing.assert_close(*grads)


def test_squared_distances_of_integers():
    x = (9 * draw(20, 3)).long()
    assert ours.pairwise_squared_distance(x).equal(theirs.pairwise_squared_distance(x))


def test_squared_distances_far_from_the_origin(device):
    x = draw(20, 3) + 4096
    exact = theirs.pairwise_squared_distance(x.double())
    found = ours.pairwise_squared_distance(x.to(device)).cpu().double()
    usual = theirs.pairwise_squared_distance(x).double()
    assert (found - exact).abs().max() < (usual - exact).abs().max() / 100


def test_points_that_need_gradients(device):
    """Which points are near has no derivative."""
    x = draw(20, 3).to(device).requires_grad_()
    for graph in (ours.KNNGraph(3)(x), ours.RadiusGraph(1.0)(x)):
        assert not any(end.requires_grad for end in graph.edges())
    assert x.grad is None


def test_a_layer_takes_the_graph(device):
    """With features on CUDA too, where the graph stays on the CPU."""
    x = draw(2, 20, 3).to(device)
    layer = ours.EdgeConv(3, 4).to(device)
    feat = x.flatten(0, 1)
    out = layer(ours.KNNGraph(3)(x), feat)
    assert out.shape == (40, 4) and out.device == feat.device
    pooled = ours.SumPooling()(ours.KNNGraph(3)(x), out)
    torch.testing.assert_close(pooled, out.reshape(2, 20, 4).sum(1))


def test_without_dgl(device, monkeypatch):
    """Same edges, in a graph of our own, which lies where the points do."""
    x = draw(20, 3).to(device)
    calls = (
        lambda: ours.KNNGraph(3)(x),
        lambda: ours.SegmentedKNNGraph(3)(x, [8, 12]),
        lambda: ours.RadiusGraph(1.0)(x),
        lambda: ours.RadiusGraph(1e-9)(x),
    )
    expected = [call() for call in calls]
    monkeypatch.setattr(point_graphs, "_working_dgl", lambda: None)
    for call, usual in zip(calls, expected, strict=True):
        graph = call()
        assert type(graph) is dgl_flash.Graph and type(usual) is dgl.DGLGraph
        assert graph.num_nodes() == usual.num_nodes() == 20
        assert graph.device == x.device and graph.idtype == usual.idtype
        for mine, other in zip(graph.edges(), usual.edges(order="eid"), strict=True):
            assert torch.equal(mine.cpu(), other)


@pytest.mark.parametrize(
    ("before", "kind"),
    [("", "dgl.heterograph.DGLGraph"), ("sys.modules['dgl'] = None", "dgl_flash.structure")],
)
def test_dgl_is_imported_where_it_is_needed(before, kind):
    code = f"""
import sys
{before}
import torch
from dgl_flash.nn import KNNGraph, RadiusGraph
assert sys.modules.get("dgl") is None
x = torch.randn(10, 3)
for graph in (KNNGraph(3)(x), RadiusGraph(1.0)(x)):
    name = f"{{type(graph).__module__}}.{{type(graph).__name__}}"
    assert name.startswith({kind!r}), name
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
