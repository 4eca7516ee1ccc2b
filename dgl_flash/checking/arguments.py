"""Put models, graphs and inputs on a device and into a dtype, whatever they are nested in."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from dgl_flash.demo.optional import import_dgl
from dgl_flash.device_graphs.switch import has_cuda


def tensors_in(value: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Tensors of a tensor, dict, list or tuple, with names like ``"user"`` and ``"0.1"``."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in items:
            yield from tensors_in(part, f"{name}.{key}" if name else str(key))


def place(value: Any, device: torch.device, dtype: torch.dtype | None, grad: bool) -> Any:
    """Copy inputs; those of floating point become leaves that collect gradients, or do not.

    Parameters
    ----------
    value : object
        Tensors, graphs and other things in dicts, lists and tuples. What is neither stays.
    device : torch.device
        For tensors, and for the graphs of a DGL that can go there.
    dtype : torch.dtype, optional
        For tensors of floating point.
    grad : bool
        Whether these require gradients.

    Returns
    -------
    object
        Nested alike.
    """

    def move(part: Any) -> Any:
        if is_graph(part):
            return _place_graph(part, device, dtype)
        if not isinstance(part, Tensor):
            return part
        floating = part.is_floating_point()
        copied = part.detach().to(device, dtype if floating else None, copy=True)
        return copied.requires_grad_(grad and floating)

    return _mapped(value, move)


def place_model(model: nn.Module, device: torch.device, dtype: torch.dtype | None) -> nn.Module:
    """Copy a model, so that what a run leaves in buffers and caches does not reach the next."""
    model = copied(model).to(device=device)
    return model if dtype is None else model.to(dtype=dtype)


def copied(model: nn.Module) -> nn.Module:
    """Copy a model deeply, except for namespaces of layers that it keeps, which are shared."""
    kept = [value for module in model.modules() for value in vars(module).values()]
    return copy.deepcopy(model, {id(v): v for v in kept if isinstance(v, ModuleType)})


def switch_dropout_off(model: nn.Module) -> bool:
    """Set the probabilities of torch's modules to 0; tell whether one was not."""
    found = False
    for module in model.modules():
        # Recurrent layers and torch's attention have a number instead of a module.
        name = "p" if isinstance(module, _DropoutNd) else "dropout"
        probability = getattr(module, name, None)
        if isinstance(probability, float | int) and probability > 0:
            setattr(module, name, 0.0)
            found = True
    return found


def is_graph(value: Any) -> bool:
    """Whether this is a graph of DGL, a block included."""
    dgl, _ = import_dgl()
    return dgl is not None and isinstance(value, dgl.DGLGraph)


def dgl_runs_on(device: torch.device) -> bool:
    """Whether this DGL is built for a device; the wheel of PyPI is built for the CPU alone.

    What it is built for, and not whether a graph can be put there: with
    ``dgl_flash.enable_cuda`` it can, and then runs the kernels that are to be checked.
    """
    return device.type == "cpu" or dgl_has_cuda()


def dgl_has_cuda() -> bool:
    """Whether DGL is there and has been built with CUDA."""
    dgl, _ = import_dgl()
    return dgl is not None and has_cuda()


def _mapped(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {key: _mapped(part, change) for key, part in value.items()}
    if isinstance(value, list | tuple):
        parts = [_mapped(part, change) for part in value]
        if hasattr(value, "_fields"):  # a named tuple takes its parts one by one
            return type(value)(*parts)
        return type(value)(parts)
    return change(value)


def _place_graph(graph: Any, device: torch.device, dtype: torch.dtype | None) -> Any:
    if graph.device != device and dgl_runs_on(device):
        graph = graph.to(device)
    if dtype is None or not any(_is_other(feat, dtype) for feat in _features(graph)):
        return graph
    graph = graph.local_var()
    for frame in (*graph._node_frames, *graph._edge_frames):
        for key in list(frame):
            if _is_other(frame[key], dtype):
                frame[key] = frame[key].to(dtype)
    return graph


def _features(graph: Any) -> Iterator[Tensor]:
    for frame in (*graph._node_frames, *graph._edge_frames):
        yield from (frame[key] for key in frame)


def _is_other(feat: Tensor, dtype: torch.dtype) -> bool:
    return feat.is_floating_point() and feat.dtype != dtype
