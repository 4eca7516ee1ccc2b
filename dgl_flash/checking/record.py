"""Run one side of a check and keep what it gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .arguments import place, place_model, switch_dropout_off, tensors_in
from .convert import is_layer

# Layers that call other layers whole, so that a look between those makes sense.
_CONTAINERS = {"HeteroGraphConv", "Sequential"}


@dataclass(frozen=True)
class Setting:
    """How one side runs.

    Attributes
    ----------
    model : nn.Module
        Never run itself, its copies are.
    inputs : tuple
        Arguments of the model, the graph first.
    keywords : dict
        Its keyword arguments.
    device : torch.device
        Where it runs.
    dtype : torch.dtype or None
        Into which floating-point numbers are converted, if into one.
    train : bool
        Whether in training mode.
    dropout : bool
        Whether dropout drops, in training mode.
    seed : int
        Set before each run.
    """

    model: nn.Module
    inputs: tuple[Any, ...]
    keywords: dict[str, Any]
    device: torch.device
    dtype: torch.dtype | None
    train: bool
    dropout: bool
    seed: int

    def prepared(self, grad: bool) -> tuple[nn.Module, tuple[Any, ...], dict[str, Any]]:
        """Copy the model and its arguments to where they run, and set the seed."""
        model = place_model(self.model, self.device, self.dtype).train(self.train)
        if not self.dropout:
            switch_dropout_off(model)
        inputs, keywords = (
            place(value, self.device, self.dtype, grad) for value in (self.inputs, self.keywords)
        )
        torch.manual_seed(self.seed)
        return model, inputs, keywords


@dataclass(frozen=True)
class Record:
    """What one run gave.

    Attributes
    ----------
    outputs, gradients : dict of Tensor
        Outputs by their place, gradients by the name of the parameter or input.
    """

    outputs: dict[str, Tensor]
    gradients: dict[str, Tensor]


@dataclass(frozen=True)
class ModuleCall:
    """One call of one module.

    Attributes
    ----------
    name : str
        Of the module, empty for the model itself.
    kind : str
        Name of its class.
    number : int
        Which call of this module it is, from 0.
    outputs : dict of Tensor
        By their place.
    """

    name: str
    kind: str
    number: int
    outputs: dict[str, Tensor]


def run_once(setting: Setting) -> Record:
    """Forward, and backward from gradients that are the same for every side."""
    model, inputs, keywords = setting.prepared(grad=True)
    outputs = dict(tensors_in(model(*inputs, **keywords)))
    kept = {name: out.detach().clone() for name, out in outputs.items()}
    backward(outputs, draw_gradients(outputs, setting.seed))
    gradients = {}
    leaves = [*tensors_in(inputs, "input"), *tensors_in(keywords, "input")]
    for name, leaf in (*model.named_parameters(), *leaves):
        if leaf.requires_grad:
            # No gradient and one of zeros say the same.
            grad = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            gradients[name] = grad.to_dense() if grad.is_sparse else grad
    return Record(kept, gradients)


def draw_gradients(outputs: dict[str, Tensor], seed: int) -> dict[str, Tensor]:
    """Normal random numbers for each output, on the CPU in float64, so that all sides agree."""
    generator = torch.Generator().manual_seed(seed)
    drawn = {}
    for name, out in outputs.items():
        grad = torch.randn(out.shape, generator=generator, dtype=torch.float64)
        if out.requires_grad:
            drawn[name] = grad.to(out.device, out.dtype)
    return drawn


def backward(outputs: dict[str, Tensor], gradients: dict[str, Tensor]) -> None:
    """Backward from the outputs that have a gradient, if there are any."""
    if gradients:
        roots = [outputs[name] for name in gradients]
        torch.autograd.backward(roots, list(gradients.values()))


def run_modules(setting: Setting) -> list[ModuleCall]:
    """Forward with hooks: outputs of the model's modules in the order in which they finish.

    A run of its own, as a hook changes what may be computed together. Modules inside a layer are
    left alone: what a layer does with them is its own affair.
    """
    model, inputs, keywords = setting.prepared(grad=True)
    calls: list[ModuleCall] = []

    def hook(name: str) -> Any:
        def keep(module: nn.Module, inputs: Any, output: Any) -> None:
            number = sum(call.name == name for call in calls)
            kept = {place: out.detach().clone() for place, out in tensors_in(output)}
            calls.append(ModuleCall(name, type(module).__name__, number, kept))

        return keep

    for name, module in _visible(model, ""):
        module.register_forward_hook(hook(name))
    model(*inputs, **keywords)
    return calls


def _visible(module: nn.Module, name: str) -> list[tuple[str, nn.Module]]:
    found = [(name, module)]
    if not is_layer(module) or type(module).__name__ in _CONTAINERS:
        for key, child in module.named_children():
            found += _visible(child, f"{name}.{key}" if name else key)
    return found
