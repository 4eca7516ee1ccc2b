"""Say which kernel runs for a call, or every reason why none does."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from dgl_flash.ops.dispatch import Choice, record
from dgl_flash.tables import as_html, as_text

_HEAD = ("op", "path", "kernel, or why not")


@dataclass(frozen=True)
class Explanation:
    """The op calls of one forward; ``print`` it, or show it in a notebook.

    Attributes
    ----------
    choices : tuple of Choice
        In call order.
    """

    choices: tuple[Choice, ...]

    @property
    def fused(self) -> bool:
        """Whether every op ran its kernel."""
        return all(choice.path == "fused" for choice in self.choices)

    def rows(self) -> list[tuple[str, str, str]]:
        """Op, path, and the kernels launched or the reasons against them."""
        return [
            (choice.op, choice.path, "; ".join(choice.kernels or choice.reasons))
            for choice in self.choices
        ]

    def __str__(self) -> str:
        if not self.choices:
            return "no dgl_flash op was called"
        return as_text([_HEAD, *self.rows()])

    def _repr_html_(self) -> str:
        return as_html([_HEAD, *self.rows()])


def explain(module: Callable[..., Any], graph: Any, *inputs: Any, **kwargs: Any) -> Explanation:
    """Run a layer, model or op once and tell how each of its ops was computed.

    Parameters
    ----------
    module : callable
        A ``torch.nn.Module`` (a deep copy of it runs, so its buffers stay as they are) or an op.
    graph : DGLGraph, DGLBlock or dgl_flash.Graph
        First argument of the call.
    *inputs, **kwargs
        Its other arguments.

    Returns
    -------
    Explanation
        One row an op call. Random state is left as it was.

    Examples
    --------
    >>> print(dgl_flash.explain(conv, graph, feat))  # doctest: +SKIP
    op     path   kernel, or why not
    gatv2  fused  gatv2_forward
    """
    if isinstance(module, torch.nn.Module):
        module = copy.deepcopy(module)
    held = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    devices = _devices([*inputs, *kwargs.values(), *held])
    with torch.random.fork_rng(devices=devices), torch.no_grad(), record() as choices:
        module(graph, *inputs, **kwargs)
    return Explanation(tuple(choices))


def _devices(inputs: Any) -> list[int]:
    """CUDA devices of all tensors in the arguments, whose generators a dropout would advance."""
    found: set[int] = set()
    for value in inputs:
        if isinstance(value, torch.Tensor):
            if value.is_cuda:
                found.add(value.device.index)
        elif isinstance(value, list | tuple | dict):
            found.update(_devices(value.values() if isinstance(value, dict) else value))
    return sorted(found)
