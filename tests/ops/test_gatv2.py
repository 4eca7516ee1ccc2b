"""GATv2: the kernel (on CUDA) and the dispatch (everywhere) against the float64 reference."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.ops.dispatch import record
from tests.graphs import zoo
from tests.ops.common import (
    EDGE_ULPS,
    LAYOUT_GRAPHS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_half,
    every_idtype,
    every_kind_of_row,
    every_layout,
    every_shape,
    every_tail,
    on,
    skewed_graph,
    small_graph_of,
)


def inputs(graph, num_heads, head_dim, dtype, device):
    struct = on(device, graph)
    kind = {"dtype": dtype, "device": device}
    return {
        "feat_src": draw(struct.num_src, num_heads, head_dim, seed=1, **kind),
        "feat_dst": draw(struct.num_dst, num_heads, head_dim, seed=2, **kind),
        # As a trained layer has it: scores of about one, a softmax that is not saturated.
        "attn": draw(num_heads, head_dim, seed=3, **kind) / head_dim**0.5,
    }


@every_idtype
@every_graph
def test_every_graph(name, idtype, device):
    graph = zoo()[name](idtype)
    given = inputs(graph, 2, 16, torch.float32, device)
    check_twins(ops.gatv2, reference.gatv2, graph, device, **given)


@every_half
@every_kind_of_row
@pytest.mark.parametrize("head_dim", [7, 64])
def test_every_kind_of_row_in_16_bits(name, dtype, head_dim, device):
    graph = zoo()[name](torch.int64)
    given = inputs(graph, 2, head_dim, dtype, device)
    check_twins(ops.gatv2, reference.gatv2, graph, device, **given)


@every_shape
def test_every_shape(num_heads, head_dim, dtype, device):
    graph = skewed_graph()
    given = inputs(graph, num_heads, head_dim, dtype, device)
    check_twins(ops.gatv2, reference.gatv2, graph, device, **given)


@every_layout
@every_dtype
@every_tail
def test_every_layout(rows, dtype, num_heads, head_dim, device):
    graph = LAYOUT_GRAPHS[rows]()
    given = inputs(graph, num_heads, head_dim, dtype, device)
    check_twins(ops.gatv2, reference.gatv2, graph, device, **given)


def with_attention(op):
    def run(graph, **given):
        out, attention = op(graph, **given, return_attention=True)
        return out, attention

    return run


@every_dtype
@every_kind_of_row
def test_the_attention_of_every_kind_of_row(name, dtype, device, recwarn):
    graph = zoo()[name](torch.int64)
    given = inputs(graph, 3, 7, dtype, device)
    check_twins(
        with_attention(ops.gatv2),
        with_attention(reference.gatv2),
        graph,
        device,
        ulps={"out1": EDGE_ULPS[dtype]},
        **given,
    )
    recwarn.clear()  # on CUDA: that it falls back


@pytest.mark.parametrize("slope", [0.0, 1.0, -0.5, 2.0])
def test_every_slope(slope, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 32, torch.float32, device)

    def op(g, **kw):
        return ops.gatv2(g, negative_slope=slope, **kw)

    def twin(s, **kw):
        return reference.gatv2(s, negative_slope=slope, **kw)

    check_twins(op, twin, graph, device, **given)


def test_a_zero_sum_takes_the_slope_as_torch_does(device):
    graph = skewed_graph()
    given = inputs(graph, 1, 8, torch.float32, device)
    given["feat_src"][::2] = 0
    given["feat_dst"][:] = -0.0
    # The gradient of the attention vector is one row, a sum over all edges that nearly cancels.
    check_twins(ops.gatv2, reference.gatv2, graph, device, ulps={"grad_attn": 8}, **given)


@every_dtype
def test_one_tensor_on_both_sides_gets_both_gradients(dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 8, dtype, device)
    shared = {"feat": given["feat_src"], "attn": given["attn"]}
    check_twins(
        lambda g, feat, attn: ops.gatv2(g, feat, feat, attn),
        lambda s, feat, attn: reference.gatv2(s, feat, feat, attn),
        graph,
        device,
        **shared,
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_large_scores_stay_finite(dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 16, dtype, device)
    given["feat_src"] *= 1e4 if dtype == torch.float16 else 1e3
    struct = on(device, graph)
    out = ops.gatv2(graph, **given)
    exact = reference.gatv2(struct, **{k: v.double() for k, v in given.items()})
    assert out.isfinite().all()
    scale = exact.abs().max()
    assert ((out.double() - exact).abs().max() / scale) < 2e-3


def test_expanded_gradient_and_awkward_memory(device):
    graph = skewed_graph()
    given = inputs(graph, 2, 32, torch.float32, device)
    storage = torch.zeros(300 * 64 + 1, device=device)
    odd = storage[1:].view(300, 2, 32)
    odd.copy_(given["feat_src"])
    transposed = given["feat_dst"].transpose(1, 2).contiguous().transpose(1, 2)
    plain = [t.clone().requires_grad_() for t in given.values()]
    awkward = [t.detach().requires_grad_() for t in (odd, transposed, given["attn"])]
    ops.gatv2(graph, *plain).sum().backward()
    ops.gatv2(graph, *awkward).sum().backward()
    for a, b in zip(plain, awkward, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)


def test_two_runs_agree_bitwise(device):
    graph = skewed_graph()
    given = inputs(graph, 3, 40, torch.float32, device)
    runs = []
    for _ in range(2):
        leaves = [t.clone().requires_grad_() for t in given.values()]
        out = ops.gatv2(graph, *leaves)
        out.square().sum().backward()
        runs.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for a, b in zip(*runs, strict=True):
        assert torch.equal(a, b)


def test_gradcheck_to_second_order(device):
    graph = small_graph_of()
    given = inputs(graph, 2, 3, torch.float64, device)
    leaves = [t.requires_grad_() for t in given.values()]

    def run(*args):
        return ops.gatv2(graph, *args)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@pytest.mark.parametrize("wanted", ["feat_src", "feat_dst", "attn"])
def test_one_gradient_alone(wanted, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 16, torch.float64, device)
    given[wanted].requires_grad_()
    ops.gatv2(graph, **given).square().sum().backward()
    twin = {k: v.detach().clone().requires_grad_(k == wanted) for k, v in given.items()}
    reference.gatv2(on(device, graph), **twin).square().sum().backward()
    torch.testing.assert_close(given[wanted].grad, twin[wanted].grad)


def test_dropout_and_attention_take_the_reference_path(device, recwarn):
    graph = skewed_graph()
    given = inputs(graph, 2, 16, torch.float32, device)
    with record() as choices:
        _, attention = ops.gatv2(graph, **given, attn_drop=0.5, return_attention=True)
    assert attention.shape == (graph.num_edges(), 2, 1)
    assert choices[0].path == "reference"
    assert any("dropout" in reason for reason in choices[0].reasons)
    recwarn.clear()


SPOILED = {
    "feat_src has too few rows": ("feat_src", lambda t: t[:-1], ValueError),
    "feat_dst has too many rows": ("feat_dst", lambda t: torch.cat([t, t[:1]]), ValueError),
    "attn with DGL's leading axis": ("attn", lambda t: t[None], ValueError),
    "attn of other heads": ("attn", lambda t: t[:1], ValueError),
    "feat_src flat": ("feat_src", lambda t: t.flatten(1), ValueError),
    "feat_dst of other width": ("feat_dst", lambda t: t[..., :-1], ValueError),
    "feat_dst of other dtype": ("feat_dst", lambda t: t.double(), TypeError),
    "attn of other dtype": ("attn", lambda t: t.half(), TypeError),
    "feat_src of integers": ("feat_src", lambda t: t.long(), TypeError),
    "feat_src no tensor": ("feat_src", lambda t: t.tolist(), TypeError),
    "attn sparse": ("attn", lambda t: t.to_sparse(), ValueError),
    "feat_dst elsewhere": ("feat_dst", lambda t: t.to("meta"), ValueError),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_spoiled_arguments(case, device):
    name, spoil, error = SPOILED[case]
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    expected = ops.gatv2(graph, **given)
    with pytest.raises(error, match=rf"gatv2: expected `{name}`"):
        ops.gatv2(graph, **{**given, name: spoil(given[name])})
    assert torch.equal(ops.gatv2(graph, **given), expected)


def test_swapped_graph_and_features(device):
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    with pytest.raises(TypeError, match="gatv2: expected a graph"):
        ops.gatv2(given["feat_src"], graph, given["feat_dst"], given["attn"])
