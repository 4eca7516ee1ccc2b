"""The softmax on the CPU against the reference, with and without the maximum subtracted."""

from __future__ import annotations

import math

import pytest
import torch

from dgl_flash import cpu, ops, reference
from dgl_flash.cpu import bags, chunks
from dgl_flash.structure import GraphStructure, structure
from tests.graphs import HUB_IN_EDGES, zoo
from tests.numerics import outputs_and_grads
from tests.ops.common import draw, every_graph, small_graph_of
from tests.ops.test_edge_softmax import check_softmax

CPU = torch.device("cpu")
every_precision = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@every_graph
def test_every_graph(name):
    struct = structure(zoo()[name](torch.int64))
    check_softmax(struct, draw(struct.num_edges, 3, dtype=torch.float32, device=CPU, seed=1))


@every_graph
def test_every_graph_in_double_precision(name):
    struct = structure(zoo()[name](torch.int64))
    logits = {"logits": draw(struct.num_edges, 3, dtype=torch.float64, device=CPU, seed=1)}
    found = outputs_and_grads(lambda logits: ops.edge_softmax(struct, logits), logits)
    exact = outputs_and_grads(lambda logits: reference.edge_softmax(struct, logits), logits)
    scale = exact["out"].abs()
    # The sum over a hub is no more exact in the reference either.
    for name, value in found.items():
        assert ((value - exact[name]).abs() <= 1e-12 * scale).all(), name


@every_graph
@every_precision
def test_every_graph_with_the_maximum_subtracted(name, dtype):
    struct = structure(zoo()[name](torch.int64))
    # Far from zero, but what is left of them after the subtraction has the digits of an ordinary
    # score, so that the result is as exact.
    logits = draw(struct.num_edges, 3, dtype=dtype, device=CPU, seed=1) + 1000
    found = ops.edge_softmax(struct, logits)
    exact = reference.edge_softmax(struct, logits.double())
    torch.testing.assert_close(found.double(), exact, rtol=64 * torch.finfo(dtype).eps, atol=0)


@every_precision
@pytest.mark.parametrize("name", ["hub", "power_law", "permuted_edges", "multi_edges", "block"])
@pytest.mark.parametrize("shift", [0, 1000])
def test_the_same_whatever_the_pieces(name, dtype, shift, monkeypatch):
    struct = structure(zoo()[name](torch.int32))
    logits = draw(struct.num_edges, 2, dtype=dtype, device=CPU, seed=1) + shift
    grad = draw(struct.num_edges, 2, dtype=dtype, device=CPU, seed=2)
    usual = cpu.edge_softmax(struct, logits)
    usual_grad = cpu.edge_softmax_backward(struct, usual, grad)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 56)
    monkeypatch.setattr(bags, "LONG_ROW", 40)
    monkeypatch.setattr(bags, "PIECE", 7)
    if name == "hub":
        monkeypatch.setattr(chunks, "CHUNK_BYTES", 5600)
    struct.in_adj.launches.clear()
    found = cpu.edge_softmax(struct, logits)
    torch.testing.assert_close(found, usual)
    torch.testing.assert_close(cpu.edge_softmax_backward(struct, found, grad), usual_grad)


def test_a_hub_keeps_its_digits():
    struct = structure(zoo()["hub"](torch.int64))
    out = ops.edge_softmax(struct, torch.full((struct.num_edges, 1), 0.1))
    sums = torch.zeros(struct.num_dst, dtype=torch.float64)
    sums.index_add_(0, struct.edges()[1], out[:, 0].double())
    assert struct.in_adj.max_degree >= HUB_IN_EDGES
    present = struct.in_degrees() > 0
    assert (sums[present] - 1).abs().max() < 1e-6


def three_rows() -> GraphStructure:
    """Rows of three edges, of two, of none, and of one."""
    dst = torch.tensor([0, 1, 0, 3, 1, 0])
    return GraphStructure.from_coo(torch.zeros_like(dst), dst, 1, 4)


@every_precision
@pytest.mark.parametrize(
    "scores",
    [
        [1.0, 2.0, math.nan, 3.0, 4.0, 5.0],
        [1.0, 2.0, math.inf, 3.0, 4.0, 5.0],
        [1.0, 2.0, -math.inf, 3.0, 4.0, 5.0],
        [1.0, -math.inf, 2.0, 3.0, -math.inf, 5.0],
        [-math.inf, 1.0, 2.0, -math.inf, 4.0, -math.inf],
        [1e4, -1e4, 2.0, -1e4, 1e4, 3e4],
        [-900.0, -901.0, -902.0, -903.0, -904.0, -905.0],
    ],
    ids=str,
)
def test_values_beyond_the_exponential_behave_as_in_the_reference(scores, dtype):
    struct = three_rows()
    logits = torch.tensor(scores, dtype=dtype).unsqueeze(1)
    found = ops.edge_softmax(struct, logits)
    torch.testing.assert_close(found, reference.edge_softmax(struct, logits), equal_nan=True)


@every_precision
def test_no_row_loses_its_sum_close_to_where_the_maximum_is_subtracted(dtype):
    struct = three_rows()
    limit = 2 / 3 * math.log(torch.finfo(dtype).max)
    for factor in (0.999, 1.001):
        for sign in (1, -1):
            logits = torch.full((6, 2), sign * factor * limit, dtype=dtype)
            logits[::2, 1] *= -1
            found = ops.edge_softmax(struct, logits)
            torch.testing.assert_close(found, reference.edge_softmax(struct, logits))


def test_no_edges_no_numbers():
    struct = GraphStructure.from_coo(*torch.zeros(2, 0, dtype=torch.int64), 3, 4)
    for shape in ((0,), (0, 2), (0, 2, 1)):
        logits = torch.zeros(shape, requires_grad=True)
        out = ops.edge_softmax(struct, logits)
        assert out.shape == shape
        (grad,) = torch.autograd.grad(out.sum(), logits)
        assert grad.shape == shape
    assert ops.edge_softmax(three_rows(), torch.zeros(6, 0)).shape == (6, 0)


@pytest.mark.parametrize("shift", [0, 800])
def test_derivatives_to_second_order(shift):
    graph = small_graph_of()
    logits = draw(40, 2, dtype=torch.float64, device=CPU, seed=1) + shift
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ops.edge_softmax(graph, x), logits)
    assert torch.autograd.gradgradcheck(lambda x: ops.edge_softmax(graph, x), logits)


def test_the_operand_stays_as_it_was():
    struct = structure(zoo()["power_law"](torch.int64))
    logits = draw(struct.num_edges, 2, dtype=torch.float32, device=CPU, seed=1)
    grad = draw(struct.num_edges, 2, dtype=torch.float32, device=CPU, seed=2)
    kept, kept_grad = logits.clone(), grad.clone()
    out = ops.edge_softmax(struct, logits.requires_grad_())
    kept_out = out.detach().clone()
    torch.autograd.grad(out, logits, grad)
    for now, before in ((logits, kept), (grad, kept_grad), (out, kept_out)):
        assert torch.equal(now, before)
