"""DenseGraphConv gives DGL's outputs and gradients, and those of GraphConv."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.graphs import block, random_graph
from tests.nn.common import draw, ours, raised, twins
from tests.nn.dense import adjacency, assert_same_on_matrix, weighted

DENSE_GCN = partial(twins, "DenseGraphConv")
every_norm = pytest.mark.parametrize("norm", ["both", "right", "none", "left"])
every_order = pytest.mark.parametrize("widths", [(7, 3), (3, 7), (4, 4)], ids=str)


@every_norm
@every_order
@pytest.mark.parametrize("sizes", [(6, 6), (4, 7), (7, 4)], ids=str)
def test_weighted_adjacency(norm, widths, sizes, device):
    layers = DENSE_GCN(*widths, norm=norm)
    assert_same_on_matrix(layers, weighted(*sizes), draw(sizes[1], widths[0]), device=device)


@pytest.mark.parametrize("activation", [torch.tanh, nn.ELU()], ids=["function", "module"])
@pytest.mark.parametrize("bias", [False, True])
def test_activation_and_bias(activation, bias, device):
    layers = DENSE_GCN(4, 3, activation=activation, bias=bias)
    assert_same_on_matrix(layers, weighted(6, 6), draw(6, 4), device=device)


@pytest.mark.parametrize("size", [0, 1])
def test_hardly_any_nodes(size, device):
    assert_same_on_matrix(DENSE_GCN(4, 3), torch.ones(size, size), draw(size, 4), device=device)


@pytest.mark.parametrize("norm", ["both", "right", "none"])
@every_order
@pytest.mark.parametrize("builder", [partial(random_graph, 9, 30), block], ids=["graph", "block"])
@pytest.mark.parametrize("extra", [(), (2,), (2, 3)], ids=str)
def test_equals_the_layer_on_a_graph(norm, widths, builder, extra, device):
    """Where DGL has no right answer, with more dimensions, GraphConv has it."""
    graph = builder()
    dense = ours.DenseGraphConv(*widths, norm=norm).to(device)
    sparse = ours.GraphConv(*widths, norm=norm, allow_zero_in_degree=True).to(device)
    sparse.load_state_dict(dense.state_dict())
    feat = draw(graph.num_src_nodes(), *extra, widths[0]).to(device)
    torch.testing.assert_close(dense(adjacency(graph), feat), sparse(graph, feat))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float64], ids=str)
def test_the_adjacency_is_converted(dtype, device):
    adj = adjacency(random_graph(9, 30)).clamp(max=1)
    feat = draw(9, 4).to(device)
    results = [layer.to(device)(adj.to(dtype), feat) for layer in DENSE_GCN(4, 3)]
    torch.testing.assert_close(*results)


WRONG = {
    "swapped": (lambda: (draw(6, 4), draw(6, 6)), ValueError, "did you swap"),
    "rows": (lambda: (draw(6, 6), draw(5, 4)), ValueError, r"\(N_dst, 5\), got \(6, 6\)"),
    "dimensions": (lambda: (draw(6), draw(6, 4)), ValueError, r"got \(6,\)"),
    "sparse": (lambda: (torch.eye(6).to_sparse(), draw(6, 4)), ValueError, "to_dense"),
    "graph": (lambda: (random_graph(6, 9), draw(6, 4)), TypeError, "`adj` .* got DGLGraph"),
    "no features": (lambda: (draw(6, 6), None), TypeError, "`feat` .* got NoneType"),
}


@pytest.mark.parametrize("name", ["DenseGraphConv", "DenseSAGEConv", "DenseChebConv"])
@pytest.mark.parametrize("what", sorted(WRONG))
def test_wrong_arguments(name, what):
    layer = getattr(ours, name)(4, 3, *((2,) if name == "DenseChebConv" else ()))
    make, error, text = WRONG[what]
    text = text.replace("N_dst", "5") if name == "DenseChebConv" else text
    with pytest.raises(error, match=f"{name}: expected .*{text}"):
        layer(*make())


def test_widths_that_differ():
    errors = [raised(partial(layer, draw(6, 6), draw(6, 5))) for layer in DENSE_GCN(4, 3)]
    assert type(errors[0]) is type(errors[1]) is RuntimeError
