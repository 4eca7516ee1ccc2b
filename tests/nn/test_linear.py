"""TypedLinear gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl.nn as theirs
import pytest
import torch

from dgl_flash.structure import tiles
from tests.nn.common import draw, every_idtype, raised, randomise, twins
from tests.numerics import assert_accurate, outputs_and_grads

TYPED = partial(twins, "TypedLinear")
OPTIONS = [
    {},
    {"regularizer": "basis", "num_bases": 2},
    {"regularizer": "basis", "num_bases": 7},
    {"regularizer": "bdd", "num_bases": 2},
    {"regularizer": "bdd", "num_bases": 1},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


@pytest.fixture(params=["chosen", "tiles"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, and what a GPU has."""
    if request.param == "tiles":
        monkeypatch.setattr(tiles, "use_tiles", lambda device: True)


def types(num_rows, num_types, sort=False):
    generator = torch.Generator().manual_seed(5)
    drawn = (torch.rand(num_rows, generator=generator) ** 3 * num_types).long()
    return drawn.sort().values if sort else drawn


def run(layer, x, x_type, sort, device, dtype):
    layer = layer.to(device=device, dtype=dtype)
    layer.zero_grad(set_to_none=True)
    given = {"x": x.to(device=device, dtype=dtype, copy=True)}
    results = outputs_and_grads(lambda x: layer(x, x_type.to(device), sort), given)
    grads = {name: value.grad.clone() for name, value in layer.named_parameters()}
    return results | {f"grad_{name}": grad for name, grad in grads.items()}


def assert_same(pair, x, x_type, sort, device):
    mine, other = pair
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    found = run(mine, x, x_type, sort, device, torch.float32)
    usual = run(other, x, x_type, sort, "cpu", torch.float32)
    exact = run(other, x, x_type, sort, "cpu", torch.float64)
    assert found.keys() == exact.keys()
    for name, value in found.items():
        judged = [value.cpu(), usual[name], exact[name]]
        if name not in ("out", "grad_x"):
            judged = [tensor.reshape(1, -1) for tensor in judged]
        assert_accurate(*judged, what=name, ulps=64)


@every_option
@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("widths", [(6, 4), (16, 12)], ids=str)
def test_outputs_and_gradients(options, sort, widths, device):
    layers = TYPED(*widths, 5, **options)
    assert_same(layers, draw(50, widths[0]), types(50, 5, sort), sort, device)


@every_option
@pytest.mark.parametrize("sort", [False, True])
def test_types_without_rows(options, sort, device):
    layers = TYPED(6, 4, 40, **options)
    assert_same(layers, draw(9, 6), types(9, 40, sort), sort, device)


@every_option
@pytest.mark.parametrize("sort", [False, True])
def test_no_rows(options, sort, device):
    assert_same(TYPED(6, 4, 3, **options), draw(0, 6), types(0, 3), sort, device)


@every_idtype
@every_option
def test_both_id_types(options, idtype, device):
    x_type = types(50, 5).to(idtype)
    assert_same(TYPED(6, 4, 5, **options), draw(50, 6), x_type, False, device)


@every_option
def test_weights_of_the_types(options):
    mine, other = TYPED(6, 4, 5, **options)
    torch.testing.assert_close(mine.get_weight(), other.get_weight())


def test_repr():
    for options in OPTIONS:
        mine, other = TYPED(6, 4, 5, **options)
        assert repr(mine) == repr(other)


WRONG = [
    (6, 4, 5, "other"),
    (6, 4, 5, "other", 2),
    (6, 4, 5, "basis"),
    (6, 4, 5, "bdd"),
    (6, 4, 5, "bdd", 4),
    (4, 6, 5, "bdd", 4),
]


@pytest.mark.parametrize("arguments", WRONG, ids=str)
def test_wrong_options(arguments):
    mine, other = (raised(lambda nn=nn: nn.TypedLinear(*arguments)) for nn in (ours, theirs))
    assert (type(mine), str(mine)) == (type(other), str(other))


@every_option
def test_types_out_of_range(options):
    layer = TYPED(6, 4, 5, **options)[0]
    assert type(raised(lambda: layer(draw(3, 6), torch.tensor([0, 5, 1])))) is IndexError
    assert type(raised(lambda: layer(draw(3, 6), torch.tensor([0, 1, 5]), True))) is ValueError


def test_rows_must_be_rows():
    error = raised(lambda: TYPED(6, 4, 5)[0](draw(2, 3, 6), types(2, 5)))
    assert type(error) is ValueError
    assert "`a` of shape (N, in)" in str(error)
