"""Full-batch training of one model, with its times, losses and memory."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .data import NodeData
from .memory import peak_memory

Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class TrainedModel:
    """What one training run gave.

    Attributes
    ----------
    losses : list of float
        Training loss of each epoch, before its update.
    epoch_seconds : list of float
        Wall time of each epoch, device synchronised.
    accuracy : float
        Share of the test nodes classified rightly, at the epoch that does best on the
        validation nodes.
    peak_memory : int
        Bytes that one forward and backward hold beside data, weights and optimiser state.
    """

    losses: list[float]
    epoch_seconds: list[float]
    accuracy: float
    peak_memory: int


def train(
    model: nn.Module,
    graph: Any,
    data: NodeData,
    device: torch.device,
    *,
    epochs: int,
    lr: float,
    weight_decay: float,
    progress: Progress,
) -> TrainedModel:
    """Train ``model`` with Adam on cross entropy.

    Parameters
    ----------
    model : nn.Module
        Called as ``model(graph, feat)``; moved to ``device``.
    graph : graph
        What the model's layers take.
    data : NodeData
        Features, labels and split.
    device : torch.device
        Where the features and the weights live.
    epochs, lr, weight_decay
        Length of the training and Adam's settings.
    progress : callable
        Called with (epoch, loss) after each epoch.

    Returns
    -------
    TrainedModel
        Losses, times, test accuracy and memory.
    """
    model.to(device).train()
    feat, label = data.feat.to(device), data.label.to(device)
    nodes = data.train.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=weight_decay)

    def forward_backward() -> Tensor:
        loss = functional.cross_entropy(model(graph, feat)[nodes], label[nodes])
        loss.backward()
        return loss.detach()

    losses, epoch_seconds = [], []
    best_val = accuracy = -1.0
    for epoch in range(epochs):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = float(forward_backward())
        optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        epoch_seconds.append(time.perf_counter() - start)
        losses.append(loss)
        val, test = _accuracies(model, graph, feat, label, (data.val, data.test))
        if val > best_val:
            best_val, accuracy = val, test
        progress(epoch, loss)

    optimizer.zero_grad(set_to_none=True)
    memory = peak_memory(forward_backward, device)
    return TrainedModel(losses, epoch_seconds, accuracy, memory)


@torch.no_grad()
def _accuracies(
    model: nn.Module, graph: Any, feat: Tensor, label: Tensor, parts: tuple[Tensor, ...]
) -> tuple[float, ...]:
    model.eval()
    right = (model(graph, feat).argmax(1) == label).float().cpu()
    model.train()
    return tuple(float(right[part].mean()) for part in parts)
