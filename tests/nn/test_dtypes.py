"""Half types, autocast, float64 and derivatives of derivatives."""

from __future__ import annotations

from functools import partial

import dgl
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import functional_call

from tests.graphs import block, random_bipartite, regular
from tests.nn.common import draw, features, raised, twins
from tests.nn.layers import (
    LAYERS,
    POOLINGS,
    UNFED,
    as_tuple,
    every_layer,
    having,
    leaves,
    to,
    with_leaves,
)
from tests.numerics import assert_accurate

half_types = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
# Where nothing but a sum and at most one linear map can leave the range.
SUMS = ["GATv2Conv", "GraphConv narrowing", "GraphConv widening"]
WITH_LSTM = {"JumpingKnowledge lstm", "SAGEConv lstm", "Set2Set"}


def graph_for(layer):
    return block() if layer.two_sides else regular()


@every_layer
@half_types
def test_modules_in_half_types(name, dtype, device):
    """Every linear map and every sum rounds once more than the oracle; nothing else may be lost."""
    layer = LAYERS[name]
    graph, module = graph_for(layer), layer.make().to(dtype)
    inputs = to(layer.inputs(graph), dtype)
    found = layer.run(module, graph, inputs, device, dtype)
    exact = layer.run(module.cpu(), graph, inputs, "cpu", torch.float64)
    for key, value in found.items():
        judged = value.cpu(), exact[key].to(value.dtype), exact[key].double()
        assert value.dtype == dtype or layer.orders == 0
        assert_accurate(*(t.reshape(1, -1) for t in judged), what=key, ulps=16 * layer.rounds)


@every_layer
@half_types
def test_autocast(name, dtype, device):
    """All operands are cast alike; parameters and their gradients stay float32."""
    if device.type == "cpu" and dtype == torch.float16 and not _cpu_autocasts_half():
        pytest.skip("this CPU has no autocast to float16")
    layer = LAYERS[name]
    graph, module = graph_for(layer), layer.make().to(device)
    inputs = to(layer.inputs(graph), device, grad=True)
    expected = [out.detach().clone() for out in layer.call(module, graph, inputs)]
    if name in WITH_LSTM and not _has_lstm(device, dtype):
        with torch.autocast(device.type, dtype=dtype):
            assert isinstance(raised(partial(layer.call, module, graph, inputs)), RuntimeError)
        return
    with torch.autocast(device.type, dtype=dtype):
        outputs = layer.call(module, graph, inputs)
    for out, wanted in zip(outputs, expected, strict=True):
        torch.testing.assert_close(out.float(), wanted, rtol=0.05, atol=0.05 * layer.rounds)
    if layer.orders > 0:
        sum(out.float().square().sum() for out in outputs).backward()
        for leaf in (*module.parameters(), *leaves(inputs)):
            assert leaf.grad is None or leaf.grad.dtype == torch.float32
            assert leaf.grad is None or leaf.grad.isfinite().all()


def _cpu_autocasts_half():
    with torch.autocast("cpu", dtype=torch.float16):
        return torch.is_autocast_enabled("cpu")


def _has_lstm(device, dtype):
    """Whether torch's own LSTM runs under autocast, which in float16 depends on the CPU."""
    try:
        with torch.autocast(device.type, dtype=dtype):
            torch.nn.LSTM(5, 5).to(device)(torch.ones(1, 1, 5, device=device))
    except RuntimeError:
        return False
    return True


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


# As in DGL, these have no parameters, or bring features and parameters to one dtype.
ANY_DTYPE = {"APPNPConv", "AtomicConv", "EdgeWeightNorm", "GINConv", "GINConv max", "GINEConv"}
ANY_DTYPE |= {"AGNNConv", "LabelPropagation", "TWIRLSUnfoldingAndAttention"} | POOLINGS
ANY_DTYPE |= {"JumpingKnowledge", "TransE"} | UNFED
ANY_DTYPE |= {"LapPosEncoder", "SpatialEncoder3d"}
SCALAR_TYPES = {"PathEncoder"}  # what an einsum of torch calls them


