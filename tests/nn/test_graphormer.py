"""GraphormerLayer gives DGL's outputs and gradients, with dropout from the same seed."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.nn.common import draw, ours, raised, randomise, theirs, twins
from tests.numerics import pseudo_random

OPTIONS = [
    {},
    {"attn_bias_type": "mul"},
    {"dropout": 0.0, "attn_dropout": 0.0},
    {"dropout": 0.5, "attn_dropout": 0.3},
    {"activation": nn.GELU()},
]


def pair(**options):
    mine, other = twins("GraphormerLayer", 12, 7, 4, **options)
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    return mine.double(), other.double()


def inputs():
    hidden = draw(3, 5, 5, seed=5) > 0
    hidden[:, :, 0] = False
    return draw(3, 5, 12).double(), draw(3, 5, 5, 4, seed=1).double(), hidden


def run(layer, nfeat, bias, hidden):
    torch.manual_seed(3)
    nfeat, bias = nfeat.clone().requires_grad_(), bias.clone().requires_grad_()
    out = layer(nfeat, bias, hidden)
    out.backward(pseudo_random(out))
    grads = [value.grad.cpu() for value in (nfeat, bias, *layer.parameters())]
    return [out.detach().cpu(), *grads]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_values_and_gradients(options, norm_first, training, device):
    drops = options.get("dropout", 0.1) > 0
    if drops and training and device.type != "cpu":
        pytest.skip("another generator")
    layers = pair(norm_first=norm_first, **options)
    mine, other = (layer.train(training) for layer in layers)
    found = run(mine.to(device), *(value.to(device) for value in inputs()))
    torch.testing.assert_close(found, run(other, *inputs()))
    with torch.no_grad():
        given = [value.to(device) for value in inputs()]
        out = mine.eval()(*given).cpu()
        torch.testing.assert_close(out, other.eval()(*inputs()))


def test_without_bias_and_mask(device):
    mine, other = (layer.eval() for layer in pair())
    nfeat = inputs()[0]
    torch.testing.assert_close(mine.to(device)(nfeat.to(device)).cpu(), other(nfeat))


def test_errors_are_dgls():
    nfeat, bias, hidden = inputs()
    for wrong in ((nfeat[0],), (nfeat, bias[:2]), (nfeat, bias, hidden[0]), (nfeat.float(),)):
        found, wanted = (raised(partial(layer, *wrong)) for layer in pair())
        assert (type(found), str(found)) == (type(wanted), str(wanted))
    found, wanted = (raised(partial(lib.GraphormerLayer, 12, 7, 5)) for lib in (ours, theirs))
    assert (type(found), str(found)) == (type(wanted), str(wanted))
