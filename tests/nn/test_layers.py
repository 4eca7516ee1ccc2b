"""The table of layers is complete, and each layer is documented and computes what DGL's does."""

from __future__ import annotations

import inspect

import pytest
from torch import nn

from dgl_flash.nn.missing import DGL_NAMES
from tests.graphs import regular, self_loops
from tests.nn.common import ours
from tests.nn.layers import LAYERS, every_layer
from tests.nn.tutorial import TUTORIAL
from tests.nn.variants import CLASSES
from tests.nn.verdicts import assert_dgls

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")

PUBLIC = {
    name
    for name in ours.__all__
    if inspect.isclass(getattr(ours, name))
    and issubclass(getattr(ours, name), nn.Module)
    # An explainer is a module without a forward: tests/nn/test_explain_*.py have it.
    and getattr(ours, name).forward is not nn.Module.forward
}


# They make graphs of points; test_factory.py and test_factory_contract.py have them.
GRAPHS_OF_POINTS = {"KNNGraph", "RadiusGraph", "SegmentedKNNGraph"}
# Arguments of another kind; test_heterographconv_slices.py has its contract.
CONTRACT_ELSEWHERE = {"HeteroGraphConv"}


def test_every_public_layer_is_in_the_table():
    assert {name.split()[0] for name in LAYERS} == PUBLIC - GRAPHS_OF_POINTS


def test_every_public_layer_has_a_contract():
    assert set(CLASSES) == PUBLIC & DGL_NAMES - CONTRACT_ELSEWHERE - GRAPHS_OF_POINTS
    assert set(TUTORIAL) == PUBLIC - DGL_NAMES


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_docstrings(name):
    """Paper and path are named, and what can be passed is said."""
    text = getattr(ours, name).__doc__
    parts = ["Notes\n", "Source", "https://", "**Fused path.**"]
    if inspect.signature(getattr(ours, name)).parameters:
        parts.append("Parameters\n")
    for part in parts:
        assert part in text, part
    forward = getattr(ours, name).forward
    takes = len(inspect.signature(forward).parameters) > 1
    for part in ("Returns\n", *(("Parameters\n", "Raises\n") if takes else ())):
        assert part in forward.__doc__, part


@every_layer
@pytest.mark.parametrize("builder", [regular, self_loops])
def test_outputs_and_gradients_are_dgls(name, builder, device):
    assert_dgls(name, builder(), device)