@pytest.mark.parametrize("name", sorted(LAYERS.keys() - ANY_DTYPE - SCALAR_TYPES))
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float64), (torch.float32, torch.float16)])
def test_mixed_dtypes_are_an_error_in_words(name, dtypes):
    layer = LAYERS[name]
    graph, module = graph_for(layer), layer.make().to(dtypes[0])
    inputs = to(layer.inputs(graph), dtypes[1])
    error = raised(partial(layer.call, module, graph, inputs))
    assert isinstance(error, (TypeError, ValueError, RuntimeError))
    assert "dtype" in str(error)


@pytest.mark.parametrize("name", SUMS)
def test_large_values_in_float16(name, device):
    """Features of 6e4 stay finite where float64 says that the result fits."""
    graph = regular()
    layer = LAYERS[name].make().to(torch.float16)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.1)
    feat = 6e4 * torch.ones(10, 5)
    exact = layer.double()(graph, feat.double())
    found = layer.half().to(device)(graph, feat.half().to(device))
    assert exact.abs().max() < 65504
    assert found.isfinite().all()
    torch.testing.assert_close(found.double().cpu(), exact, rtol=1e-2, atol=50)


@pytest.mark.parametrize(
    ("name", "check"),
    [
        *((name, gradcheck) for name in having() if LAYERS[name].orders >= 1),
        *((name, gradgradcheck) for name in having() if LAYERS[name].orders >= 2),
    ],
)
def test_derivatives(name, check, device):
    layer = LAYERS[name]
    if layer.two_sides:
        graph = random_bipartite(5, 3, 8)
    else:
        graph = dgl.graph(([0, 1, 2, 3, 0, 2, 2], [1, 2, 3, 0, 2, 1, 1]))
    module = layer.make(allow_zero_in_degree=True).double().to(device)
    inputs = to(to(layer.inputs(graph), torch.float64), device, grad=True)
    given, parameters = leaves(inputs), dict(module.named_parameters())

    def call(*values):
        mine = dict(zip(parameters, values[len(given) :], strict=True))
        arguments = layer.arguments(graph, with_leaves(inputs, values[: len(given)]))
        return as_tuple(functional_call(module, mine, arguments))

    values = (value.detach().requires_grad_() for value in parameters.values())
    assert check(call, (*given, *values), nondet_tol=1e-10)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_derivatives_of_edge_weights(check, device):
    graph = regular()
    layer = LAYERS["GraphConv narrowing"].make().double().to(device)
    feat = features(graph, 5).double().to(device).requires_grad_()
    edge_weight = draw(30, seed=4).double().to(device).requires_grad_()

    def call(feat, edge_weight):
        return layer(graph, feat, edge_weight=edge_weight)

    assert check(call, (feat, edge_weight), nondet_tol=1e-10)


@pytest.mark.parametrize("name", [name for name in having(orders=2) if name not in UNFED])
def test_force_fields(name, device):
    """A loss on a gradient with respect to the features trains the parameters."""
    layer, graph = LAYERS[name], regular()
    grads = []
    for where, dtype in ((device, torch.float32), ("cpu", torch.float64)):
        module = layer.make().to(where, dtype)
        inputs = to(to(layer.inputs(graph), dtype), where, grad=True)
        energy = sum(out.square().sum() for out in layer.call(module, graph, inputs))
        (force,) = torch.autograd.grad(energy, leaves(inputs)[:1], create_graph=True)
        force.square().sum().backward()
        grads.append({key: p.grad for key, p in module.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    for key, found in grads[0].items():
        wanted = grads[1][key]
        torch.testing.assert_close(found.double().cpu(), wanted, rtol=1e-3, atol=1e-3, msg=key)
