"""Signatures, checkpoints, seeds and descriptions are DGL's."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from tests.nn.common import ours, theirs, twins

CLASSES = ("EdgeWeightNorm", "GATv2Conv", "GraphConv")
every_class = pytest.mark.parametrize("name", CLASSES)

VARIANTS = [
    ("EdgeWeightNorm", (), {}),
    ("EdgeWeightNorm", ("right", 0.1), {}),
    ("GraphConv", (4, 3), {}),
    ("GraphConv", (3, 4), {"norm": "left"}),
    ("GraphConv", (4, 3), {"weight": False}),
    ("GraphConv", (4, 3), {"bias": False}),
    ("GraphConv", (4, 3), {"weight": False, "bias": False}),
    ("GraphConv", (4, 3, "none", True, True, torch.relu, True), {}),
    ("GraphConv", (4, 3), {"activation": nn.PReLU()}),
    ("GATv2Conv", (4, 3, 2), {}),
    ("GATv2Conv", ((4, 5), 3, 2), {}),
    ("GATv2Conv", (4, 3, 2), {"bias": False}),
    ("GATv2Conv", (4, 3, 2), {"residual": True}),
    ("GATv2Conv", (4, 3, 2), {"residual": True, "bias": False}),
    ("GATv2Conv", (6, 3, 2), {"residual": True}),
    ("GATv2Conv", ((4, 6), 3, 2), {"residual": True}),
    ("GATv2Conv", (4, 3, 2), {"share_weights": True}),
    ("GATv2Conv", ((4, 4), 3, 2), {"share_weights": True}),
    ("GATv2Conv", (4, 3, 2), {"share_weights": True, "residual": True, "bias": False}),
    ("GATv2Conv", (4, 3, 2, 0.1, 0.2, 0.3, True, torch.relu, True, False, False), {}),
    ("GATv2Conv", (4, 3, 2), {"activation": nn.PReLU()}),
]
every_variant = pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    # Numbered: the text of a function holds its address, which differs between test processes.
    [pytest.param(*variant, id=f"{variant[0]}-{i}") for i, variant in enumerate(VARIANTS)],
)


def parameters(function):
    return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]


@every_class
@pytest.mark.parametrize(
    "method", ["__init__", "forward", "reset_parameters", "set_allow_zero_in_degree", "extra_repr"]
)
def test_signatures(name, method):
    expected = getattr(getattr(theirs, name), method, None)
    found = getattr(getattr(ours, name), method, None)
    assert (found is None) == (expected is None)
    if found is not None:
        assert parameters(found) == parameters(expected)


@every_class
def test_public_methods(name):
    def methods(cls):
        return {key for key in vars(cls) if not key.startswith("_")}

    assert methods(getattr(ours, name)) == methods(getattr(theirs, name))


@every_variant
def test_state_dict_loads_both_ways(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    assert list(mine.state_dict()) == list(other.state_dict())
    for key, value in other.state_dict().items():
        assert (mine.state_dict()[key].shape, mine.state_dict()[key].dtype) == (
            value.shape,
            value.dtype,
        )
    for source, target in ((mine, other), (other, mine)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(1)
        target.load_state_dict(source.state_dict(), strict=True)
        for key, value in source.state_dict().items():
            assert torch.equal(target.state_dict()[key], value)


@every_variant
def test_same_seed_same_weights(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    for (key, found), (_, expected) in zip(
        mine.named_parameters(), other.named_parameters(), strict=True
    ):
        assert torch.equal(found, expected), key
    # And the generator is left where DGL leaves it, for the layers that follow.
    states = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        getattr(library, name)(*args, **kwargs)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@every_variant
def test_reset_parameters_draws_the_same(name, args, kwargs):
    values = []
    for layer in twins(name, *args, **kwargs):
        if not hasattr(layer, "reset_parameters"):
            return
        torch.manual_seed(3)
        layer.reset_parameters()
        values.append(list(layer.parameters()))
    for found, expected in zip(*values, strict=True):
        assert torch.equal(found, expected)


@every_variant
def test_repr(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    assert repr(mine) == repr(other)


@every_variant
def test_attributes(name, args, kwargs):
    """People read `conv._out_feats`; DGL's own code reads `_allow_zero_in_degree`."""
    mine, other = twins(name, *args, **kwargs)
    for key, value in vars(other).items():
        if isinstance(value, (int, float, str)) or value is None:
            assert getattr(mine, key) == value, key
    for kind in ("_parameters", "_buffers", "_modules"):
        assert list(getattr(mine, kind)) == list(getattr(other, kind)), kind


def test_shared_weights_are_one_linear_with_two_names():
    layer = ours.GATv2Conv(4, 3, 2, share_weights=True)
    assert layer.fc_src is layer.fc_dst
    assert {"fc_src.weight", "fc_dst.weight"} <= set(layer.state_dict())


def test_docstrings_name_the_paper():
    for name, paper in (("GATv2Conv", "2105.14491"), ("GraphConv", "1609.02907")):
        text = getattr(ours, name).__doc__
        assert paper in text
        assert "Fused path" in text
