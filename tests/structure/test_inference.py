"""What a graph keeps from inference mode serves in training."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops
from dgl_flash.structure import structure
from tests.graphs import random_graph


@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
@pytest.mark.parametrize("formats", ["coo", "csr", "csc"])
def test_evaluation_before_training(formats: str, device: torch.device) -> None:
    graph = random_graph(12, 40, seed=3).formats(formats)
    feat = torch.randn(12, 2, 3, device=device, requires_grad=True)
    attn = torch.ones(2, 3, device=device, requires_grad=True)
    logits = torch.randn(40, 2, device=device, requires_grad=True)
    runs = [
        lambda: ops.gatv2(graph, feat, feat, attn),
        lambda: ops.edge_softmax(graph, logits),
        lambda: ops.u_dot_v(graph, feat, feat),
        lambda: ops.spmm(graph, feat, logits, reduce="mean"),
        lambda: ops.copy_u_max(graph, feat),
    ]
    for run in runs:
        with torch.inference_mode():
            expected = run()
        assert torch.equal(run(), expected)
        run().sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in (feat, attn, logits))


def test_nothing_kept_is_an_inference_tensor(device: torch.device) -> None:
    with torch.inference_mode():
        struct = structure(random_graph(12, 40, seed=3), device)
        kept = [
            *struct.edges(),
            *(struct.in_adj.indptr, struct.out_adj.indptr, struct.in_degrees()),
            struct.degree_scale("src", -0.5, torch.float32),
        ]
    assert not any(tensor.is_inference() for tensor in kept)
