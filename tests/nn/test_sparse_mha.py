"""SparseMHA computes what the layer of DGL's tutorial computes, in dense torch."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import Tensor, nn

from dgl_flash.nn import SparseMHA
from dgl_flash.structure import structure
from tests.graphs import (
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    multi_edges,
    permuted_edges,
    regular,
    relation_slice,
    small_zoo,
)
from tests.nn import tutorial
from tests.nn.common import TWO_NODE_SETS, draw, for_dgl, randomise
from tests.numerics import pseudo_random

# Of torch, about what it checks in sparse tensors and does not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:Sparse C.. tensor support is in beta"),
]
one_tensor_graph = pytest.mark.parametrize(
    "name", sorted((small_zoo().keys() - TWO_NODE_SETS) | {"block"})
)


def twins(hidden_size=12, num_heads=3, **options):
    """Ours and the tutorial's in float64, the first with the weights of the second."""
    torch.manual_seed(7)
    other = tutorial.SparseMHA(hidden_size, num_heads)
    randomise(other)
    mine = SparseMHA(hidden_size, num_heads, **options)
    mine.load_state_dict(other.state_dict())
    return mine.double(), other.double()


def features(graph, width=12):
    return draw(graph.num_src_nodes(), width).double()


def run(layer, graph, h, edge_bias=None, device="cpu"):
    """Output and all gradients."""
    layer = layer.to(device)
    layer.zero_grad()
    h = h.to(device).requires_grad_()
    if edge_bias is not None:
        edge_bias = edge_bias.to(device).requires_grad_()
    out = layer(graph, h, edge_bias)
    out.backward(pseudo_random(out))
    grads = {name: parameter.grad for name, parameter in layer.named_parameters()}
    grads |= {"h": h.grad, "edge_bias": None if edge_bias is None else edge_bias.grad}
    found = {"out": out.detach(), **{k: v for k, v in grads.items() if v is not None}}
    return {name: value.cpu() for name, value in found.items()}


def assert_same(pair, graph, h, edge_bias=None, device="cpu"):
    found = run(pair[0], graph, h.clone(), edge_bias, device)
    expected = run(pair[1], for_dgl(graph), h.clone(), edge_bias)
    torch.testing.assert_close(found, expected)
    return found


@one_tensor_graph
def test_every_graph(name, device):
    graph = small_zoo()[name](torch.int64)
    assert_same(twins(), graph, features(graph), device=device)


@pytest.mark.parametrize("sizes", [(12, 1), (12, 12), (12, 4), (1, 1), (80, 8)], ids=str)
def test_widths_and_heads(sizes, device):
    graph = isolated_rows()
    assert_same(twins(*sizes), graph, features(graph, sizes[0]), device=device)


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize("builder", [regular, permuted_edges, multi_edges, block])
def test_biases_of_edges(shape, builder, device):
    graph = builder()
    bias = draw(graph.num_edges(), *shape, seed=3).double()
    assert_same(twins(), graph, features(graph), bias, device)


def test_the_bias_of_the_keys_does_not_matter(device):
    """It moves all scores of a node alike."""
    graph = regular()
    found = assert_same(twins(), graph, features(graph), device=device)
    assert found["k_proj.bias"].abs().max() < 1e-12


@pytest.mark.parametrize("builder", [empty, isolated_rows])
def test_nodes_without_in_edges_get_the_bias(builder, device):
    graph = builder()
    layer = twins()[0].to(device)
    out = layer(graph, features(graph).to(device))
    alone = graph.in_degrees().to(device) == 0
    assert alone.any()
    torch.testing.assert_close(out[alone], layer.out_proj.bias.expand(int(alone.sum()), 12))


def test_checkpoints_of_the_tutorial():
    """Same names in the same order, same initial weights from the same seed, both ways."""
    layers = []
    for kind in (SparseMHA, tutorial.SparseMHA):
        torch.manual_seed(3)
        layers.append(kind(16, 4))
    mine, other = layers
    assert list(mine.state_dict()) == list(other.state_dict())
    for name, value in mine.state_dict().items():
        assert torch.equal(value, other.state_dict()[name])
    randomise(mine)
    buffer = io.BytesIO()
    torch.save(mine.state_dict(), buffer)
    buffer.seek(0)
    other.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
    graph = regular()
    h = features(graph, 16).float()
    torch.testing.assert_close(mine(graph, h), other(graph, h))


