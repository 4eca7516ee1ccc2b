"""HeteroLinear and HeteroEmbedding give DGL's results, gradients and errors."""

from __future__ import annotations

from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl.nn as theirs
import pytest
import torch
from torch.nn.utils import parametrizations

from tests.nn.common import draw, raised, randomise, twins

RELATION = ("user", "follows", "user")
KEYS = {"user": 4, RELATION: 3, "item": 5}
LINEAR = partial(twins, "HeteroLinear", KEYS, 6)
EMBEDDING = partial(twins, "HeteroEmbedding", KEYS, 6)


def feats(keys=KEYS):
    return {key: draw(7 + width, width) for key, width in keys.items()}


def ids():
    return {key: torch.arange(2 * count) * 3 % count for key, count in KEYS.items()}


def moved(values, device, dtype=None):
    return {
        key: value.to(device, dtype if value.is_floating_point() else None)
        for key, value in values.items()
    }


def assert_same(pair, given, device, dtype=torch.float32):
    mine, other = pair
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    results = []
    for layer, where in ((mine.to(device, dtype), device), (other.to(dtype), "cpu")):
        layer.zero_grad(set_to_none=True)
        out = layer(moved(given, where, dtype))
        assert list(out) == list(given)
        sum(value.square().sum() for value in out.values()).backward()
        grads = [None if p.grad is None else p.grad.cpu() for p in layer.parameters()]
        results.append([*(value.detach().cpu() for value in out.values()), *grads])
    for found, wanted in zip(*results, strict=True):
        assert (found is None) == (wanted is None)
        if found is not None:
            torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_linear(bias, dtype, device):
    assert_same(LINEAR(bias), feats(), device, dtype)


def test_linear_of_some_types(device):
    """In the order of the features; the maps of the others get no gradient."""
    given = feats()
    assert_same(LINEAR(), {key: given[key] for key in ("item", RELATION)}, device)
    assert_same(LINEAR(), {"user": given["user"][:0]}, device)
    assert_same(LINEAR(), {"user": draw(2, 3, 4)}, device)
    for layer in LINEAR():
        assert layer({}) == {}


@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
def test_embedding(idtype, device):
    given = {key: value.to(idtype) for key, value in ids().items()}
    assert_same(EMBEDDING(), given, device)
    assert_same(EMBEDDING(), {RELATION: given[RELATION]}, device)
    assert_same(EMBEDDING(), {"item": given["item"].view(5, 2)}, device)


def test_table_of_the_embedding():
    mine, other = EMBEDDING()
    assert list(mine.weight) == list(other.weight) == list(KEYS)
    assert mine.raw_keys == other.raw_keys
    for key, value in mine.weight.items():
        assert value is mine.embeds[str(key)].weight
        assert torch.equal(value, other.weight[key])
    parametrizations.weight_norm(mine.embeds["user"])
    torch.testing.assert_close(mine.weight["user"], other.weight["user"])


@pytest.mark.parametrize("pair", [LINEAR, EMBEDDING])
def test_unknown_type(pair):
    mine, other = (raised(partial(layer, {"other": draw(2, 3)})) for layer in pair())
    assert type(mine) is type(other) is KeyError
    assert str(mine) == str(other)


@pytest.mark.parametrize("name", ["HeteroLinear", "HeteroEmbedding"])
def test_keys_that_name_no_module(name):
    mine, other = (raised(partial(getattr(lib, name), {"a.b": 2}, 3)) for lib in (ours, theirs))
    assert type(mine) is type(other) is KeyError
    assert str(mine) == str(other)


def test_ids_out_of_range():
    mine, other = (raised(partial(layer, {"user": torch.tensor([4])})) for layer in EMBEDDING())
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_wrong_widths():
    mine, other = (raised(partial(layer, {"user": draw(2, 3)})) for layer in LINEAR())
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_the_module_has_dgls_names():
    for name in theirs.hetero.__all__:
        assert getattr(ours, name) is getattr(ours.hetero, name)
    with pytest.raises(AttributeError, match="no attribute 'SomethingElse'"):
        _ = ours.hetero.SomethingElse
