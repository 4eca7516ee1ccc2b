"""Whether a layer of the table gives what DGL's gives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.nn.common import for_dgl
from tests.nn.layers import LAYERS, Inputs
from tests.numerics import assert_accurate

# DGL's make numbers of their own in float32, whatever the features are.
NO_FLOAT64 = {"APPNPConv", "LapPosEncoder", "TWIRLSConv cached", "TWIRLSUnfoldingAndAttention"}
# DGL's derivative of a distance of 0.
NAN_AT_SELF_LOOPS = {"EGNNConv"}


def assert_dgls(name: str, graph: Any, device: Any = "cpu", **options: bool) -> None:
    """Judge outputs and gradients in float32 by those of DGL's layer, in float32 and float64."""
    layer = LAYERS[name]
    mine, other = layer.twins(**options)
    inputs = layer.inputs(graph)
    if "lambda_max" in inputs and isinstance(inputs["lambda_max"], list):
        inputs["lambda_max"] = inputs["lambda_max"] * graph.batch_size
    found = layer.run(mine, graph, inputs, device, torch.float32)
    usual = layer.run(other, for_dgl(graph), inputs, "cpu", torch.float32)
    exact = oracle(name, graph, inputs, **options)
    assert found.keys() == usual.keys() == exact.keys()
    for key, value in found.items():
        judge(key, value.cpu(), usual[key], exact[key])


def oracle(name: str, graph: Any, inputs: Inputs, **options: bool) -> dict[str, Tensor]:
    """DGL's results in float64; ours, where DGL has none, once they are DGL's in float32."""
    layer = LAYERS[name]
    mine, other = layer.twins(**options)
    dtype = torch.float32 if name in NO_FLOAT64 else torch.float64
    theirs = layer.run(other, for_dgl(graph), inputs, "cpu", dtype)
    if name not in NO_FLOAT64 | NAN_AT_SELF_LOOPS:
        return theirs
    ours = layer.run(mine, graph, inputs, "cpu", torch.float64)
    for key, value in theirs.items():
        known = value.isfinite() if key.startswith("grad_") else torch.ones_like(value).bool()
        torch.testing.assert_close(ours[key].to(dtype)[known], value[known], msg=key)
    return ours


def judge(key: str, found: Tensor, usual: Tensor, exact: Tensor) -> None:
    """As a whole: the rows of a layer's results are no results of their own."""
    exact = exact.double()
    if exact.numel() > 0 and exact.abs().max() < 1e-13:
        # What float64 leaves of a zero, such as the gradient of a bias that shifts all scores.
        exact = torch.zeros_like(exact)
    usual = torch.where(usual.isfinite(), usual, exact.to(usual.dtype))
    assert_accurate(*(part.reshape(1, -1) for part in (found, usual, exact)), what=key, ulps=64)
