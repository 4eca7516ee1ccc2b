"""A second of real work: one small GATv2Conv on each device, against the formula in dense torch."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from .doctor_caches import kernel_cache
from .doctor_findings import Findings

NODES, WIDTH, HEADS, HEAD_WIDTH = 7, 5, 2, 8


def look(findings: Findings) -> None:
    """Run the layer on every GPU, or on the CPU if there is none.

    Parameters
    ----------
    findings : Findings
        Gains facts and problems.
    """
    count = torch.cuda.device_count()
    devices = [torch.device("cuda", index) for index in range(count)] or [torch.device("cpu")]
    for device in devices:
        start = time.perf_counter()
        wrong = try_layer(device)
        seconds = time.perf_counter() - start
        verdict = f"agrees with the formula ({seconds:.1f} s)" if wrong is None else "FAILS"
        findings.fact(f"GATv2Conv on {device}", verdict)
        if wrong is not None:
            known = bool(findings.problems)
            findings.problem(f"a small GATv2Conv on {device} {wrong}", _remedy(device, known))


def _remedy(device: torch.device, known: bool) -> str:
    if device.type == "cpu":
        return "pip install --force-reinstall torch dgl_flash"
    if known:
        return "mend what stands above first"
    return f'rm -r "{kernel_cache()}"   # compiled kernels; if that does not help, report it'


def try_layer(device: torch.device) -> str | None:
    """Run forward and backward; tell what is wrong, or None.

    Parameters
    ----------
    device : torch.device
        Where to run.

    Returns
    -------
    str or None
        Continues "a small GATv2Conv on this device ...".
    """
    try:
        return _compared(device)
    except Exception as error:  # whatever a broken installation raises
        return f"fails with {type(error).__name__}: {error}"


def _compared(device: torch.device) -> str | None:
    from dgl_flash import graph as make_graph
    from dgl_flash.checking.compare import compare
    from dgl_flash.nn import GATv2Conv

    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(NODES, (2, 3 * NODES), generator=generator).unique(dim=1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer = GATv2Conv(WIDTH, HEAD_WIDTH, HEADS, allow_zero_in_degree=True)
    feat = torch.randn(NODES, WIDTH, generator=generator)
    adjacency = torch.zeros(NODES, NODES, dtype=torch.bool)
    adjacency[dst, src] = True

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fall-back is told as a problem of its own
        graph = make_graph((src, dst), num_nodes=NODES)
        layer.to(device)
        found = _gradients(layer, feat.to(device), layer(graph, feat.to(device)))
    layer.cpu()
    usual = _gradients(layer, feat, _dense(layer, adjacency, feat))
    layer.double()
    exact = _gradients(layer, feat, _dense(layer, adjacency, feat.double()))
    for name, value in found.items():
        verdict = compare("result", name, usual[name], value, exact[name])
        if not verdict.ok:
            return f"is wrong: {verdict}"
    return None


def _dense(layer: Any, adjacency: Tensor, feat: Tensor) -> Tensor:
    """The formula of GATv2 over all pairs of nodes, in plain torch."""
    sources = layer.fc_src(feat).unflatten(1, (HEADS, HEAD_WIDTH))  # (N, H, D)
    targets = layer.fc_dst(feat).unflatten(1, (HEADS, HEAD_WIDTH))
    scores = layer.leaky_relu(targets[:, None] + sources[None]) * layer.attn  # (N, N, H, D)
    scores = scores.sum(-1).masked_fill(~adjacency[..., None], -torch.inf)
    weights = scores.softmax(1).nan_to_num(0.0)  # a row without edges is zero
    out: Tensor = torch.einsum("vuh,uhd->vhd", weights, sources)
    return out


def _gradients(layer: nn.Module, feat: Tensor, out: Tensor) -> dict[str, Tensor]:
    """The output, and gradients of the weights by the square of the output."""
    layer.zero_grad()
    out.square().sum().backward()
    results = {"output": out.detach().clone()}
    for name, parameter in layer.named_parameters():
        if parameter.grad is not None:
            results[name] = parameter.grad.clone()
    return results
