"""Time and memory of one side of a check."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dgl_flash.demo.memory import peak_memory

from .arguments import tensors_in
from .record import Setting, backward, draw_gradients

WARM_UP = 2


@dataclass(frozen=True)
class Cost:
    """What a call of the model costs.

    Attributes
    ----------
    forward : float
        Seconds of a forward without gradients, median of the repeats.
    training : float
        Seconds of a forward and backward.
    memory : int
        Bytes that a forward and backward hold beside weights and inputs, at their peak.
    """

    forward: float
    training: float
    memory: int


def measure(setting: Setting, repeats: int) -> Cost:
    """Measure one side, after calls that warm up.

    Gradients are those of the parameters, as in training; of the inputs if there are no parameters.
    """
    has_parameters = any(parameter.requires_grad for parameter in setting.model.parameters())
    model, inputs, keywords = setting.prepared(grad=not has_parameters)

    gradients = draw_gradients(dict(tensors_in(model(*inputs, **keywords))), setting.seed)

    def forward() -> None:
        with torch.no_grad():
            model(*inputs, **keywords)

    def training() -> None:
        model.zero_grad(set_to_none=True)
        backward(dict(tensors_in(model(*inputs, **keywords))), gradients)

    return Cost(
        forward=_median(forward, setting.device, repeats),
        training=_median(training, setting.device, repeats),
        memory=peak_memory(training, setting.device),
    )


def _median(call: Callable[[], None], device: torch.device, repeats: int) -> float:
    for _ in range(WARM_UP):
        call()
    seconds = []
    for _ in range(repeats):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
