"""Generated from DGL as it is installed: each argument of each layer's call in turn spoiled."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch
from torch import Tensor

from tests.graphs import regular
from tests.nn.common import for_dgl
from tests.nn.feeds import two_types
from tests.nn.layers import LAYERS, as_tuple
from tests.nn.tutorial import TUTORIAL

pytestmark = pytest.mark.filterwarnings("ignore")  # of either library, on the way to an error

# (layer, argument, what is wrong): DGL goes on with what cannot be meant, ours raises. Integers
# among floats, of which torch makes floats here and refuses there; rows that nobody reads, or
# of which a scalar is made as many as there are nodes; types that are no integers.
OURS_ALONE_RAISES = {
    ("APPNPConv", 1, "scalar"),
    ("AtomicConv", 1, "ints"),
    ("CuGraphRelGraphConv", 2, "floats"),
    ("CuGraphRelGraphConv basis", 1, "ints"),
    ("CuGraphRelGraphConv basis", 2, "floats"),
    ("CuGraphSAGEConv mean", 1, "ints"),
    ("DGNConv", 1, "ints"),
    ("DGNConv", 2, "ints"),
    ("DGNConv", 3, "ints"),
    ("EGNNConv", 1, "ints"),
    ("GCN2Conv", 1, "scalar"),
    ("GatedGraphConv", 2, "short"),
    ("SetTransformerDecoder", 1, "short"),
}
# DGL fails inside, ours gives the result that is meant.
DGL_ALONE_RAISES = {
    ("APPNPConv", 1, "double"),
    ("AtomicConv", 2, "narrow"),
    ("DGNConv", 3, "double"),
    ("DenseChebConv", 2, "none"),
    ("MetaPath2Vec", 2, "narrow"),
    ("TWIRLSUnfoldingAndAttention", 1, "double"),
    ("TransR", 0, "scalar"),
    ("TransR", 0, "ints"),
    ("TransR", 1, "scalar"),
    ("TransR", 1, "ints"),
}
# A TypeError that names the argument; DGL's DGLError says that "features' data types" differ.
DTYPES = {("GMMConv", 2, "double"), ("NNConv", 1, "ints")}
# DGL's names the node type, since it reads nodes first.
OTHER_TEXT = {("PNAConv", 0, "hetero")}


def spoiled(value: Any):
    """What cannot be meant, instead of a value."""
    yield "none", None
    yield "text", "nonsense"
    if isinstance(value, dgl.DGLGraph):
        yield "hetero", two_types()
        yield "tensor", torch.ones(3)
    elif isinstance(value, Tensor):
        if value.dim() > 1:
            yield "narrow", value[..., :-1].contiguous()
        yield "short", value[:-1]
        yield "scalar", value.float().sum()
        if value.is_floating_point():
            yield "double", value.double()
            yield "ints", value.long()
        else:
            yield "floats", value.float()
    else:
        yield "empty", type(value)()


def outcome(layer, arguments):
    torch.manual_seed(3)
    try:
        return as_tuple(layer(*arguments))
    except Exception as error:
        return error


def is_own(error: Exception) -> bool:
    """Whether DGL has thought of it: not a check of its C code, nor what Python and torch say."""
    return isinstance(error, dgl.DGLError) and "Check failed" not in str(error)


def verdict(case, mine, other) -> None:
    if not isinstance(other, Exception):
        assert isinstance(mine, Exception) == (case in OURS_ALONE_RAISES), mine
    elif not isinstance(mine, Exception):
        assert case in DGL_ALONE_RAISES, other
    elif is_own(other) and case not in DTYPES:
        assert type(mine) is type(other), mine
        assert case in OTHER_TEXT or str(mine) == str(other)
    else:
        assert str(mine) or str(mine) == str(other)
        assert case not in OURS_ALONE_RAISES | DGL_ALONE_RAISES


@pytest.mark.parametrize("name", sorted(key for key in LAYERS if key.split()[0] not in TUTORIAL))
def test_errors_of_calls(name):
    """Where DGL says what is wrong, ours says it in its words; where it does not, ours raises."""
    layer, graph = LAYERS[name], regular()
    mine, other = layer.twins()
    arguments = layer.arguments(graph, layer.inputs(graph))
    for nth, value in enumerate(arguments):
        for what, bad in spoiled(value):
            given = [*arguments[:nth], bad, *arguments[nth + 1 :]]
            found = outcome(mine, given)
            expected = outcome(other, [for_dgl(a) if a is graph else a for a in given])
            verdict((name, nth, what), found, expected)
