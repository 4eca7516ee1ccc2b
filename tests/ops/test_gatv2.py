"""GATv2 beyond what ``test_attention`` tests of all kinds of attention."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops, reference
from tests.ops.attention import KINDS
from tests.ops.common import check_twins, every_dtype, on, skewed_graph

inputs = KINDS["gatv2"].inputs


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
