"""The ops of ``torch.compile``: schema, shapes and derivatives are checked by torch itself."""

from __future__ import annotations

import contextlib
import importlib
import math

import pytest
import torch

from dgl_flash.ops import edge_softmax, traced, traced_attention, traced_products
from dgl_flash.ops.edge_terms import draw_seed
from dgl_flash.ops.gradients import EAGER, Scaling
from dgl_flash.ops.traced_products import TRACED
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.traced import edge_tensors, find
from tests.graphs import small_zoo
from tests.ops.attention import KINDS, every_kind
from tests.ops.common import draw, on

pytestmark = pytest.mark.filterwarnings("ignore")
some_graphs = pytest.mark.parametrize(
    "name", ["bipartite_down", "bipartite_up", "permuted_edges", "isolated_rows", "empty"]
)


def operands(device, name, dtype=torch.float64):
    struct = on(device, small_zoo()[name](torch.int64))
    kind = {"dtype": dtype, "device": device}
    src = draw(struct.num_src, 2, 3, seed=1, **kind).requires_grad_()
    dst = draw(struct.num_dst, 2, 3, seed=2, **kind).requires_grad_()
    weight = draw(struct.num_edges, 2, seed=3, **kind).requires_grad_()
    scales = draw(struct.num_src, seed=4, **kind), draw(struct.num_dst, seed=5, **kind)
    return struct, src, dst, weight, scales


def opcheck(op, arguments):
    if arguments[1].numel() > 0:  # empty tensors on CUDA all share the null pointer: "aliases"
        torch.library.opcheck(op, arguments)


@contextlib.contextmanager
def traced_everything():
    """Let attention take its form for ``torch.compile``."""
    attention = importlib.import_module("dgl_flash.ops.attention")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "is_tracing", lambda: True)
        yield


def gradients(out, *leaves):
    return torch.autograd.grad(out.square().sum(), leaves)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def compare(struct, name, arguments, leaves, scaling, on_edges):
    """An op on tensors with the same product as an autograd function."""
    flat = (scaling.src, scaling.dst, scaling.mean)
    edges = edge_tensors(struct)
    op = getattr(traced_products, f"_{name}")
    opcheck(op, (*edges, *arguments, *flat, on_edges))
    found = getattr(TRACED, name)(edges, *arguments, scaling, on_edges)
    expected = getattr(EAGER, name)(struct, *arguments, scaling, on_edges)
    same(found, expected)
    if leaves:
        same(gradients(found, *leaves), gradients(expected, *leaves))


@some_graphs
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("on_edges", [False, True])
@pytest.mark.parametrize("parts", [1, 2, 6])
def test_sum(device, name, mean, on_edges, parts):
    struct, src, _, _, scales = operands(device, name)
    kind = {"dtype": src.dtype, "device": device}
    feat = draw(struct.num_edges, 2, 3, seed=6, **kind).requires_grad_() if on_edges else src
    weight = draw(struct.num_edges, parts, seed=3, **kind).requires_grad_()
    scaling = Scaling(None if on_edges else scales[0], scales[1], mean)
    compare(struct, "sum", (feat, weight), (feat, weight), scaling, on_edges)
    ones = torch.ones(struct.num_dst, 5, **kind)
    compare(struct.reverse(), "sum", (ones, None), (), Scaling(mean=mean), False)


@some_graphs
@pytest.mark.parametrize("on_edges", [False, True])
def test_dot(device, name, on_edges):
    struct, src, dst, _, scales = operands(device, name)
    kind = {"dtype": src.dtype, "device": device}
    feat = draw(struct.num_edges, 2, 3, seed=6, **kind).requires_grad_() if on_edges else src
    scaling = Scaling(None if on_edges else scales[0], scales[1], True)
    compare(struct, "dot", (feat, dst, 2), (feat, dst), scaling, on_edges)


@some_graphs
@pytest.mark.parametrize("op", ["copy", "add", "mul"])
@pytest.mark.parametrize("other", ["source", "scalar", "head", "element"])
def test_map(device, name, op, other):
    struct, src, dst, weight, scales = operands(device, name)
    kind = {"dtype": src.dtype, "device": device}
    second = {
        "source": src,
        "scalar": draw(struct.num_edges, seed=7, **kind).requires_grad_(),
        "head": weight,
        "element": draw(struct.num_edges, 2, 3, seed=8, **kind).requires_grad_(),
    }[other]
    on_edges = other != "source"
    if op == "copy":
        second = None
    scaling = Scaling(None if on_edges else scales[0], scales[1], True)
    if op == "add":
        scaling = Scaling()
    if second is None:
        scaling = Scaling(None, scales[1], True)
    leaves = (dst,) if second is None else (dst, second)
    compare(struct, "map", (op, dst, second), leaves, scaling, on_edges)