def test_defaults_are_the_tutorials():
    layer = SparseMHA()
    assert (layer.hidden_size, layer.num_heads, layer.head_dim) == (80, 8, 10)
    assert layer.scaling == 10**-0.5
    assert layer.attn_drop == 0


@pytest.mark.parametrize(
    "copier", [lambda layer: pickle.loads(pickle.dumps(layer)), "file"], ids=["pickle", "file"]
)
def test_copies(copier):
    graph = regular()
    layer = twins()[0]
    expected = layer(graph, features(graph))
    if copier == "file":
        buffer = io.BytesIO()
        torch.save(layer, buffer)
        buffer.seek(0)
        copy = torch.load(buffer, weights_only=False)
    else:
        copy = copier(layer)
    assert torch.equal(copy(graph, features(graph)), expected)


def test_autocast(device):
    graph = regular()
    layer = twins()[0].float().to(device)
    h = features(graph).float().to(device).requires_grad_()
    expected = layer(graph, h)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = layer(graph, h)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().square().sum().backward()
    for leaf in (h, *layer.parameters()):
        assert leaf.grad.dtype == torch.float32


def test_derivatives_of_derivatives(device):
    graph = dgl_flash.graph(([0, 1, 2, 0], [1, 1, 0, 0]), num_nodes=3)
    layer = twins(4, 2)[0].to(device)
    h, bias = draw(3, 4).double().to(device), draw(4, 2).double().to(device)
    leaves = h.requires_grad_(), bias.requires_grad_()
    assert torch.autograd.gradcheck(partial(layer, graph), leaves)
    assert torch.autograd.gradgradcheck(partial(layer, graph), leaves)


def test_dropout_of_attention(device):
    """In training only; on average nothing changes."""
    graph = regular()
    layer = twins(attn_drop=0.5)[0].to(device)
    h = features(graph).to(device)
    torch.manual_seed(0)
    mean = torch.stack([layer(graph, h) for _ in range(2000)]).mean(0)
    expected = layer.eval()(graph, h)
    assert torch.equal(layer(graph, h), expected)
    torch.testing.assert_close(mean, expected, rtol=0.1, atol=0.1)
    assert not torch.allclose(layer.train()(graph, h), expected)


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        return torch.tanh(self.base(x))


PARTS = ["q_proj", "k_proj", "v_proj", "out_proj"]


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("kind", ["hook", "adapter", "no bias", "parametrization"])
def test_submodules_that_do_more_are_called(name, kind, device):
    graph = regular()
    pair = twins()
    for layer in pair:
        part = getattr(layer, name)
        if kind == "hook":
            part.register_forward_hook(lambda *given: given[-1] * 1.5)
        elif kind == "adapter":
            setattr(layer, name, Adapter(part))
        elif kind == "no bias":
            part.register_parameter("bias", None)
        else:
            nn.utils.parametrizations.weight_norm(part)
    assert_same(pair, graph, features(graph), device=device)


@dataclass
class Matrix:
    """What a matrix of ``dgl.sparse`` looks like."""

    row: Tensor
    col: Tensor
    val: Tensor
    shape: tuple[int, int]


def matrices(graph, values):
    """Row = destination, in all kinds."""
    src, dst = graph.edges(order="eid")
    shape = (graph.num_nodes(), graph.num_nodes())
    coo = torch.sparse_coo_tensor(torch.stack([dst, src]), values, shape)
    return {
        "like dgl.sparse": Matrix(dst, src, values, shape),
        "coo": coo,
        "coalesced": coo.coalesce(),
        "csr": coo.to_sparse_csr(),
        "csc": coo.to_sparse_csc(),
    }


