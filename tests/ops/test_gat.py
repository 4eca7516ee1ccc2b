"""GAT beyond what ``test_attention`` tests of all kinds of attention."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops, reference
from tests.ops.attention import KINDS
from tests.ops.common import EDGE_ULPS, check_twins, on, skewed_graph

inputs = KINDS["gat"].inputs
ULPS = dict.fromkeys(("grad_el", "grad_er"), EDGE_ULPS[torch.float32])


@pytest.mark.parametrize("slope", [0.0, 1.0, -0.5, 2.0])
def test_every_slope(slope, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 32, torch.float32, device)
    check_twins(
        lambda g, **kw: ops.gat(g, negative_slope=slope, **kw),
        lambda s, **kw: reference.gat(s, negative_slope=slope, **kw),
        graph,
        device,
        ulps=ULPS,
        **given,
    )


def test_a_zero_sum_takes_the_slope_as_torch_does(device):
    graph = skewed_graph()
    given = inputs(graph, 1, 8, torch.float32, device)
    given["el"][::2] = 0
    given["er"][:] = -0.0
    check_twins(ops.gat, reference.gat, graph, device, ulps=ULPS, **given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_large_scores_stay_finite(dtype, device):
    graph = skewed_graph()
    given = inputs(graph, 2, 16, dtype, device)
    given["el"] *= 1e4
    given["feat_src"] *= 1e3
    out = ops.gat(graph, **given)
    exact = reference.gat(on(device, graph), **{k: v.double() for k, v in given.items()})
    assert out.isfinite().all()
    assert ((out.double() - exact).abs().max() / exact.abs().max()) < 2e-3


SPOILED = {
    "feat_src has too few rows": ("feat_src", lambda t: t[:-1], ValueError),
    "feat_src flat": ("feat_src", lambda t: t.flatten(1), ValueError),
    "feat_src of integers": ("feat_src", lambda t: t.long(), TypeError),
    "feat_src no tensor": ("feat_src", lambda t: t.tolist(), TypeError),
    "el of other heads": ("el", lambda t: t[:, :1], ValueError),
    "el with DGL's last axis": ("el", lambda t: t[..., None], ValueError),
    "el of other dtype": ("el", lambda t: t.double(), TypeError),
    "er has too many rows": ("er", lambda t: torch.cat([t, t[:1]]), ValueError),
    "er elsewhere": ("er", lambda t: t.to("meta"), ValueError),
    "er sparse": ("er", lambda t: t.to_sparse(), ValueError),
}


@pytest.mark.parametrize("case", sorted(SPOILED))
def test_spoiled_arguments(case, device):
    name, spoil, error = SPOILED[case]
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    expected = ops.gat(graph, **given)
    with pytest.raises(error, match=rf"gat: expected `{name}`"):
        ops.gat(graph, **{**given, name: spoil(given[name])})
    assert torch.equal(ops.gat(graph, **given), expected)


def test_swapped_graph_and_features(device):
    graph = skewed_graph()
    given = inputs(graph, 2, 8, torch.float32, device)
    with pytest.raises(TypeError, match="gat: expected a graph"):
        ops.gat(given["feat_src"], graph, given["el"], given["er"])
