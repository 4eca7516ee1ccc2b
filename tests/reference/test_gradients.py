"""First and second derivatives of the reference, along each of the paths it can take."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash import reference
from dgl_flash.reference import edgewise
from dgl_flash.structure import structure
from tests.graphs import hub, isolated_rows, multi_edges, power_law, random_bipartite
from tests.numerics import check_op, outputs_and_grads

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.fixture(params=["whole", "chunks"])
def chunking(request, monkeypatch):
    """Small graphs fit in one chunk; a limit of a few rows shows the loop over chunks."""
    if request.param == "chunks":
        # Eight edges of 24 bytes.
        monkeypatch.setitem(edgewise.LIMITS, "cpu", edgewise.Limits(whole=0, chunk=200))


def bipartite():
    return structure(random_bipartite(7, 5, 19))


def leaves(struct, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values.to(dtype).requires_grad_()

    return {
        "feat_src": draw(struct.num_src, 2, 3),
        "feat_dst": draw(struct.num_dst, 2, 3),
        "attn": draw(2, 3),
        "edge_weight": draw(struct.num_edges, 2),
        "el": draw(struct.num_src, 2),
        "er": draw(struct.num_dst, 2),
        "values": draw(struct.num_src, 2, 5),
    }


OPS = {
    "spmm": (reference.spmm, ("feat_src",)),
    "weighted": (reference.spmm, ("feat_src", "edge_weight")),
    "mean": (partial(reference.spmm, reduce="mean"), ("feat_src", "edge_weight")),
    "u_dot_v": (reference.u_dot_v, ("feat_src", "feat_dst")),
    "edge_softmax": (reference.edge_softmax, ("edge_weight",)),
    "gatv2": (reference.gatv2, ("feat_src", "feat_dst", "attn")),
    "gat": (reference.gat, ("feat_src", "el", "er")),
    "dot_attention": (reference.dot_attention, ("feat_dst", "feat_src", "values")),
}
every_op = pytest.mark.parametrize("op", sorted(OPS))


@every_op
def test_gradcheck(op, chunking):
    struct = bipartite()
    function, names = OPS[op]
    values = tuple(leaves(struct)[name] for name in names)
    assert gradcheck(partial(function, struct), values)
    assert gradgradcheck(partial(function, struct), values)


@every_op
@pytest.mark.parametrize(
    ("graph", "dtype"),
    [(graph, dtype) for graph in (multi_edges, isolated_rows) for dtype in DTYPES]
    + [(power_law, torch.float32)],
)
def test_gradients_in_each_dtype(op, graph, dtype, chunking):
    """Float32 and the half types take torch's embedding bags, float64 the formula."""
    struct = structure(graph())
    function, names = OPS[op]
    inputs = {name: leaves(struct, dtype)[name] for name in names}
    check_op(partial(call, function, struct), partial(call, function, struct), inputs)


def call(function, struct, **inputs):
    return function(struct, *inputs.values())


def test_gradients_beside_a_hub():
    struct = structure(hub())
    inputs = {name: leaves(struct, torch.float32)[name] for name in ("feat_src", "edge_weight")}
    function = partial(call, reference.spmm, struct)
    check_op(function, function, inputs)


@every_op
def test_second_derivatives_in_float32(op, chunking):
    struct = bipartite()
    function, names = OPS[op]

    def gradient(**inputs):
        out = function(struct, *inputs.values())
        return torch.autograd.grad(out.square().sum(), list(inputs.values()), create_graph=True)

    results = {}
    for dtype in (torch.float32, torch.float64):
        inputs = {name: leaves(struct, dtype)[name] for name in names}
        results[dtype] = outputs_and_grads(gradient, inputs)
    for name, exact in results[torch.float64].items():
        # Much cancels in second derivatives: no row-wise judgement here.
        found = results[torch.float32][name]
        torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("op", ["u_dot_v", "gatv2"])
def test_one_tensor_on_both_sides(op, chunking):
    """Shared weights pass the same tensor twice: its gradient is the sum of both."""
    struct = structure(multi_edges())
    function, names = OPS[op]
    rest = tuple(leaves(struct)[name] for name in names[2:])

    def both(feat, *rest):
        return function(struct, feat, feat, *rest)

    feat = leaves(struct)["feat_src"]
    assert gradcheck(both, (feat, *rest))
    assert gradgradcheck(both, (feat, *rest))
    first, again = (
        torch.autograd.grad(both(feat, *rest).square().sum(), feat, create_graph=create_graph)
        for create_graph in (False, True)
    )
    torch.testing.assert_close(again, first)


def test_only_the_wanted_gradients_are_made(chunking):
    struct = bipartite()
    values = leaves(struct, torch.float32)
    feat_src, feat_dst = values["feat_src"].detach(), values["feat_dst"]
    reference.u_dot_v(struct, feat_src, feat_dst).sum().backward()
    assert feat_dst.grad is not None
    assert feat_src.grad is None


@every_op
def test_expanded_and_strided_gradients(op, chunking):
    struct = bipartite()
    function, names = OPS[op]
    for make in (torch.Tensor.sum, lambda out: out.transpose(0, 1).square().sum()):
        grads = []
        for dtype in (torch.float32, torch.float64):
            values = [leaves(struct, dtype)[name] for name in names]
            make(function(struct, *values)).backward()
            grads.append([value.grad for value in values])
        for found, exact in zip(*grads, strict=True):
            torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-5)
