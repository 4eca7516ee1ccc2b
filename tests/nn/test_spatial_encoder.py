"""SpatialEncoder and SpatialEncoder3d give DGL's biases, gradients and errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.autograd import gradgradcheck

from tests.nn.common import draw, raised, randomise, twins
from tests.numerics import pseudo_random

DIST = torch.arange(50).view(2, 5, 5) % 7 - 2
TYPES = torch.tensor([[0, 1, 2, -1, -1], [2, 1, 0, 1, 1]])


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_distances_on_graphs(heads, idtype, dtype, device):
    """Without a path there is 0, and no gradient."""
    results = []
    for layer, where in zip(twins("SpatialEncoder", 3, heads), (device, "cpu"), strict=True):
        layer.to(where, dtype)
        out = layer(DIST.to(where, idtype))
        out.backward(pseudo_random(out))
        results.append([out.detach().cpu(), layer.embedding_table.weight.grad.cpu()])
    torch.testing.assert_close(*results)
    assert not results[0][0][DIST < 0].any()
    assert not results[0][1][0].any()


@pytest.mark.parametrize("dist", [DIST.double(), [1]], ids=["floats", "list"])
def test_wrong_distances(dist):
    found, wanted = (raised(partial(layer, dist)) for layer in twins("SpatialEncoder", 3, 2))
    assert type(found) is type(wanted)


def pair():
    mine, other = twins("SpatialEncoder3d", 6, 4, 3)
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    return mine, other


def points(size=5):
    """Two of them coincide."""
    coord = draw(2, size, 3)
    coord[0, 1] = coord[0, 0]
    return coord


def run(layer, coord, types):
    coord = coord.clone().requires_grad_()
    out = layer(coord, types)
    out.backward(pseudo_random(out))
    return [
        value.cpu() for value in (out.detach(), coord.grad, *(p.grad for p in layer.parameters()))
    ]


@pytest.mark.parametrize("types", [None, TYPES, TYPES.int(), TYPES[:1]], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_distances_in_space(types, dtype, device):
    mine, other = (layer.to(dtype) for layer in pair())
    coord = points().to(dtype)
    where = None if types is None else types.to(device)
    found = run(mine.to(device), coord.to(device), where)
    torch.testing.assert_close(found, run(other, coord, types))


def test_many_points(device):
    """DGL's distances are worse there, unless it computes in float64."""
    mine, other = pair()
    coord = points(40) + 10
    wanted = other.double()(coord.double())
    found = mine.to(device)(coord.to(device)).cpu()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_types(dtype, device):
    mine = pair()[0]
    wanted = mine(points(), TYPES)
    found = mine.to(device, dtype)(points().to(device, dtype), TYPES.to(device))
    assert found.dtype == dtype
    torch.testing.assert_close(found.float().cpu(), wanted, rtol=0.1, atol=0.1)


def test_derivatives_of_derivatives(device):
    """Also where points coincide: there they are finite."""
    layer = pair()[0].double().to(device)
    coord = draw(1, 3, 3).double().to(device).requires_grad_()
    assert gradgradcheck(layer, (coord,))
    coord = points().double().to(device).requires_grad_()
    (force,) = torch.autograd.grad(layer(coord).sum(), coord, create_graph=True)
    force.square().sum().backward()
    assert coord.grad.isfinite().all()


@pytest.mark.parametrize(
    ("coord", "types"),
    [
        (points(), TYPES + 1),
        (points(), TYPES[0]),
        (points(), TYPES[:, :1]),
        (points(), TYPES[:, :4]),
        (points().long(), None),
        (points().double(), None),
    ],
    ids=["range", "one dimension", "one node", "nodes", "integers", "dtype"],
)
def test_errors_are_dgls(coord, types):
    found, wanted = (raised(partial(layer, coord, types)) for layer in pair())
    assert type(found) is type(wanted)


def test_no_tensor():
    with pytest.raises(TypeError, match="expected `coord` to be a tensor"):
        pair()[0](points().tolist())
