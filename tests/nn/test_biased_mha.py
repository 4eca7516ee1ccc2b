"""BiasedMHA is DGL's, whichever way it takes."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.nn.common import draw, ours, raised, randomise, theirs, twins
from tests.numerics import pseudo_random

OPTIONS = [{}, {"bias": False}, {"attn_bias_type": "mul"}, {"attn_bias_type": "other"}]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


def pair(*sizes, **options):
    """In float64, with the same weights."""
    mine, other = twins("BiasedMHA", *(sizes or (12, 4)), **options)
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    return mine.double(), other.double()


def mask(size=5):
    """Not all of the nodes are seen, and the first one by all."""
    hidden = draw(3, size, size, seed=5) > 0
    hidden[:, :, 0] = False
    return hidden


ARGUMENTS = {
    "nothing": lambda: (None, None),
    "bias": lambda: (draw(3, 5, 5, 4, seed=1), None),
    "mask": lambda: (None, mask()),
    "both": lambda: (draw(3, 5, 5, 4, seed=1), mask()),
    "one bias for all heads": lambda: (draw(3, 5, 5, 1, seed=1), mask()),
    "one bias for all graphs": lambda: (draw(5, 5, 4, seed=1), None),
    "infinite bias": lambda: (draw(3, 5, 5, 4, seed=1).masked_fill(mask()[..., None], -99), None),
    "mask of integers": lambda: (None, mask().int()),
    "mask of heads": lambda: (None, mask()[..., None].expand(3, 5, 5, 4)),
    "mask of graphs": lambda: (None, torch.tensor([False, False, False])),
}
every_argument = pytest.mark.parametrize("given", sorted(ARGUMENTS))


def arguments(given, device="cpu", dtype=torch.float64):
    bias, hidden = ARGUMENTS[given]()
    bias = None if bias is None else bias.to(device, dtype, copy=True)
    return bias, None if hidden is None else hidden.to(device)


def run(layer, feat, bias, hidden):
    """Output and all gradients."""
    feat = feat.clone().requires_grad_()
    if bias is not None:
        bias.requires_grad_()
    out = layer(feat, bias, hidden)
    out.backward(pseudo_random(out))
    found = {"out": out.detach(), "feat": feat.grad}
    found |= {name: parameter.grad for name, parameter in layer.named_parameters()}
    if bias is not None:
        found["bias"] = bias.grad
    return {name: value.cpu() for name, value in found.items()}


@every_option
@every_argument
def test_values_and_gradients(options, given, device):
    mine, other = (layer.eval() for layer in pair(**options))
    feat = draw(3, 5, 12).double()
    found = run(mine.to(device), feat.to(device), *arguments(given, device))
    torch.testing.assert_close(found, run(other, feat, *arguments(given)))


@every_option
@every_argument
def test_without_gradients(options, given, device, monkeypatch):
    """Torch's fused attention, where the bias is added."""
    calls = []
    fused = nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        nn.functional,
        "scaled_dot_product_attention",
        lambda *args, **kwargs: calls.append(1) or fused(*args, **kwargs),
    )
    mine, other = (layer.eval() for layer in pair(**options))
    feat = draw(3, 5, 12).double()
    bias, hidden = arguments(given)
    with torch.no_grad():
        found = mine.to(device)(feat.to(device), *arguments(given, device)).cpu()
        torch.testing.assert_close(found, other(feat, bias, hidden))
    multiplies = bias is not None and options.get("attn_bias_type", "add") != "add"
    assert len(calls) == (0 if multiplies else 1)


@pytest.mark.parametrize("grad", [True, False])
def test_who_sees_nothing_is_nan(grad, device):
    """As in DGL, on both ways."""
    mine, other = (layer.eval() for layer in pair())
    hidden, feat = mask(), draw(3, 5, 12).double()
    hidden[1, 2] = True
    infinite = torch.zeros(3, 5, 5, 4).double().masked_fill(hidden[..., None], -torch.inf)
    mine.to(device)
    with torch.set_grad_enabled(grad):
        for bias, not_seen in ((None, hidden), (infinite, None)):
            found = mine(
                feat.to(device),
                None if bias is None else bias.to(device),
                None if not_seen is None else not_seen.to(device),
            )
            wanted = other(feat, bias, not_seen)
            assert wanted[1, 2].isnan().all()
            torch.testing.assert_close(found.cpu(), wanted, equal_nan=True)


