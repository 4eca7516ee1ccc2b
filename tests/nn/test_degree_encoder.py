"""DegreeEncoder gives DGL's rows, gradients and errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.nn.common import raised, twins
from tests.numerics import pseudo_random

DEGREES = torch.tensor([[[0, 1, 2], [9, 4, -1]], [[3, 3, 0], [5, 0, 1]]])


@pytest.mark.parametrize("direction", ["both", "in", "out"])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_values_and_gradients(direction, idtype, dtype, device):
    """Degree 0 stays 0 and has no gradient, and large ones are cut."""
    results = []
    degrees = (DEGREES if direction == "both" else DEGREES[0]).to(idtype)
    for layer, where in zip(twins("DegreeEncoder", 4, 3, direction), (device, "cpu"), strict=True):
        layer.to(where, dtype)
        out = layer(degrees.to(where))
        out.backward(pseudo_random(out))
        grads = [parameter.grad.cpu() for parameter in layer.parameters()]
        assert all(not grad[0].any() for grad in grads)
        results.append([out.detach().cpu(), *grads])
    torch.testing.assert_close(*results)
    assert results[0][0].shape == (2, 3, 3)


@pytest.mark.parametrize(
    ("direction", "degrees"),
    [
        ("both", DEGREES[0]),
        ("both", DEGREES[:1]),
        ("in", DEGREES),
        ("out", DEGREES[0, 0]),
        ("sideways", DEGREES),
        ("in", DEGREES[0].double()),
        ("both", [[1]]),
    ],
    ids=str,
)
def test_errors_are_dgls(direction, degrees):
    found, wanted = (
        raised(partial(layer, degrees)) for layer in twins("DegreeEncoder", 4, 3, direction)
    )
    assert type(found) is type(wanted)
    if not isinstance(wanted, TypeError):
        assert str(found) == str(wanted)
