"""Every layer gets the class of its twin and computes the same, or is refused."""

from __future__ import annotations

import pytest
import torch

import dgl_flash.nn as ours

# isort: split
import dgl.nn as theirs
from torch import nn

from dgl_flash.checking import CheckError
from dgl_flash.checking.convert import DGL, OURS, converted, is_layer, library_of
from tests.graphs import regular
from tests.nn.layers import LAYERS, Layer, every_layer

# They keep their settings differently, or DGL has no such layer.
REFUSED = {"GMMConv", "NNConv", "TWIRLSConv", "TWIRLSUnfoldingAndAttention", "SparseMHA", "GTLayer"}
both_ways = pytest.mark.parametrize("library", [DGL, OURS])
# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")


def results(layer: Layer, module: nn.Module) -> tuple[torch.Tensor, ...]:
    graph = regular()
    torch.manual_seed(0)
    return layer.call(module, graph, layer.inputs(graph))


@both_ways
@every_layer
def test_every_layer(name: str, library: str) -> None:
    layer = LAYERS[name]
    mine, other = layer.twins(allow_zero_in_degree=True)
    source, target = (mine, other) if library == DGL else (other, mine)
    if name.split()[0] in REFUSED:
        if library_of(type(source)) is not None:  # the tests have formulas in the place of some
            with pytest.raises(CheckError, match="pass a function that builds the model"):
                converted(source, library)
        return
    twin = converted(source, library)
    assert type(twin) is type(target)
    assert twin.state_dict().keys() == source.state_dict().keys()
    for found, expected in zip(results(layer, twin), results(layer, target), strict=True):
        torch.testing.assert_close(found, expected)


def test_what_is_a_layer() -> None:
    class Derived(ours.GraphConv):
        pass

    assert library_of(theirs.GraphConv) == DGL and library_of(ours.GraphConv) == OURS
    assert library_of(nn.Linear) is None
    assert is_layer(Derived(2, 2)) and not is_layer(nn.Linear(2, 2))


@both_ways
@pytest.mark.parametrize("aggregate", ["sum", "max", "min", "mean", "stack"])
def test_aggregators(aggregate: str, library: str) -> None:
    source, target = (ours, theirs) if library == DGL else (theirs, ours)
    layer = source.HeteroGraphConv({"a": source.GraphConv(2, 2)}, aggregate)
    twin = converted(layer, library)
    assert type(twin.mod_dict["a"]) is target.GraphConv
    parts = [torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])]
    expected = target.HeteroGraphConv({"a": target.GraphConv(2, 2)}, aggregate).agg_fn
    assert torch.equal(twin.agg_fn(list(parts), "t"), expected(list(parts), "t"))


def test_an_aggregator_of_ones_own_stays() -> None:
    def first(parts: list[torch.Tensor], ntype: str) -> torch.Tensor:
        return parts[0]

    layer = ours.HeteroGraphConv({"a": ours.GraphConv(2, 2)}, first)
    assert converted(layer, DGL).agg_fn is first
