"""EGTLayer gives DGL's nodes, pairs, gradients and errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.nn.common import draw, ours, raised, randomise, theirs, twins
from tests.numerics import pseudo_random

OPTIONS = [
    {},
    {"edge_update": False},
    {"num_virtual_nodes": 0},
    {"num_virtual_nodes": 5},
    {"activation": nn.ReLU()},
    {"dropout": 0.3, "attn_dropout": 0.4},
]


def pair(**options):
    sizes = {"feat_size": 12, "edge_feat_size": 6, "num_heads": 4, "num_virtual_nodes": 2}
    mine, other = twins("EGTLayer", **{**sizes, **options})
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    return mine.double(), other.double()


def inputs():
    hidden = draw(3, 5, 5, seed=5) > 0
    hidden[:, :, :2] = False
    mask = torch.zeros(3, 5, 5).double().masked_fill(hidden, -torch.inf)
    return draw(3, 5, 12).double(), 4 * draw(3, 5, 5, 6, seed=1).double(), mask


def run(layer, nfeat, efeat, *mask):
    """Outputs and all gradients, from one seed of the dropout."""
    torch.manual_seed(3)
    nfeat, efeat = nfeat.clone().requires_grad_(), efeat.clone().requires_grad_()
    out = layer(nfeat, efeat, *mask)
    outputs = out if isinstance(out, tuple) else (out,)
    torch.autograd.backward(outputs, [pseudo_random(value) for value in outputs])
    grads = [value.grad for value in (nfeat, efeat, *layer.parameters())]
    return [None if value is None else value.detach().cpu() for value in (*outputs, *grads)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_values_and_gradients(options, masked, training, device):
    """With dropout the same is drawn, on the CPU."""
    if "dropout" in options and training and device.type != "cpu":
        pytest.skip("another generator")
    mine, other = (layer.train(training) for layer in pair(**options))
    given = inputs() if masked else inputs()[:2]
    found = run(mine.to(device), *(value.to(device) for value in given))
    torch.testing.assert_close(found, run(other, *given))


def test_scores_are_clipped(device):
    """Far beyond the limits nodes have no influence on scores."""
    mine, other = pair()
    nfeat, efeat, mask = inputs()
    with torch.no_grad():
        for layer in (mine, other):
            layer.qkv_proj.weight.mul_(100)
    found = run(mine.to(device), nfeat.to(device), efeat.to(device), mask.to(device))
    torch.testing.assert_close(found, run(other, nfeat, efeat, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_dtypes(dtype):
    for found, wanted in zip(*(layer.to(dtype)(*_to(dtype)) for layer in pair()), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found, wanted)


def _to(dtype):
    return (value.to(dtype) for value in inputs())


def test_autocast_gives_dgls_dtypes():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        results = [layer.float()(*_to(torch.float32)) for layer in pair()]
    for found, wanted in zip(*results, strict=True):
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


WRONG = {
    "two dimensions": lambda nfeat, efeat, mask: (nfeat[0], efeat),
    "nodes": lambda nfeat, efeat, mask: (nfeat[:, :4], efeat),
    "mask": lambda nfeat, efeat, mask: (nfeat, efeat, mask[:, :4]),
    "width": lambda nfeat, efeat, mask: (nfeat, efeat[..., :5]),
    "dtype": lambda nfeat, efeat, mask: (nfeat.float(), efeat),
}


@pytest.mark.parametrize("what", sorted(WRONG))
def test_errors_are_dgls(what):
    found, wanted = (raised(partial(layer, *WRONG[what](*inputs()))) for layer in pair())
    assert type(found) is type(wanted)


@pytest.mark.parametrize("heads", [5, 0])
def test_errors_of_the_constructor_are_dgls(heads):
    found, wanted = (raised(partial(lib.EGTLayer, 12, 6, heads, 0)) for lib in (ours, theirs))
    assert (type(found), str(found)) == (type(wanted), str(wanted))
