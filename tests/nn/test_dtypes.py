"""Half types, autocast, float64 and derivatives of derivatives."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from tests.graphs import block, random_bipartite, regular
from tests.nn.common import draw, features, raised, run, twins
from tests.numerics import assert_accurate

LAYERS = {
    "GATv2Conv": ((5, 3, 2), {"residual": True}),
    "narrowing GraphConv": ((5, 3), {}),
    "widening GraphConv": ((5, 7), {"norm": "right"}),
}
every_layer = pytest.mark.parametrize("name", sorted(LAYERS))
half_types = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)


def build(name, **more):
    args, kwargs = LAYERS[name]
    return twins(name.split()[-1], *args, **kwargs, **more)[0]


@every_layer
@half_types
def test_modules_in_half_types(name, dtype, device):
    """Every linear map rounds once more than the oracle; nothing else may be lost."""
    graph = block()
    layer = build(name).to(dtype)
    feat = features(graph, 5).to(dtype)
    found = run(layer, graph, feat, device, dtype)
    exact = run(layer.cpu(), graph, feat, "cpu", torch.float64)
    for key, value in found.items():
        judged = [value.cpu(), exact[key].to(dtype), exact[key]]
        judged = [tensor.reshape(1, -1) for tensor in judged]
        assert value.dtype == dtype
        assert_accurate(*judged, what=key, ulps=16)


@every_layer
@half_types
def test_autocast(name, dtype, device):
    """All operands are cast alike; parameters and their gradients stay float32."""
    if device.type == "cpu" and dtype == torch.float16 and not _cpu_autocasts_half():
        pytest.skip("this CPU has no autocast to float16")
    graph = regular()
    layer = build(name).to(device)
    feat = features(graph, 5).to(device).requires_grad_()
    expected = layer(graph, feat).detach()
    with torch.autocast(device.type, dtype=dtype):
        out = layer(graph, feat)
    out.float().square().sum().backward()
    assert {p.grad.dtype for p in layer.parameters()} == {torch.float32}
    assert feat.grad.dtype == torch.float32
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)


def _cpu_autocasts_half():
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.is_autocast_enabled("cpu")


@half_types
def test_autocast_of_a_model(dtype, device):
    graph = regular()
    first = twins("GATv2Conv", 10, 4, 2)[0].to(device)
    second = twins("GraphConv", 8, 3)[0].to(device)
    with torch.autocast(device.type, dtype=dtype):
        hidden = first(graph, features(graph, 10).to(device)).flatten(1)
        out = second(graph, hidden)
    out.float().sum().backward()
    for parameter in (*first.parameters(), *second.parameters()):
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()


@every_layer
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float32, torch.float16)])
def test_mixed_dtypes_are_an_error_in_words(name, dtypes):
    graph = regular()
    layer = build(name).to(dtypes[0])
    error = raised(partial(layer, graph, features(graph, 5).to(dtypes[1])))
    assert isinstance(error, (TypeError, RuntimeError))
    assert "dtype" in str(error)


@every_layer
def test_large_values_in_float16(name, device):
    """Features of 6e4 stay finite where float64 says that the result fits."""
    graph = regular()
    layer = build(name).to(torch.float16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.1)
    feat = 6e4 * torch.ones(10, 5)
    exact = layer.double()(graph, feat.double())
    found = layer.half().to(device)(graph, feat.half().to(device))
    assert exact.abs().max() < 65504
    assert found.isfinite().all()
    torch.testing.assert_close(found.double().cpu(), exact, rtol=1e-2, atol=50)


@every_layer
@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_derivatives(name, check, device):
    graph = random_bipartite(6, 4, 15)
    layer = build(name, allow_zero_in_degree=True).double().to(device)
    feat = [draw(n, 5, seed=n).double().to(device).requires_grad_() for n in (6, 4)]
    names, values = zip(*layer.named_parameters(), strict=True)

    def call(feat_src, feat_dst, *parameters):
        given = dict(zip(names, parameters, strict=True))
        return functional_call(layer, given, (graph, (feat_src, feat_dst)))

    parameters = tuple(value.detach().requires_grad_() for value in values)
    assert check(call, (*feat, *parameters), nondet_tol=1e-10)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_derivatives_of_edge_weights(check, device):
    graph = regular()
    layer = build("narrowing GraphConv").double().to(device)
    feat = features(graph, 5).double().to(device).requires_grad_()
    edge_weight = draw(30, seed=4).double().to(device).requires_grad_()

    def call(feat, edge_weight):
        return layer(graph, feat, edge_weight=edge_weight)

    assert check(call, (feat, edge_weight), nondet_tol=1e-10)


@every_layer
def test_force_fields(name, device):
    """A loss on a gradient with respect to the features trains the parameters."""
    graph = regular()
    layer = build(name).to(device)
    feat = features(graph, 5).to(device).requires_grad_()
    energy = layer(graph, feat).square().sum()
    (force,) = torch.autograd.grad(energy, feat, create_graph=True)
    force.square().sum().backward()
    exact = build(name).double()
    feat64 = features(graph, 5).double().requires_grad_()
    (force64,) = torch.autograd.grad(exact(graph, feat64).square().sum(), feat64, create_graph=True)
    force64.square().sum().backward()
    for (key, found), (_, wanted) in zip(
        layer.named_parameters(), exact.named_parameters(), strict=True
    ):
        grad = found.grad.double().cpu()
        torch.testing.assert_close(grad, wanted.grad, rtol=1e-3, atol=1e-3, msg=key)
