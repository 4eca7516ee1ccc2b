"""DenseChebConv gives DGL's outputs and gradients; without ``lambda_max`` DGL fails."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from tests.graphs import random_graph, regular
from tests.nn.common import draw, ours, raised, twins
from tests.nn.dense import adjacency, assert_same_on_matrix, weighted

DENSE_CHEB = partial(twins, "DenseChebConv")


@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("widths", [(7, 3), (3, 7)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_given_eigenvalue(k, widths, bias, device):
    layers = tuple(Given(layer) for layer in DENSE_CHEB(*widths, k, bias=bias))
    assert_same_on_matrix(layers, weighted(6, 6), draw(6, widths[0]), device=device)


class Given(torch.nn.Module):
    """Passes a number, which ``assert_same`` would take for a feature if it were a tensor."""

    def __init__(self, layer, lambda_max=1.7):
        super().__init__()
        self.layer, self.lambda_max = layer, lambda_max

    def forward(self, adj, feat):
        return self.layer(adj, feat, lambda_max=self.lambda_max)


@pytest.mark.parametrize("adj", [adjacency(random_graph(9, 30)), weighted(7, 7)], ids=len)
def test_own_eigenvalue(adj, device):
    """DGL's layer, told the eigenvalue that it means to find."""
    mine, other = DENSE_CHEB(4, 3, 3)
    scale = torch.diag(adj.double().sum(1).clamp(min=1) ** -0.5)
    laplacian = torch.eye(len(adj)).double() - scale @ adj.double() @ scale
    lambda_max = torch.linalg.eigvals(laplacian).real.max().item()
    assert raised(partial(other, adj, draw(len(adj), 4)))
    layers = mine, Given(other, lambda_max)
    feat = draw(len(adj), 4)
    found = layers[0].to(device)(adj, feat.to(device)).cpu()
    torch.testing.assert_close(found, layers[1](adj, feat))


def test_gradient_through_the_own_eigenvalue(device):
    adj = adjacency(random_graph(6, 20)) + 0.1 * draw(6, 6).abs()
    layer = ours.DenseChebConv(4, 3, 3).double().to(device)
    adj, feat = (x.double().to(device).requires_grad_() for x in (adj, draw(6, 4)))
    assert torch.autograd.gradcheck(layer, (adj, feat), nondet_tol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_own_eigenvalue_in_half_types(dtype, device):
    layer = ours.DenseChebConv(4, 3, 3).to(device)
    adj, feat = adjacency(regular()), draw(10, 4).to(device)
    expected = layer(adj, feat)
    found = layer.to(dtype)(adj, feat.to(dtype))
    torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)


def test_eigenvalue_as_a_tensor(device):
    layer = ours.DenseChebConv(4, 3, 3).to(device)
    adj, feat = weighted(6, 6), draw(6, 4).to(device)
    expected = layer(adj, feat, lambda_max=1.7)
    found = layer(adj, feat, lambda_max=torch.tensor([1.7], device=device))
    torch.testing.assert_close(found, expected)


def test_a_rectangle_is_refused():
    with pytest.raises(ValueError, match=r"DenseChebConv: expected `adj` .*\(6, 6\), got \(4, 6\)"):
        ours.DenseChebConv(4, 3, 2)(draw(4, 6), draw(6, 4))
