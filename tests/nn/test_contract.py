"""Signatures, checkpoints, seeds and descriptions are DGL's."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from tests.nn.common import ours, theirs, twins
from tests.nn.variants import every_class, every_variant


def parameters(function):
    found = inspect.signature(function).parameters.values()
    # Modules know no equality.
    defaults = [repr(p.default) if isinstance(p.default, nn.Module) else p.default for p in found]
    return [(p.name, default, p.kind) for p, default in zip(found, defaults, strict=True)]


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


PAPERS = {
    "AGNNConv": "1803.03735",
    "AtomicConv": "1703.10603",
    "BiasedMHA": "2106.05234",
    "CFConv": "1706.08566",
    "ChebConv": "1606.09375",
    "CuGraphGATConv": "1710.10903",
    "CuGraphRelGraphConv": "1703.06103",
    "CuGraphSAGEConv": "1706.02216",
    "DotGatConv": "1710.10903",
    "DGNConv": "2010.02863",
    "DeepWalk": "1403.6652",
    "DegreeEncoder": "2106.05234",
    "EGATConv": "2101.07671",
    "EGNNConv": "2102.09844",
    "EGTLayer": "2108.03348",
    "EdgeConv": "1801.07829",
    "EdgeGATConv": "2301.03512",
    "GATConv": "1710.10903",
    "GATv2Conv": "2105.14491",
    "GCN2Conv": "2007.02133",
    "GMMConv": "1611.08402",
    "GatedGCNConv": "2003.00982",
    "GatedGraphConv": "1511.05493",
    "GlobalAttentionPooling": "1511.05493",
    "GraphConv": "1609.02907",
    "GraphormerLayer": "2106.05234",
    "HGTConv": "2003.01332",
    "JumpingKnowledge": "1806.03536",
    "LapPosEncoder": "2205.12454",
    "NNConv": "1704.01212",
    "PathEncoder": "2106.05234",
    "Set2Set": "1511.06391",
    "SetTransformerDecoder": "1810.00825",
    "SetTransformerEncoder": "1810.00825",
    "SpatialEncoder": "2106.05234",
    "SpatialEncoder3d": "2210.01765",
    "PNAConv": "2004.05718",
}


def test_docstrings_name_the_paper():
    for name, paper in PAPERS.items():
        text = getattr(ours, name).__doc__
        assert paper in text
        assert "Fused path" in text