KINDS = ["like dgl.sparse", "coo", "coalesced", "csr", "csc"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("builder", [regular, isolated_rows, empty])
def test_matrices(kind, builder, device):
    """Rows attend to columns."""
    graph = builder()
    mine, other = twins()
    values = torch.ones(graph.num_edges(), dtype=torch.float64)
    matrix = matrices(graph, values)[kind]
    if isinstance(matrix, Tensor):
        matrix = matrix.to(device)
    h = features(graph)
    expected = other(graph, h)
    torch.testing.assert_close(mine.to(device)(matrix, h.to(device)).cpu(), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_matrices_multiply_the_scores(kind):
    graph = regular()
    mine, other = twins()
    values, h = draw(30, seed=3).double(), features(graph)
    q, k, v = (part(h).reshape(10, 4, 3) for part in (other.q_proj, other.k_proj, other.v_proj))
    src, dst = graph.edges()
    scores = values[:, None] * (q[dst] * k[src]).sum(1) / 2
    nothing = torch.zeros_like(k)
    expected = other.out_proj(tutorial.attend(graph, q, nothing, v, scores).flatten(1))
    torch.testing.assert_close(mine(matrices(graph, values)[kind], h), expected)


@pytest.mark.parametrize("kind", ["like dgl.sparse", "coo"])
def test_values_of_matrices_have_a_gradient(kind):
    graph = regular()
    layer, h = twins()[0], features(graph)
    values = torch.ones(30, dtype=torch.float64, requires_grad=True)
    layer(matrices(graph, values)[kind], h).square().sum().backward()
    eps, (src, dst) = 1e-6, graph.edges()
    for edge in (0, 17):
        losses = []
        for step in (eps, -eps):
            moved = values.detach().clone()
            moved[edge] += step
            matrix = Matrix(dst, src, moved, (10, 10))
            losses.append(layer(matrix, h).square().sum().item())
        slope = (losses[0] - losses[1]) / (2 * eps)
        assert values.grad[edge].item() == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_a_transposed_matrix_makes_the_graph():
    graph = regular()
    layer, h = twins()[0], features(graph)
    matrix = matrices(graph, torch.ones(30, dtype=torch.float64))["coo"]
    torch.testing.assert_close(layer(dgl_flash.graph(matrix.t()), h), layer(matrix, h))


def test_other_graphs(device):
    graph = permuted_edges()
    layer = twins()[0].to(device)
    h = features(graph).to(device)
    expected = layer(graph, h)
    own = dgl_flash.graph(graph.edges(order="eid"), num_nodes=6)
    for other in (own, structure(own), graph.int()):
        torch.testing.assert_close(layer(other, h), expected)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, relation_slice])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    with pytest.raises(ValueError, match="SparseMHA: expected nodes that attend to each other"):
        twins()[0](graph, features(graph))


def test_as_many_nodes_of_another_kind_are_refused():
    graph = dgl.heterograph({("a", "to", "b"): ([0, 1], [1, 0])})
    with pytest.raises(ValueError, match="2 sources and 2 destinations"):
        twins()[0](graph, features(graph))


@pytest.mark.parametrize("sizes", [(80, 7), (8, 16), (8, 0)], ids=str)
def test_heads_must_divide_the_width(sizes):
    with pytest.raises(ValueError, match="expected `num_heads` to divide `hidden_size`"):
        SparseMHA(*sizes)


def test_wrong_arguments():
    graph = regular()
    layer, h = twins()[0], features(graph)
    values = torch.ones(30, dtype=torch.float64)
    matrix = matrices(graph, values)["coo"]
    with pytest.raises(ValueError, match="expected no `edge_bias` beside a matrix"):
        layer(matrix, h, values)
    with pytest.raises(ValueError, match=r"\(N, N\) with N = 9.* got \(10, 10\)"):
        layer(matrix, h[:9])
    with pytest.raises(ValueError, match="`edge_bias`"):
        layer(graph, h, values[:7])
    with pytest.raises(TypeError, match="expected a tensor"):
        layer(graph, None)
    with pytest.raises(TypeError, match="SparseMHA: expected"):
        layer(matrix, None)
