"""JumpingKnowledge, Sequential and WeightBasis give DGL's results, gradients and errors."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from functools import partial

import dgl_flash
import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from dgl.base import DGLWarning
from torch import nn

from tests.graphs import block, random_graph, regular, two_relations
from tests.nn.common import draw, raised, randomise, twins
from tests.numerics import assert_accurate, outputs_and_grads

JUMP = partial(twins, "JumpingKnowledge")
MODES = {"cat": ("cat",), "max": ("max",), "lstm": ("lstm", 5, 3), "odd": ("lstm", 5, 4)}
every_mode = pytest.mark.parametrize("mode", MODES)


def outputs(mode, count=12):
    number = 4 if mode == "odd" else 3
    return {f"h{i}": draw(count, 5, seed=i) for i in range(number)}


def run(module, given, device, dtype):
    module = module.to(device=device, dtype=dtype)
    module.zero_grad(set_to_none=True)
    there = {key: value.to(device, dtype, copy=True) for key, value in given.items()}
    found = outputs_and_grads(lambda **feats: module(list(feats.values())), there)
    # The bias of the scores moves them all alike.
    named = [(key, p) for key, p in module.named_parameters() if key != "att.bias"]
    return found | {f"grad_{key}": p.grad.clone() for key, p in named}


@every_mode
@pytest.mark.parametrize("count", [0, 1, 12])
def test_layers_are_combined(mode, count, device):
    mine, other = JUMP(*MODES[mode])
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    given = outputs(mode, count)
    found = run(mine, given, device, torch.float32)
    usual = run(other, given, "cpu", torch.float32)
    exact = run(other, given, "cpu", torch.float64)
    for key, value in found.items():
        judged = (value.cpu(), usual[key], exact[key])
        assert_accurate(*(tensor.reshape(1, -1) for tensor in judged), what=key, ulps=64)
    assert found.keys() == exact.keys()


def test_equal_maxima(device):
    """As in DGL, one of them gets the gradient."""
    grads = []
    for layer, where in zip(JUMP("max"), (device, "cpu"), strict=True):
        feats = [torch.ones(4, 3, device=where, requires_grad=True) for _ in range(3)]
        layer(feats).sum().backward()
        grads.append([feat.grad.cpu() for feat in feats])
    for found, wanted in zip(*grads, strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("mode", ["cat", "max"])
def test_more_dimensions_and_other_dtypes(mode, device):
    mine, other = JUMP(mode)
    for feats in (
        [draw(4, 3, 2), draw(4, 3, 2, seed=1)],
        (draw(4, 3).half(), draw(4, 3, seed=1).half()),
        [torch.arange(6).view(3, 2), torch.ones(3, 2, dtype=torch.int64)],
        [torch.tensor([[float("nan"), 1.0]]), torch.tensor([[2.0, float("inf")]])],
    ):
        found = mine([feat.to(device) for feat in feats])
        assert torch.equal(found.cpu().nan_to_num(), other(feats).nan_to_num())
        assert found.dtype == feats[0].dtype
    if mode == "cat":
        feats = [draw(4, 3), draw(4, 5)]
        assert torch.equal(mine(feats), other(feats))


@pytest.mark.parametrize(
    "arguments", [("sum",), ("lstm",), ("lstm", 4), ("lstm", None, 4), ("lstm", 1, 1)], ids=str
)
def test_wrong_options(arguments):
    mine, other = (raised(partial(lib.JumpingKnowledge, *arguments)) for lib in (ours, theirs))
    assert (type(mine), str(mine)) == (type(other), str(other))


@every_mode
@pytest.mark.parametrize(
    "feats",
    [[], None, [1], torch.ones(2, 5), [torch.ones(3, 5), torch.ones(2, 5)], [torch.ones(3)] * 3],
    ids=["none", "None", "number", "tensor", "rows", "vectors"],
)
def test_wrong_outputs(mode, feats):
    mine, other = JUMP(*MODES[mode])
    try:
        expected = other(feats)
    except Exception as error:
        assert type(raised(partial(mine, feats))) is type(error)
    else:
        torch.testing.assert_close(mine(feats), expected)


class Both(nn.Module):
    """A layer that takes and returns features of nodes and of edges."""

    def forward(self, graph, feat, edge_feat):
        return 2 * feat, edge_feat + graph.num_edges()


def of_two(library, first=(5, 4), second=(4, 3)):
    torch.manual_seed(7)
    layers = OrderedDict(one=library.GraphConv(*first), two=library.GraphConv(*second))
    return library.Sequential(layers)


def test_one_graph(device):
    graph, feat = regular(), draw(10, 5)
    mine, other = of_two(ours).to(device), of_two(theirs)
    found, expected = mine(graph, feat.to(device)), other(graph, feat)
    torch.testing.assert_close(found.cpu(), expected)
    for out in (found, expected):
        out.square().sum().backward()
    for parameter, wanted in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-5)
    assert list(mine.state_dict()) == list(other.state_dict())
    assert repr(mine) == repr(other)


def test_our_graphs(device):
    graph, feat = regular(), draw(10, 5).to(device)
    container = dgl_flash.graph(graph.edges(order="eid"), num_nodes=10)
    layer = of_two(ours).to(device)
    expected = layer(graph, feat)
    for other in (container, dgl_flash.structure.structure(container)):
        torch.testing.assert_close(layer(other, feat), expected)
        torch.testing.assert_close(layer([other, graph], feat), expected)


def test_a_graph_for_each_layer(device):
    graphs = [dgl.add_self_loop(random_graph(10, 40, seed=seed)) for seed in range(3)]
    mine, other = of_two(ours).to(device), of_two(theirs)
    feat = draw(10, 5)
    # With fewer or more graphs than layers, the shorter decides.
    for given in (graphs[:2], graphs[1:], graphs, graphs[:1]):
        torch.testing.assert_close(mine(given, feat.to(device)).cpu(), other(given, feat))
    for layer in (mine, other):
        found = layer([], feat)
        assert isinstance(found, tuple)
        assert found[0] is feat


def test_several_features():
    graph, given = regular(), (draw(10, 5), draw(30, 2))
    for feats in (graph, [graph, graph]):
        mine, other = (lib.Sequential(Both(), Both())(feats, *given) for lib in (ours, theirs))
        assert isinstance(mine, tuple)
        for found, wanted in zip(mine, other, strict=True):
            assert torch.equal(found, wanted)


def test_blocks_and_heterographs():
    class Rows(nn.Module):
        def forward(self, graph, feat):
            return feat + graph.num_edges()

    for graph in (block(), two_relations()):
        mine, other = (
            lib.Sequential(Rows(), Rows())(graph, torch.ones(2)) for lib in (ours, theirs)
        )
        assert torch.equal(mine, other)


def test_no_layers_and_slices():
    graph, feat = regular(), draw(10, 5)
    for library in (ours, theirs):
        assert library.Sequential()(graph, feat) == (feat,)
        part = of_two(library)[:1]
        assert type(part) is library.Sequential
        assert part(graph, feat).shape == (10, 4)


@pytest.mark.parametrize("graph", [None, torch.ones(3), (regular(), regular()), "graph"], ids=str)
def test_what_is_no_graph(graph):
    mine, other = (raised(partial(of_two(lib), graph, draw(10, 5))) for lib in (ours, theirs))
    assert (type(mine), str(mine)) == (type(other), str(other))
    assert type(mine) is TypeError


@pytest.mark.parametrize("shape", [(4, 5), (4,), [2, 3, 4], torch.Size([3, 1])], ids=str)
@pytest.mark.parametrize("sizes", [(2, 6), (1, 2)], ids=str)
def test_weights_share_a_basis(shape, sizes, device):
    mine, other = twins("WeightBasis", shape, *sizes)
    found, expected = mine.to(device)(), other()
    torch.testing.assert_close(found.cpu(), expected)
    for out in (found, expected):
        out.square().sum().backward()
    for parameter, wanted in zip(mine.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), wanted.grad, rtol=1e-4, atol=1e-5)


def test_second_derivatives_of_the_basis(device):
    layer = ours.WeightBasis((2, 3), 2, 4).double().to(device)

    def call(*values):
        names = dict(zip(("weight", "w_comp"), values, strict=True))
        return torch.func.functional_call(layer, names, ())

    values = [parameter.detach().requires_grad_() for parameter in layer.parameters()]
    assert torch.autograd.gradgradcheck(call, values)


@pytest.mark.parametrize("num_outputs", [1, 2, 3])
def test_a_basis_that_saves_nothing(num_outputs):
    texts = []
    for library in (ours, theirs):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            library.WeightBasis((4, 5), 2, num_outputs)
        texts.append([(warning.category, str(warning.message)) for warning in caught])
        for warning in caught if library is ours else ():
            assert warning.filename == __file__
    assert texts[0] == texts[1]
    assert texts[0] == [] or texts[0][0][0] is DGLWarning


def test_a_basis_of_numbers_is_refused():
    mine, other = (raised(partial(lib.WeightBasis, (), 2, 3)) for lib in (ours, theirs))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("name", ["JumpingKnowledge", "Sequential", "WeightBasis"])
def test_modules_of_the_classes(name):
    assert getattr(ours, name) is getattr(ours.utils, name)
    assert getattr(ours, name).__module__ == "dgl_flash.nn.utils"
