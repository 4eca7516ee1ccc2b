"""The ops of ``torch.compile``: schema, shapes and derivatives are checked by torch itself."""

from __future__ import annotations

import math

import pytest
import torch

from dgl_flash.ops import edge_softmax, gatv2, spmm, traced, u_dot_v
from dgl_flash.ops.spmm import Scaling
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.traced import edge_tensors, find
from tests.graphs import small_zoo
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


def gradients(out, *leaves):
    return torch.autograd.grad(out.square().sum(), leaves)


def same(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@some_graphs
@pytest.mark.parametrize("mean", [False, True])
def test_weighted_sum(device, name, mean):
    struct, src, _, weight, scales = operands(device, name)
    edges = edge_tensors(struct)
    opcheck(traced._spmm, (*edges, src, weight, *scales, mean))
    opcheck(
        traced._spmm,
        (*edges.reverse(), src[:0].new_ones((struct.num_dst, 5)), None, None, None, mean),
    )
    found = traced.spmm(struct, src, weight, Scaling(*scales, mean))
    expected = spmm(
        struct,
        src,
        weight,
        reduce="mean" if mean else "sum",
        src_scale=scales[0],
        dst_scale=scales[1],
    )
    same(found, expected)
    same(gradients(found, src, weight), gradients(expected, src, weight))


@some_graphs
def test_dot_products(device, name):
    struct, src, dst, _, scales = operands(device, name)
    arguments = (*edge_tensors(struct), src, dst, *scales, True, 2)
    opcheck(traced._u_dot_v, arguments)
    found, expected = traced.u_dot_v(struct, src, dst), u_dot_v(struct, src, dst)
    same(found, expected)
    same(gradients(found, src, dst), gradients(expected, src, dst))


@some_graphs
def test_softmax(device, name):
    struct, _, _, score, _ = operands(device, name)
    opcheck(traced._edge_softmax, (*edge_tensors(struct), score))
    found, expected = traced.edge_softmax(struct, score), edge_softmax(struct, score)
    same(found, expected)
    same(gradients(found, score), gradients(expected, score))


@pytest.mark.gpu
@some_graphs
def test_attention(name):
    struct, src, dst, _, _ = operands(torch.device("cuda"), name)
    attn = draw(2, 3, dtype=torch.float64, device=struct.device, seed=6).requires_grad_()
    opcheck(traced._gatv2, (*edge_tensors(struct), src, dst, attn, 0.2))
    found, expected = traced.gatv2(struct, src, dst, attn, 0.2), gatv2(struct, src, dst, attn)
    same(found, expected)
    leaves = src, dst, attn
    same(gradients(found, *leaves), gradients(expected, *leaves))


@some_graphs
def test_derivatives_of_any_order(device, name):
    struct, src, _, weight, _ = operands(device, name)
    if math.prod(weight.shape) == 0:
        return

    def run(feat, factors):
        return traced.spmm(struct, feat, factors, Scaling(mean=True))

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
