"""GroupRevRes computes what DGL's does, as exactly as if nothing had been rebuilt."""

from __future__ import annotations

import copy
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.func import functional_call

from tests.graphs import random_graph, regular, zoo
from tests.nn.common import assert_same, draw, every_idtype, ours, raised, theirs
from tests.nn.common import homogeneous_graph as every_graph

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")


class OnCopies(nn.Module):
    """Gives DGL a copy to free, and keeps one of what it will free."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, graph, feat, **args):
        return self.layer(graph, feat.clone(), *args.values()).clone()


def pair(make, groups):
    layers = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        layers.append(OnCopies(library.GroupRevRes(make(library), groups)))
    return tuple(layers)


def gcn(library, width=4, **options):
    return library.GraphConv(width, width, activation=torch.tanh, **options)


class Normalised(nn.Module):
    """A layer as in the paper: normalisation, dropout and convolution."""

    def __init__(self, width=4, dropout=0.0, norm=nn.BatchNorm1d):
        super().__init__()
        self.norm = norm(width)
        self.dropout = nn.Dropout(dropout)
        self.conv = ours.GraphConv(width, width)

    def forward(self, graph, feat):
        return self.conv(graph, self.dropout(self.norm(feat).relu()))


class Plain(nn.Module):
    """The formula, without any tricks."""

    def __init__(self, layer):
        super().__init__()
        self.gnn_modules = copy.deepcopy(layer.gnn_modules)

    def forward(self, graph, x, *args):
        groups = len(self.gnn_modules)
        xs = x.chunk(groups, -1)
        y, ys = sum(xs[1:]), []
        for i, module in enumerate(self.gnn_modules):
            y = xs[i] + module(graph, y, *(arg.chunk(groups, -1)[i] for arg in args))
            ys.append(y)
        return torch.cat(ys, -1)


def results(layers, graph, x, *args, seed=3):
    """Outputs and all gradients of a chain of layers."""
    x, *args = (t.detach().clone().requires_grad_() for t in (x, *args))
    torch.manual_seed(seed)
    out = x
    for layer in layers:
        layer.zero_grad(set_to_none=True)
        out = layer(graph, out, *args)
    value = out.detach().clone()
    (out.float() * draw(*out.shape, seed=9).to(out.device)).sum().backward()
    parameters = [p.grad for layer in layers for p in layer.parameters()]
    return [value, *(t.grad for t in (x, *args)), *parameters]


def assert_plain(layers, graph, x, *args, **tolerance):
    found = results(layers, graph, x, *args)
    expected = results([Plain(layer).to(x.device) for layer in layers], graph, x, *args)
    for value, wanted in zip(found, expected, strict=True):
        assert (value is None) == (wanted is None)
        if wanted is not None:
            torch.testing.assert_close(value, wanted, **tolerance)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    layers = pair(partial(gcn, allow_zero_in_degree=True), 2)
    assert_same(layers, graph, draw(graph.num_nodes(), 8), device)


@every_idtype
@pytest.mark.parametrize("groups", [2, 3, 5])
def test_groups(groups, idtype, device):
    graph = regular(idtype)
    assert_same(pair(gcn, groups), graph, draw(10, 4 * groups), device)


MODULES = {
    "GraphConv": gcn,
    "SAGEConv": lambda library: library.SAGEConv(4, 4, "mean"),
    "TAGConv": lambda library: library.TAGConv(4, 4),
    "GINConv": lambda library: library.GINConv(nn.Linear(4, 4), learn_eps=True),
    "GatedGraphConv": lambda library: library.GatedGraphConv(4, 4, 2, 1),
}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_any_layer(module, device):
    args = (torch.zeros(30, dtype=torch.int64),) if module == "GatedGraphConv" else ()
    if args:
        make = lambda library: WithTypes(MODULES[module](library), *args)  # noqa: E731
    else:
        make = MODULES[module]
    assert_same(pair(make, 2), regular(), draw(10, 8), device)


class WithTypes(nn.Module):
    def __init__(self, layer, etypes):
        super().__init__()
        self.layer, self.etypes = layer, etypes

    def forward(self, graph, feat):
        return self.layer(graph, feat, self.etypes.to(feat.device))


class Weighted(nn.Module):
    """Takes an edge weight for each of its features."""

    def __init__(self, library):
        super().__init__()
        self.conv = library.GraphConv(4, 4)

    def forward(self, graph, feat, edge_weight):
        return self.conv(graph, feat, edge_weight=edge_weight)


def test_further_arguments_are_split_too(device):
    assert_same(pair(Weighted, 2), regular(), draw(10, 8), device, edge_weight=draw(30, 8, seed=2))


def test_arguments_that_are_no_tensors_go_to_each_group(device):
    layer = ours.GroupRevRes(Weighted(ours), 2).to(device)
    x = draw(10, 8).to(device)
    expected = ours.GroupRevRes(layer.gnn_modules[0].conv, 2)
    expected.gnn_modules[1].load_state_dict(layer.gnn_modules[1].conv.state_dict())
    torch.testing.assert_close(layer(regular(), x, None), expected(regular(), x))


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("depth", [1, 3])
def test_dropout_and_batch_normalisation(groups, depth, device):
    """DGL rebuilds with another mask and counts three batches."""
    graph = regular()
    layers = [ours.GroupRevRes(Normalised(4, 0.5), groups).to(device) for _ in range(depth)]
    plain = [Plain(layer) for layer in layers]
    assert_plain(layers, graph, draw(10, 4 * groups).to(device), rtol=1e-3, atol=1e-5)
    results(plain, graph, draw(10, 4 * groups).to(device))
    for layer, other in zip(layers, plain, strict=True):
        for found, expected in zip(layer.buffers(), other.buffers(), strict=True):
            torch.testing.assert_close(found, expected)


def test_the_generators_are_left_where_the_forward_left_them(device):
    layer = ours.GroupRevRes(Normalised(4, 0.5), 2).to(device)
    x = draw(10, 8).to(device).requires_grad_()
    torch.manual_seed(1)
    out = layer(regular(), x)
    expected = torch.rand(3, device=device)
    torch.manual_seed(1)
    layer(regular(), x)
    out.sum().backward()
    assert torch.equal(torch.rand(3, device=device), expected)


@pytest.mark.parametrize("features", ["float32", "bfloat16"])
def test_autocast(features, device):
    """The second run casts as the first did, although the backward pass is outside."""
    layers = [ours.GroupRevRes(Normalised(4), 2).to(device) for _ in range(2)]
    x = draw(10, 8).to(device, getattr(torch, features))
    graph = regular()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        dtype = layers[0](graph, x).dtype
    found = Outside(layers, device)(graph, x)
    expected = Outside([Plain(layer) for layer in layers], device)(graph, x)
    assert found[0].dtype == dtype
    for value, wanted in zip(found, expected, strict=True):
        assert value.dtype == wanted.dtype
        # Rebuilt features are rounded once more, and near 0 a ReLU may fall to the other side.
        error = (value.float() - wanted.float()).norm() / wanted.float().norm()
        assert error < 0.05


def test_autocast_as_in_the_forward_pass(device):
    layer = ours.GroupRevRes(gcn(ours), 2).to(device)
    seen, kind = [], device.type
    for module in layer.gnn_modules:
        module.register_forward_hook(lambda *_: seen.append(torch.is_autocast_enabled(kind)))
    x = draw(10, 8).to(device).requires_grad_()
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = layer(regular(), x)
    out.sum().backward()
    outside = layer(regular(), x)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        outside.sum().backward()
    assert seen == [True] * 4 + [False] * 4


class Outside:
    """The forward pass under autocast, the backward pass not."""

    def __init__(self, layers, device):
        self.layers, self.device = layers, device

    def __call__(self, graph, x):
        x = x.detach().clone().requires_grad_()
        out = x
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            for layer in self.layers:
                out = layer(graph, out)
        (out.float() * draw(10, 8, seed=9).to(out.device)).sum().backward()
        return [out.detach(), x.grad, *(p.grad for m in self.layers for p in m.parameters())]


@pytest.mark.parametrize("needs", ["features", "parameters"])
def test_only_one_side_needs_gradients(needs, device):
    layer = ours.GroupRevRes(gcn(ours), 2).to(device)
    layer.requires_grad_(needs == "parameters")
    plain = Plain(layer)
    grads = []
    for module in (layer, plain):
        x = draw(10, 8).to(device).requires_grad_(needs == "features")
        module(regular(), x).square().sum().backward()
        grads.append([x.grad] if x.requires_grad else [p.grad for p in module.parameters()])
    for value, wanted in zip(*grads, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-4)
    layer.requires_grad_(False)
    assert layer(regular(), draw(10, 8).to(device)).grad_fn is None


def test_modules_that_are_shared_or_partly_unused(device):
    layer = ours.GroupRevRes(gcn(ours), 3).to(device)
    layer.gnn_modules[2] = layer.gnn_modules[0]
    layer.gnn_modules[1].unused = nn.Parameter(torch.zeros(1, device=device))
    assert_plain([layer], regular(), draw(10, 12).to(device), rtol=1e-4, atol=1e-4)


def test_one_group(device):
    """The sum of no groups is 0; DGL passes the number on and fails."""
    layer = ours.GroupRevRes(gcn(ours), 1).to(device)
    x = draw(10, 4).to(device)
    expected = x + layer.gnn_modules[0](regular(), torch.zeros_like(x))
    torch.testing.assert_close(layer(regular(), x), expected)
    assert raised(partial(theirs.GroupRevRes(gcn(theirs), 1), regular(), draw(10, 4)))


def test_features_of_integers(device):
    """They are rebuilt as exactly as floats."""
    graph, layer = regular(), ours.GroupRevRes(gcn(ours)).to(device)
    feat = torch.arange(80, device=device).reshape(10, 8) % 7
    gradients = []
    for x in (feat, feat.float()):
        layer.zero_grad()
        layer(graph, x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert all(map(torch.equal, *gradients))


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.BatchNorm1d])
def test_derivative(norm, device):
    layer = ours.GroupRevRes(Normalised(2, norm=norm), 2).double().to(device)
    graph = dgl_flash.graph(([0, 1, 2, 3, 0], [1, 2, 3, 0, 2]))
    x = draw(4, 4).double().to(device).requires_grad_()
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(x, *parameters):
        return functional_call(layer, dict(zip(names, parameters, strict=True)), (graph, x))

    parameters = tuple(value.detach().requires_grad_() for value in values)
    assert torch.autograd.gradcheck(call, (x, *parameters), nondet_tol=1e-10)


def test_second_derivatives_are_an_error():
    layer = ours.GroupRevRes(gcn(ours), 2)
    x = draw(10, 8).requires_grad_()
    (grad,) = torch.autograd.grad(layer(regular(), x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


def test_copies_and_pickles_of_a_used_layer():
    layer = ours.GroupRevRes(gcn(ours), 2)
    out = layer(regular(), draw(10, 8).requires_grad_())
    twin = copy.deepcopy(layer)
    assert torch.equal(twin(regular(), draw(10, 8)), out)
    assert set(vars(twin)) == set(vars(ours.GroupRevRes(gcn(ours), 2)))


@pytest.mark.filterwarnings("ignore")
def test_torch_compile(device):
    layer, graph = ours.GroupRevRes(gcn(ours), 2).to(device), random_graph(10, 40)
    graph.add_edges(torch.arange(10), torch.arange(10))
    x = draw(10, 8).to(device)
    layer(graph, x)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    found, expected = (results([m], graph, x) for m in (compiled, layer))
    for value, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-5)


def test_our_container(device):
    graph = regular()
    layer = ours.GroupRevRes(gcn(ours), 2).to(device)
    container = dgl_flash.graph(graph.edges(), num_nodes=10)
    x = draw(10, 8).to(device)
    assert torch.equal(layer(graph, x), layer(container, x))


def test_wrong_arguments():
    layer, graph = ours.GroupRevRes(gcn(ours), 2), regular()
    with pytest.raises(TypeError, match=r"GroupRevRes: expected `x` .*did you swap"):
        layer(draw(10, 8), graph)
    with pytest.raises(ValueError, match=r"GroupRevRes: expected `x` .*2 groups"):
        layer(graph, draw(10, 1))
    with pytest.raises(ValueError, match=r"GroupRevRes: expected `args\[0\]` .*2 groups"):
        layer(graph, draw(10, 8), draw(30, 1))
    with pytest.raises(dgl.DGLError, match="Expect number of features to match number of nodes"):
        layer(graph, draw(9, 8).requires_grad_())
