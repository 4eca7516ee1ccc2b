"""Training: as with DGL, step by step; repeatable; under checkpointing."""

from __future__ import annotations

import random

import dgl
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.graphs import random_graph
from tests.nn.common import draw, may_fall_back, ours, theirs
from tests.nn.layers import LAYERS, every_layer


class Attention(nn.Module):
    def __init__(self, library, attn_drop=0.0):
        super().__init__()
        options = {"attn_drop": attn_drop, "allow_zero_in_degree": True}
        self.first = library.GATv2Conv(8, 4, 2, activation=F.elu, **options)
        self.second = library.GATv2Conv(8, 3, 1, residual=True, **options)

    def forward(self, graph, feat):
        return self.second(graph, self.first(graph, feat).flatten(1)).mean(1)


class Convolution(nn.Module):
    def __init__(self, library, attn_drop=0.0):
        super().__init__()
        self.first = library.GraphConv(8, 6, activation=F.relu, allow_zero_in_degree=True)
        self.second = library.GraphConv(6, 3, norm="right", allow_zero_in_degree=True)

    def forward(self, graph, feat):
        return self.second(graph, self.first(graph, feat))


def train(model, device, epochs=20):
    torch.manual_seed(1)
    graph = random_graph(60, 400, seed=2)
    feat, labels = draw(60, 8).to(device), torch.arange(60, device=device) % 3
    model = model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(epochs):
        loss = F.cross_entropy(model(graph, feat), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def build(kind, library, **kwargs):
    torch.manual_seed(0)
    return kind(library, **kwargs)


@pytest.mark.parametrize("kind", [Attention, Convolution])
def test_the_loss_falls_along_dgls(kind, device):
    losses = train(build(kind, ours), device)
    expected = train(build(kind, theirs), "cpu")
    assert losses[-1] < losses[0]
    assert losses == pytest.approx(expected, rel=1e-3)


@may_fall_back
@every_layer
def test_every_layer_is_repeatable(name, device):
    """Outputs and all gradients, bit for bit."""
    layer, graph = LAYERS[name], random_graph(60, 400, seed=2)
    graph = dgl.add_self_loop(graph)
    inputs = layer.inputs(graph)
    results = []
    for _ in range(2):
        random.seed(0)  # of which DeepWalk draws
        results.append(layer.run(layer.make(), graph, inputs, device, torch.float32))
    first, second = results
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


@may_fall_back
@pytest.mark.parametrize("kind", [Attention, Convolution])
@pytest.mark.parametrize("attn_drop", [0.0, 0.3])
def test_two_runs_are_bit_equal(kind, attn_drop, device):
    models = [build(kind, ours, attn_drop=attn_drop) for _ in range(2)]
    losses = [train(model, device) for model in models]
    assert losses[0] == losses[1]
    for first, second in zip(*(model.parameters() for model in models), strict=True):
        assert torch.equal(first, second)
        assert torch.equal(first.grad, second.grad)


@may_fall_back
@pytest.mark.parametrize("kind", [Attention, Convolution])
def test_deterministic_algorithms_can_be_demanded(kind, device, monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    try:
        train(build(kind, ours, attn_drop=0.3), device, epochs=2)
    finally:
        torch.use_deterministic_algorithms(False)


@may_fall_back
def test_checkpointed_forward_draws_the_same_mask(device):
    graph = random_graph(60, 400, seed=2)
    grads = []
    for checkpointed in (False, True):
        model = build(Attention, ours, attn_drop=0.5).to(device)
        feat = draw(60, 8).to(device).requires_grad_()
        torch.manual_seed(4)
        if checkpointed:
            out = checkpoint(model, graph, feat, use_reentrant=False)
        else:
            out = model(graph, feat)
        out.square().sum().backward()
        grads.append(feat.grad)
    assert torch.equal(*grads)