@some_graphs
def test_softmax(device, name):
    struct, _, _, score, _ = operands(device, name)
    opcheck(traced._edge_softmax, (*edge_tensors(struct), score))
    found, expected = traced.edge_softmax(struct, score), edge_softmax(struct, score)
    same(found, expected)
    same(gradients(found, score), gradients(expected, score))


@pytest.mark.gpu
@some_graphs
@every_kind
@pytest.mark.parametrize("options", [{}, {"attn_drop": 0.5}, {"return_attention": True}], ids=str)
def test_attention(kind, name, options):
    device = torch.device("cuda")
    graph = small_zoo()[name](torch.int64)
    given = KINDS[kind].inputs(graph, 2, 3, torch.float64, device)
    for name, seed in (("edge_bias", 8), ("edge_weight", 9)):
        given[name] = draw(graph.num_edges(), 2, dtype=torch.float64, device=device, seed=seed)
    leaves = [value.requires_grad_() for value in given.values()]
    struct = on(device, graph)

    def run():
        torch.manual_seed(3)
        found = KINDS[kind].op(struct, **given, **options)
        found = found if isinstance(found, tuple) else (found,)
        total = sum(part.square().sum() for part in found)
        return (*found, *torch.autograd.grad(total, leaves))

    eager = run()
    with traced_everything():
        for found, expected in zip(run(), eager, strict=True):
            same(found, expected)


@pytest.mark.gpu
@some_graphs
@every_kind
@pytest.mark.parametrize("want_attention", [False, True])
def test_attention_keeps_to_its_schema(kind, name, want_attention):
    device = torch.device("cuda")
    graph = small_zoo()[name](torch.int64)
    operands = KINDS[kind].inputs(graph, 2, 3, torch.float64, device).values()
    numbers = draw(graph.num_edges(), 2, dtype=torch.float64, device=device, seed=8)
    leaves = [value.requires_grad_() for value in (numbers, *operands)]
    constants = kind, 0.2, 0.5, False, draw_seed(device)
    arguments = (*edge_tensors(on(device, graph)), *constants, leaves[0], None, *leaves[1:])
    opcheck(traced_attention._attention, (*arguments, want_attention))


@some_graphs
def test_derivatives_of_any_order(device, name):
    struct, src, _, weight, _ = operands(device, name)
    if math.prod(weight.shape) == 0:
        return

    def run(feat, factors):
        return TRACED.sum(edge_tensors(struct), feat, factors, Scaling(mean=True))

    assert torch.autograd.gradgradcheck(run, (src, weight))


def test_a_structure_is_found_by_its_tensors(device):
    struct = on(device, small_zoo()["bipartite_up"](torch.int32))
    for seen in (struct, struct.reverse()):
        edges = edge_tensors(seen)
        found = find(edges)
        assert (found.num_src, found.num_dst) == (seen.num_src, seen.num_dst)
        assert (edges.num_src, edges.num_dst) == (seen.num_src, seen.num_dst)
        assert found.in_adj is seen.in_adj
        copies = edges._replace(indptr=edges.indptr.clone())
        again = find(copies)
        assert again.in_adj is not seen.in_adj
        for ours, theirs in zip(again.edges(), seen.edges(), strict=True):
            assert torch.equal(ours, theirs)


def test_a_structure_is_found_when_its_other_side_was_built_later(device):
    by_src = on(device, small_zoo()["bipartite_up"](torch.int64)).out_adj
    struct = GraphStructure.from_adjacency(out_adj=by_src)
    assert find(edge_tensors(struct)).out_adj is by_src
    built = struct.in_adj
    assert find(edge_tensors(struct)).in_adj is built


def test_copies_in_a_capture_are_refused_in_words(device, monkeypatch):
    struct = on(device, small_zoo()["path"](torch.int64))
    edges = edge_tensors(struct)  # found for as long as the structure lives
    copies = edges._replace(indptr=edges.indptr.clone())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    assert find(edges).num_dst == edges.num_dst
    if device.type == "cpu":
        assert find(copies).num_dst == edges.num_dst
        return
    with pytest.raises(RuntimeError, match="compile it without mode='reduce-overhead'"):
        find(copies)


def test_the_registry_keeps_nothing_alive():
    from dgl_flash.structure.traced import _edges_by_indptr

    struct = structure(small_zoo()["path"](torch.int64))
    key = id(edge_tensors(struct).indptr)
    assert key in _edges_by_indptr
    del struct
    assert key not in _edges_by_indptr