@every_option
def test_dropout_from_the_same_seed(options):
    """Draws come in DGL's order, on the CPU."""
    results = []
    for layer in pair(attn_drop=0.5, **options):
        torch.manual_seed(3)
        results.append(run(layer, draw(3, 5, 12).double(), *arguments("both")))
    torch.testing.assert_close(*results)


def test_training_without_gradients_drops(device):
    layer = pair(attn_drop=0.5)[0].to(device)
    feat = draw(3, 5, 12).double().to(device)
    with torch.no_grad():
        assert not torch.equal(layer(feat), layer(feat))
        assert not torch.allclose(layer(feat), layer.eval()(feat))


def test_hooks_see_the_weights(device):
    feat, seen = draw(3, 5, 12).double(), []
    for layer, where in zip(pair(), (device, "cpu"), strict=True):
        layer.eval().to(where).dropout.register_forward_hook(lambda *given: seen.append(given[-1]))
        with torch.no_grad():
            layer(feat.to(where))
    torch.testing.assert_close(seen[0].cpu(), seen[1])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("grad", [True, False])
def test_dtypes(dtype, grad, device):
    mine, other = (layer.eval() for layer in pair())
    feat, (bias, hidden) = draw(3, 5, 12).to(dtype), arguments("both", dtype=dtype)
    wanted = other(feat.double(), bias.double(), hidden)
    with torch.set_grad_enabled(grad):
        found = mine.to(device, dtype)(feat.to(device), bias.to(device), hidden.to(device))
    assert found.dtype == dtype
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double().cpu(), wanted, rtol=20 * eps, atol=20 * eps)


@pytest.mark.parametrize("grad", [True, False])
def test_a_bias_of_another_dtype(grad):
    mine, other = (layer.eval().float() for layer in pair())
    feat = draw(3, 5, 12)
    with torch.set_grad_enabled(grad):
        for bias in (draw(3, 5, 5, 4, seed=1).double(), torch.arange(100).view(5, 5, 4) % 7):
            found = mine(feat, bias)
            assert found.dtype == torch.float32
            torch.testing.assert_close(found, other(feat, bias))


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("shape", [(0, 5, 12), (3, 0, 12), (1, 1, 12)], ids=str)
def test_small_batches(shape, grad, device):
    mine, other = (layer.eval() for layer in pair())
    feat, bias = draw(*shape).double(), draw(*shape[:2], shape[1], 4).double()
    with torch.set_grad_enabled(grad):
        found = mine.to(device)(feat.to(device), bias.to(device))
        torch.testing.assert_close(found.cpu(), other(feat, bias))


WRONG = {
    "two dimensions": lambda feat, bias, hidden: (feat[0],),
    "nodes of the bias": lambda feat, bias, hidden: (feat, bias[:, :4]),
    "graphs of the bias": lambda feat, bias, hidden: (feat, bias[:2]),
    "dimensions of the bias": lambda feat, bias, hidden: (feat, bias.expand(2, 3, 5, 5, 4)),
    "nodes of the mask": lambda feat, bias, hidden: (feat, None, hidden[:, :4]),
    "a mask for all graphs": lambda feat, bias, hidden: (feat, None, hidden[0]),
    "dimensions of the mask": lambda feat, bias, hidden: (feat, None, hidden[..., None, None]),
    "width": lambda feat, bias, hidden: (feat[..., :5],),
    "dtype": lambda feat, bias, hidden: (feat.float(),),
    "no tensor": lambda feat, bias, hidden: (feat.tolist(),),
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("what", sorted(WRONG))
def test_errors_are_dgls(what, grad):
    wrong = WRONG[what](draw(3, 5, 12).double(), draw(3, 5, 5, 4).double(), mask())
    with torch.set_grad_enabled(grad):
        found, wanted = (raised(partial(layer.eval(), *wrong)) for layer in pair())
    assert (type(found), str(found)) == (type(wanted), str(wanted))


@pytest.mark.parametrize("sizes", [(12, 5), (12, 0), (4, 8)], ids=str)
def test_errors_of_the_constructor_are_dgls(sizes):
    found, wanted = (raised(partial(library.BiasedMHA, *sizes)) for library in (ours, theirs))
    assert (type(found), str(found)) == (type(wanted), str(wanted))
