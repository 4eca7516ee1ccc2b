"""LapPosEncoder gives DGL's encodings and gradients."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.nn.common import draw, ours, raised, randomise, theirs, twins
from tests.numerics import pseudo_random

# Of DGL's, for an odd number of heads.
pytestmark = [
    pytest.mark.filterwarnings("ignore:enable_nested_tensor is True"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
OPTIONS = [
    ("DeepSet", 1, {}),
    ("DeepSet", 2, {"num_post_layer": 1}),
    ("DeepSet", 3, {"batch_norm": True, "num_post_layer": 3}),
    ("Transformer", 1, {}),
    ("Transformer", 2, {"n_head": 4, "batch_norm": True, "num_post_layer": 2}),
]
every_option = pytest.mark.parametrize(("kind", "layers", "options"), OPTIONS)


class Copy(nn.Module):
    """Lets DGL's DeepSet be trained: it may overwrite a copy."""

    def forward(self, value):
        return value.clone()


def pair(kind, layers, options):
    mine, other = twins("LapPosEncoder", kind, layers, 4, 8, **options)
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    if kind == "DeepSet":
        other.pe_encoder.append(Copy())
    return mine, other


def spectrum():
    """The last of four eigenvectors is missing at some nodes, and all are at one."""
    values, vectors = draw(7, 4).abs(), draw(7, 4, seed=3)
    for value in (values, vectors):
        value[2:4, 2:] = torch.nan
        value[5] = torch.nan
    return values, vectors


def run(layer, values, vectors):
    torch.manual_seed(3)
    values, vectors = values.clone().requires_grad_(), vectors.clone().requires_grad_()
    out = layer(values, vectors)
    out.backward(pseudo_random(out))
    grads = [value.grad for value in (values, vectors, *layer.parameters())]
    return [value.detach().cpu() for value in (out, *grads, *layer.buffers())]


@every_option
@pytest.mark.parametrize("training", [True, False])
def test_values_and_gradients(kind, layers, options, training, device):
    if kind == "Transformer" and training and device.type != "cpu":
        pytest.skip("another generator")
    mine, other = (layer.train(training) for layer in pair(kind, layers, options))
    given = spectrum()
    before = [value.clone() for value in given]
    found = run(mine.to(device), *(value.to(device) for value in given))
    torch.testing.assert_close(found, run(other, *given), rtol=1e-4, atol=1e-5)
    assert all(value.isfinite().all() for value in found)
    torch.testing.assert_close(list(given), before, equal_nan=True)


@every_option
def test_without_gradients(kind, layers, options, device):
    mine, other = (layer.eval() for layer in pair(kind, layers, options))
    with torch.no_grad():
        found = mine.to(device)(*(value.to(device) for value in spectrum()))
        torch.testing.assert_close(found.cpu(), other(*spectrum()))


@every_option
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_other_dtypes(kind, layers, options, dtype, device):
    """DGL converts to float32 whatever the module is."""
    mine = pair(kind, layers, options)[0].eval()
    wanted = mine(*spectrum())
    found = mine.to(device, dtype)(*(value.to(device) for value in spectrum()))
    assert found.dtype == dtype
    tolerance = 0.1 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found.float().cpu(), wanted, rtol=tolerance, atol=tolerance)


def test_no_warning_comes_from_odd_heads():
    """Warnings are errors here."""
    ours.LapPosEncoder("Transformer", 1, 4, 8)


def test_errors_are_dgls():
    found, wanted = (raised(partial(lib.LapPosEncoder, "MLP", 1, 4, 8)) for lib in (ours, theirs))
    assert (type(found), str(found)) == (type(wanted), str(wanted))
    values, vectors = spectrum()
    found, wanted = (raised(partial(x, values[:-1], vectors)) for x in pair(*OPTIONS[0]))
    assert type(found) is type(wanted)
    with pytest.raises(TypeError):
        pair(*OPTIONS[0])[0](values.tolist(), vectors)
