"""What is recorded, explained and warned about."""

from __future__ import annotations

import warnings

import pytest
import torch

import dgl_flash
from dgl_flash import ops
from dgl_flash.errors import FallbackWarning
from dgl_flash.ops import dispatch
from tests.ops.common import draw, skewed_graph


def given(device, head_dim=16):
    kind = {"dtype": torch.float32, "device": device}
    src, dst = (draw(300, 2, head_dim, seed=s, **kind) for s in (1, 2))
    return src, dst, draw(2, head_dim, seed=3, **kind)


def test_record_lists_calls_in_order(device):
    graph = skewed_graph()
    src, dst, attn = given(device)
    with dispatch.record() as choices:
        ops.gatv2(graph, src, dst, attn)
        ops.spmm(graph, src)
    ops.spmm(graph, src)
    fused = device.type == "cuda"
    attention = ["gatv2"] if fused else ["gatv2", "edge_softmax", "spmm"]
    assert [choice.op for choice in choices] == [*attention, "spmm"]
    assert {choice.path for choice in choices} == {"fused" if fused else "reference"}


def test_explain_an_op(device):
    graph = skewed_graph()
    found = dgl_flash.explain(ops.gatv2, graph, *given(device))
    assert found.fused == (device.type == "cuda")
    why = "gatv2_forward" if device.type == "cuda" else "the features are on cpu"
    assert why in str(found)
    assert why in found._repr_html_()


def test_explain_leaves_module_and_generator_alone(device):
    graph = skewed_graph()
    src, dst, attn = given(device)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = torch.nn.BatchNorm1d(2)
            self.drop = torch.nn.Dropout(0.5)

        def forward(self, graph, feat):
            return ops.gatv2(graph, self.drop(self.norm(feat)), dst, attn)

    model = Model().to(device)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    dgl_flash.explain(model, graph, src)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])


def test_explain_without_ops():
    found = dgl_flash.explain(lambda graph: graph, skewed_graph())
    assert "no dgl_flash op" in str(found)


@pytest.mark.gpu
def test_a_fallback_on_the_gpu_warns_once_and_is_explained():
    graph = skewed_graph()
    wide = given(torch.device("cuda"), 513)
    dispatch._warned.clear()
    with pytest.warns(FallbackWarning, match="got H=2, D=513"):
        ops.gatv2(graph, *wide)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = dgl_flash.explain(ops.gatv2, graph, *wide)
    rows = [row[:2] for row in found.rows()]
    assert rows == [("gatv2", "reference"), ("edge_softmax", "fused"), ("spmm", "fused")]
    assert not found.fused


@pytest.mark.gpu
def test_missing_cupy_is_told_with_its_remedy(monkeypatch):
    from dgl_flash.kernels import availability

    availability.why_unavailable.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    try:
        reason = availability.why_unavailable(torch.device("cuda", 0))
    finally:
        monkeypatch.undo()
        availability.why_unavailable.cache_clear()
    assert "pip install 'dgl_flash[cuda" in reason
