"""PathEncoder gives DGL's biases, gradients and errors."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.nn.common import draw, raised, twins
from tests.numerics import pseudo_random

DIST = torch.arange(50).view(2, 5, 5) % 7 - 1


@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64, torch.float32], ids=str)
def test_values_and_gradients(heads, length, dtype, idtype, device):
    results = []
    pair = twins("PathEncoder", length, 6, heads)
    for layer, where in zip(pair, (device, "cpu"), strict=True):
        paths = draw(2, 5, 5, length, 6).to(where, dtype).requires_grad_()
        layer.to(where, dtype)
        out = layer(DIST.to(where, idtype), paths)
        out.backward(pseudo_random(out))
        results.append(
            [out.detach().cpu(), paths.grad.cpu(), layer.embedding_table.weight.grad.cpu()]
        )
    torch.testing.assert_close(*results)
    assert results[0][0].shape == (2, 5, 5, heads)


@pytest.mark.parametrize(
    "paths",
    [draw(2, 5, 5, 3, 6), draw(2, 5, 5, 4, 5), draw(2, 5, 5, 6), draw(2, 5, 5, 4, 6).double()],
    ids=str,
)
def test_errors_are_dgls(paths):
    found, wanted = (raised(partial(layer, DIST, paths)) for layer in twins("PathEncoder", 4, 6, 3))
    assert (type(found), str(found)) == (type(wanted), str(wanted))
