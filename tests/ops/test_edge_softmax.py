"""Softmax over the edges of a node, against the reference and against live DGL."""

from __future__ import annotations

import dgl
import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import two_relations, zoo
from tests.numerics import outputs_and_grads
from tests.ops.common import (
    draw,
    every_dtype,
    every_graph,
    every_idtype,
    on,
    skewed_graph,
    small_graph_of,
)


def check_softmax(graph, logits, norm_by="dst"):
    """Judge by each score's own scale: a probability p may miss p, and its gradient p * |grad|."""
    struct = on(logits.device, graph)
    struct = struct if norm_by == "dst" else struct.reverse()
    found = outputs_and_grads(
        lambda logits: ops.edge_softmax(graph, logits, norm_by=norm_by), {"logits": logits}
    )
    exact = outputs_and_grads(
        lambda logits: reference.edge_softmax(struct, logits), {"logits": logits}, torch.float64
    )
    stored = torch.finfo(logits.dtype).eps
    # The exponential turns the rounding of a score of size s into a relative error of s.
    spread = 1 + (logits.abs().max().item() if logits.numel() else 0)
    computed = spread * torch.finfo(torch.promote_types(logits.dtype, torch.float32)).eps
    p = exact["out"]
    assert found["out"].dtype == found["grad_logits"].dtype == logits.dtype
    tiny = torch.finfo(logits.dtype).tiny
    for name, scale in (("out", p), ("grad_logits", 2 * p)):
        error = (found[name].double() - exact[name]).abs()
        assert found[name].isfinite().all()
        bound = 8 * computed * scale + stored * exact[name].abs() + tiny
        assert (error <= bound).all(), f"{name}: {(error / bound).max().item():.3g} of the bound"


@every_idtype
@every_graph
@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_every_graph(name, idtype, norm_by, device):
    graph = zoo()[name](idtype)
    logits = draw(graph.num_edges(), 3, dtype=torch.float32, device=device, seed=1)
    check_softmax(graph, logits, norm_by)


@every_dtype
@pytest.mark.parametrize("shape", [(), (1,), (2,), (3,), (8, 1), (4, 5), (33,), (64,)])
def test_every_shape(dtype, shape, device):
    graph = skewed_graph()
    check_softmax(graph, draw(2500, *shape, dtype=dtype, device=device, seed=1) * 3)


# DGL's own edge_softmax refuses graphs restricted to a format it does not use.
@pytest.mark.parametrize("name", sorted(name for name in zoo() if "_only" not in name))
@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_equals_dgl(name, norm_by, device):
    graph = zoo()[name](torch.int64)
    logits = draw(graph.num_edges(), 2, 1, dtype=torch.float64, device=device, seed=1)
    expected = dgl.ops.edge_softmax(graph, logits.cpu(), norm_by=norm_by)
    found = ops.edge_softmax(graph, logits, norm_by=norm_by)
    torch.testing.assert_close(found.cpu(), expected)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_subset_equals_dgl(norm_by, device):
    graph = skewed_graph()
    eids = torch.arange(0, 2500, 3)
    logits = draw(len(eids), 2, dtype=torch.float64, device=device, seed=1)
    expected = dgl.ops.edge_softmax(graph, logits.cpu(), eids, norm_by)
    torch.testing.assert_close(ops.edge_softmax(graph, logits, eids, norm_by).cpu(), expected)


@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_heterograph_equals_dgl(norm_by, device):
    graph = two_relations(torch.int64)
    logits = {
        etype: draw(graph.num_edges(etype), 2, dtype=torch.float64, device=device, seed=i)
        for i, etype in enumerate(graph.canonical_etypes)
    }
    on_cpu = {etype: value.cpu() for etype, value in logits.items()}
    expected = dgl.ops.edge_softmax(graph, on_cpu, norm_by=norm_by)
    found = ops.edge_softmax(graph, logits, norm_by=norm_by)
    assert list(found) == list(expected)
    for etype, value in expected.items():
        torch.testing.assert_close(found[etype].cpu(), value)


def test_infinite_range_of_scores(device):
    graph = skewed_graph()
    logits = draw(2500, 2, dtype=torch.float32, device=device, seed=1) * 1e4
    out = ops.edge_softmax(graph, logits)
    assert out.isfinite().all()
    exact = reference.edge_softmax(on(device, graph), logits.double())
    torch.testing.assert_close(out.double(), exact, rtol=2e-3, atol=1e-6)


def test_gradcheck_to_second_order(device):
    graph = small_graph_of()
    logits = draw(40, 2, dtype=torch.float64, device=device, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: ops.edge_softmax(graph, x), logits)
    assert torch.autograd.gradgradcheck(lambda x: ops.edge_softmax(graph, x), logits)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"logits": torch.zeros(3)}, ValueError, "expected `logits`"),
        ({"logits": torch.zeros(2500).long()}, TypeError, "expected `logits`"),
        ({"logits": torch.zeros(1), "eids": torch.tensor([2500])}, ValueError, "expected `eids`"),
        ({"logits": torch.zeros(1), "eids": torch.tensor([0.5])}, TypeError, "expected `eids`"),
        ({"logits": torch.zeros(2500), "norm_by": "both"}, dgl.DGLError, "expected `norm_by`"),
    ],
)
def test_spoiled_arguments(arguments, error, text, device):
    arguments = {**arguments, "logits": arguments["logits"].to(device)}
    with pytest.raises(error, match=text):
        ops.edge_softmax(skewed_graph(), **arguments)
