"""GTLayer computes what the layer of DGL's tutorial computes, in dense torch."""

from __future__ import annotations

import copy
import io
import pickle

import dgl_flash

# isort: split
import pytest
import torch
from torch import nn

from dgl_flash.nn import GTLayer, SparseMHA
from tests.graphs import batched, bipartite_up, block, isolated_rows, regular, self_loops
from tests.nn import tutorial
from tests.nn.common import draw, randomise
from tests.numerics import pseudo_random


def twins(hidden_size=12, num_heads=3, **options):
    """Ours and the tutorial's in float64, the first with the weights of the second."""
    torch.manual_seed(7)
    other = tutorial.GTLayer(hidden_size, num_heads)
    randomise(other)
    mine = GTLayer(hidden_size, num_heads, **options)
    mine.load_state_dict(other.state_dict())
    return mine.double(), other.double()


def features(graph, width=12):
    return draw(graph.num_src_nodes(), width).double()


def run(layer, graph, h, edge_bias=None, device="cpu"):
    """Output, all gradients, and what the norms have seen."""
    layer = layer.to(device)
    layer.zero_grad()
    h = h.to(device, copy=True).requires_grad_()
    out = layer(graph, h, None if edge_bias is None else edge_bias.to(device))
    out.backward(pseudo_random(out))
    found = {"out": out.detach(), "h": h.grad, **dict(layer.named_buffers())}
    found |= {f"grad_{name}": parameter.grad for name, parameter in layer.named_parameters()}
    return {name: value.cpu() for name, value in found.items()}


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("builder", [regular, self_loops, isolated_rows, batched, block])
def test_values_gradients_and_statistics(builder, training, device):
    graph = builder()
    mine, other = (layer.train(training) for layer in twins())
    h = features(graph)
    for _ in range(2):
        torch.testing.assert_close(run(mine, graph, h, device=device), run(other, graph, h))


@pytest.mark.parametrize("shape", [(), (3,)], ids=str)
def test_biases_of_edges(shape, device):
    graph = self_loops()
    mine, other = twins()
    h, bias = features(graph), draw(graph.num_edges(), *shape, seed=3).double()
    torch.testing.assert_close(run(mine, graph, h, bias, device), run(other, graph, h, bias))


def test_checkpoints_of_the_tutorial():
    """Same names in the same order, same initial weights from the same seed, both ways."""
    layers = []
    for kind in (GTLayer, tutorial.GTLayer):
        torch.manual_seed(3)
        layers.append(kind(16, 4))
    mine, other = layers
    assert list(mine.state_dict()) == list(other.state_dict())
    for name, value in mine.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    graph = regular()
    h = features(graph, 16).float()
    mine(graph, h)
    randomise(mine)
    buffer = io.BytesIO()
    torch.save(mine.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    torch.testing.assert_close(mine.eval()(graph, h), other.eval()(graph, h))


def test_parts():
    layer = GTLayer()
    assert isinstance(layer.MHA, SparseMHA)
    assert (layer.MHA.hidden_size, layer.MHA.num_heads) == (80, 8)
    assert [(part.in_features, part.out_features) for part in (layer.FFN1, layer.FFN2)] == [
        (80, 160),
        (160, 80),
    ]
    assert all(isinstance(norm, nn.BatchNorm1d) for norm in (layer.batchnorm1, layer.batchnorm2))


def test_copies():
    graph = regular()
    layer = twins()[0]
    layer(graph, features(graph))
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    copies = [
        copy.deepcopy(layer),
        pickle.loads(pickle.dumps(layer)),
        torch.load(buffer, weights_only=False),
    ]
    expected = layer(graph, features(graph))
    for other in copies:
        assert torch.equal(other(graph, features(graph)), expected)


def test_dropout_of_attention(device):
    graph = regular()
    mine, other = twins(attn_drop=0.5)
    h = features(graph)
    plain, dropped = run(other, graph, h), run(mine, graph, h, device=device)
    assert not torch.allclose(plain["out"], dropped["out"])
    mine.load_state_dict(other.state_dict())
    torch.testing.assert_close(
        run(mine.eval(), graph, h, device=device), run(other.eval(), graph, h)
    )


def test_autocast(device):
    graph = self_loops()
    layer = twins()[0].float().eval().to(device)
    h = features(graph).float().to(device).requires_grad_()
    expected = layer(graph, h)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = layer(graph, h)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.1)
    out.float().square().sum().backward()
    for leaf in (h, *layer.parameters()):
        assert leaf.grad.dtype == torch.float32
        assert leaf.grad.isfinite().all()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_matrix(device):
    """Rows attend to columns."""
    graph = regular()
    mine, other = twins()
    src, dst = graph.edges()
    ones = torch.ones(30, dtype=torch.float64)
    matrix = torch.sparse_coo_tensor(torch.stack([dst, src]), ones, (10, 10)).to(device)
    h = features(graph)
    found = mine.to(device)(matrix, h.to(device)).cpu()
    torch.testing.assert_close(found, other(graph, h))


def test_a_model_learns(device):
    """As the tutorial's does, from the same weights."""
    graph = dgl_flash.graph(self_loops().edges(order="eid"), num_nodes=12)
    losses = []
    for kind, where in ((GTLayer, device), (tutorial.GTLayer, "cpu")):
        torch.manual_seed(0)
        model = nn.ModuleList([kind(16, 4), kind(16, 2)]).double().to(where)
        h, wanted = draw(12, 16).double().to(where), draw(12, 16, seed=1).double().to(where)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        losses.append([])
        for _ in range(5):
            out = h
            for layer in model:
                out = layer(graph, out)
            loss = (out - wanted).square().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1])
    assert losses[0][-1] < losses[0][0]


def test_two_sets_of_nodes_are_refused():
    graph = bipartite_up()
    with pytest.raises(ValueError, match="expected nodes that attend to each other"):
        twins()[0](graph, features(graph))


def test_heads_must_divide_the_width():
    with pytest.raises(ValueError, match="expected `num_heads` to divide `hidden_size`"):
        GTLayer(80, 7)
