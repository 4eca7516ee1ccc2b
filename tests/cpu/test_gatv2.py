"""The scores of GATv2 on the CPU: pieces of the edges against the formula as it stands."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import cpu, ops, reference
from dgl_flash.cpu import chunks, gatv2
from dgl_flash.demo.memory import peak_memory
from dgl_flash.structure import GraphStructure, structure
from tests.graphs import random_graph, zoo
from tests.numerics import check_op, outputs_and_grads
from tests.ops.common import draw, every_graph, skewed_graph, small_graph_of

CPU = torch.device("cpu")
OPERANDS = ("feat_src", "feat_dst", "attn")
every_precision = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


@pytest.fixture(autouse=True)
def by_pieces(monkeypatch):
    """Keep small graphs from taking the short way."""
    monkeypatch.setattr(gatv2, "WHOLE_BYTES", -1)


def inputs(struct, num_heads, head_dim, dtype):
    kind = {"dtype": dtype, "device": CPU}
    return {
        "feat_src": draw(struct.num_src, num_heads, head_dim, seed=1, **kind),
        "feat_dst": draw(struct.num_dst, num_heads, head_dim, seed=2, **kind),
        "attn": draw(num_heads, head_dim, seed=3, **kind) / max(head_dim, 1) ** 0.5,
    }


def plain_scores(struct, feat_src, feat_dst, attn, negative_slope):
    """All edges at once, whatever their number."""
    src, dst = struct.edges()
    sums = torch.nn.functional.leaky_relu(feat_src[src] + feat_dst[dst], negative_slope)
    return (sums * attn).sum(dim=-1)


def check(struct, given, slope=0.2, **kwargs):
    check_op(
        lambda **kw: cpu.gatv2_scores(struct, **kw, negative_slope=slope),
        lambda **kw: plain_scores(struct, **kw, negative_slope=slope),
        given,
        **kwargs,
    )


@every_graph
@every_precision
@pytest.mark.parametrize("shape", [(2, 16), (3, 7)], ids=str)
def test_every_graph(name, dtype, shape):
    struct = structure(zoo()[name](torch.int64))
    check(struct, inputs(struct, *shape, dtype))


@every_precision
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.0, -0.5, 2.0])
def test_every_slope(slope, dtype):
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 8, dtype)
    # Sums of zero take the slope, as in torch.
    given["feat_src"][::2] = 0
    given["feat_dst"][::3] = -0.0
    check(struct, given, slope)


@every_precision
@pytest.mark.parametrize("shape", [(1, 1), (1, 64), (8, 3), (4, 32), (1, 300)], ids=str)
def test_every_shape(shape, dtype):
    struct = structure(random_graph(300, 1500, seed=5))  # more edges than a block of a batch
    check(struct, inputs(struct, *shape, dtype))


SMALL = ("skewed", "permuted_edges", "multi_edges", "block", "bipartite_up")


@every_precision
@pytest.mark.parametrize(
    ("name", "edges"),
    [*((name, edges) for name in SMALL for edges in (1, 3)), ("skewed", 600), ("power_law", 600)],
)
def test_the_same_whatever_the_pieces(name, edges, dtype, monkeypatch):
    struct = structure(skewed_graph() if name == "skewed" else zoo()[name](torch.int32))
    given = inputs(struct, 2, 5, dtype)

    def run():
        return outputs_and_grads(
            lambda **kw: cpu.gatv2_scores(struct, **kw, negative_slope=0.2), given
        )

    usual = run()
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 2 * edges * 10 * dtype.itemsize)
    found = run()
    for name, value in usual.items():
        scale = value.abs().max().item()
        torch.testing.assert_close(
            found[name], value, rtol=0, atol=20 * torch.finfo(dtype).eps * scale
        )


def test_pieces_are_walked(monkeypatch):
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 5, torch.float32)
    seen = []

    def pieces(indptr, width, itemsize):
        found = list(chunks.row_pieces(indptr, width, itemsize))
        seen.append(len(found))
        return found

    monkeypatch.setattr(gatv2, "row_pieces", pieces)
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 13)
    leaves = [t.requires_grad_() for t in given.values()]
    scores = cpu.gatv2_scores(struct, *leaves, 0.2)
    assert seen == [25]
    torch.autograd.grad(scores.sum(), leaves)
    assert seen == [25, 25, 25]  # one walk for each end


def test_few_edges_take_the_short_way(monkeypatch):
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 5, torch.float32)

    def refuse(*args):
        raise AssertionError("by pieces")

    monkeypatch.setattr(gatv2, "_forward", refuse)
    monkeypatch.setattr(gatv2, "WHOLE_BYTES", 2500 * 10 * 4)
    assert torch.equal(
        cpu.gatv2_scores(struct, *given.values(), 0.2),
        plain_scores(struct, *given.values(), 0.2),
    )
    monkeypatch.setattr(gatv2, "WHOLE_BYTES", 2500 * 10 * 4 - 1)
    with pytest.raises(AssertionError, match="by pieces"):
        cpu.gatv2_scores(struct, *given.values(), 0.2)


@every_precision
@pytest.mark.parametrize("wanted", [(n,) for n in OPERANDS] + [("feat_src", "attn")], ids=str)
def test_gradients_of_some_operands(wanted, dtype):
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 8, dtype)
    grads = []
    for score in (cpu.gatv2_scores, plain_scores):
        leaves = {n: t.clone().requires_grad_(n in wanted) for n, t in given.items()}
        score(struct, *leaves.values(), 0.2).square().sum().backward()
        assert all((leaf.grad is not None) == (n in wanted) for n, leaf in leaves.items())
        grads.append([leaves[n].grad for n in wanted])
    for found, expected in zip(*grads, strict=True):
        tolerance = 100 * torch.finfo(dtype).eps * expected.abs().max().item()
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", [(0, 4), (2, 0)], ids=str)
@pytest.mark.parametrize("name", ["empty", "no_nodes", "regular"])
def test_nothing_to_score(name, shape):
    struct = structure(zoo()[name](torch.int64))
    given = [t.requires_grad_() for t in inputs(struct, *shape, torch.float32).values()]
    scores = cpu.gatv2_scores(struct, *given, 0.2)
    assert torch.equal(scores, torch.zeros(struct.num_edges, shape[0]))
    for grad, operand in zip(torch.autograd.grad(scores.sum(), given), given, strict=True):
        assert grad.shape == operand.shape


def test_nodes_without_edges_have_a_gradient_of_zero():
    struct = GraphStructure.from_coo(*torch.zeros(2, 0, dtype=torch.int64), 3, 4)
    given = [t.requires_grad_() for t in inputs(struct, 2, 4, torch.float32).values()]
    grads = torch.autograd.grad(cpu.gatv2_scores(struct, *given, 0.2).sum(), given)
    assert not any(grad.any() for grad in grads)


@pytest.mark.parametrize("slope", [0.2, -0.5])
def test_derivatives_to_second_order(slope):
    struct = structure(small_graph_of())
    leaves = [t.requires_grad_() for t in inputs(struct, 2, 3, torch.float64).values()]

    def run(*operands):
        return cpu.gatv2_scores(struct, *operands, slope)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)

    def on_both_sides(feat, attn):
        return cpu.gatv2_scores(struct, feat, feat, attn, slope)

    assert torch.autograd.gradcheck(on_both_sides, leaves[1:])
    assert torch.autograd.gradgradcheck(on_both_sides, leaves[1:])


def test_awkward_memory_and_two_runs_agree_bitwise(monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1 << 15)
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 32, torch.float32)
    odd = torch.zeros(300 * 64 + 1)[1:].view(300, 2, 32)
    odd.copy_(given["feat_src"])
    awkward = [odd, *(given[n].transpose(-1, -2).contiguous().mT for n in OPERANDS[1:])]
    runs = []
    for operands in (given.values(), given.values(), awkward):
        leaves = [t.detach().requires_grad_() for t in operands]
        scores = cpu.gatv2_scores(struct, *leaves, 0.2)
        # The gradient of a sum is one number, expanded.
        runs.append([scores, *torch.autograd.grad(scores.sum(), leaves)])
    for again in runs[1:]:
        for a, b in zip(runs[0], again, strict=True):
            assert torch.equal(a, b)


def test_autocast_outside_does_not_reach_the_backward():
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 32, torch.float32)

    def gradients(enabled):
        leaves = [t.clone().requires_grad_() for t in given.values()]
        scores = cpu.gatv2_scores(struct, *leaves, 0.2)
        with torch.autocast("cpu", enabled=enabled):
            return torch.autograd.grad(scores, leaves, torch.ones_like(scores))

    for with_it, without in zip(gradients(True), gradients(False), strict=True):
        assert torch.equal(with_it, without)


def test_memory_does_not_grow_with_edges_times_width():
    struct = structure(random_graph(3000, 200_000, seed=2))
    leaves = [t.requires_grad_() for t in inputs(struct, 2, 64, torch.float32).values()]
    struct.out_adj, struct.edges()  # kept with the graph
    per_head = struct.num_edges * 2 * 4

    def run():
        ops.gatv2(struct, *leaves).sum().backward()

    run()
    found = peak_memory(run, CPU)
    # A few numbers an edge and head, gathered pieces, and rows of nodes: 6 MB, 16 MB, 12 MB.
    nodes = sum(leaf.numel() * 4 for leaf in leaves)
    assert found < 4 * per_head + 2 * chunks.CHUNK_BYTES + 4 * nodes
    assert found < per_head * 64 / 2  # (E, H, D) has 102 MB


def test_scores_of_the_op_are_these(monkeypatch):
    struct = structure(skewed_graph())
    given = inputs(struct, 2, 8, torch.float32)
    seen = []

    def spy(*args):
        seen.append(len(args))
        return reference.gatv2_scores(*args)

    monkeypatch.setattr(cpu, "gatv2_scores", spy)
    ops.gatv2(struct, **given)
    assert len(seen) == 1
