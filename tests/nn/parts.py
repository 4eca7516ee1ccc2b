"""What some layers of the table in ``layers.py`` are made of, or how they are changed."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.nn.feeds import WIDTH


def without_shift(layer: nn.Module) -> nn.Module:
    """A bias that moves all scores of a node alike: its gradient is what rounding leaves of 0."""
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(not name.endswith(("k_proj.bias", "att.bias")))
    return layer


def narrowed(layer: nn.Module) -> nn.Module:
    """A transformer that is 7 wide inside and not 2048, so that derivatives can be checked."""
    for part in layer.pe_encoder.layers:
        part.linear1, part.linear2 = nn.Linear(6, 7), nn.Linear(7, 6)
    return layer


def mlp(inputs: int = WIDTH, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh())


def cutoffs() -> list[Tensor]:
    return [torch.tensor([2.0, 3.0, 4.0]), torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)]
