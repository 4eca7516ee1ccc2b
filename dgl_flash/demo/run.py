"""The demo: two models, each with ``dgl.nn`` and with ``dgl_flash.nn``, and the comparison."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import dgl_flash
from dgl_flash.ops import dispatch

from .data import NodeData, load_data
from .memory import HOW
from .models import build
from .optional import DemoError, import_dgl
from .result import DemoResult, Run
from .train import train

MODELS = ("GATv2", "GCN")
WEIGHT_DECAY = 5e-4

Progress = Callable[[str, str, int, float], None]


@dataclass(frozen=True)
class Side:
    """One side of the comparison: where the layers come from, and what they train on."""

    library: str
    graph: Any
    device: torch.device


def run_demo(
    dataset: str = "digits",
    *,
    npz: str | Path | None = None,
    epochs: int = 100,
    hidden: int = 8,
    heads: int = 8,
    lr: float = 0.005,
    seed: int = 0,
    k: int = 8,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> DemoResult:
    """Train two-layer GATv2 and GCN with ``dgl.nn`` and with ``dgl_flash.nn``, and compare.

    Both libraries get the same ``DGLGraph``, the same initial ``state_dict`` and the same code;
    only the namespace of the layers differs. There is no dropout, so the two loss curves may
    differ by rounding alone.

    Parameters
    ----------
    dataset : {"digits", "cora", "citeseer", "pubmed"}
        Data; see :func:`dgl_flash.demo.load_data`.
    npz : str or Path, optional
        A stored graph to use in place of ``dataset``.
    epochs : int
        Full-batch epochs.
    hidden, heads : int
        Width of a head and number of heads of GATv2; GCN gets ``hidden * heads`` channels.
    lr : float
        Learning rate of Adam.
    seed : int
        Seed of the split and of the initial weights.
    k : int
        Neighbours of each image in the graph of the digits.
    device : str or torch.device, optional
        Where to train; by default CUDA where there is a card, else the CPU. A DGL built without
        CUDA trains on the CPU whatever the device.
    progress : callable, optional
        Called with (model, library, epoch, loss) after each epoch.

    Returns
    -------
    DemoResult
        Accuracy, loss curves, times, memory and kernels of each run, and notes.

    Raises
    ------
    DemoError
        If the arguments or the data cannot be used; the text says why.
    """
    if min(epochs, hidden, heads) < 1:
        raise DemoError(f"epochs, hidden and heads must be positive: {epochs}, {hidden}, {heads}")
    target = _pick_device(device)
    data = load_data(dataset, npz=npz, k=k, seed=seed)
    sides, notes = _sides(data, target)
    measured = " and ".join(HOW[kind] for kind in dict.fromkeys(s.device.type for s in sides))
    notes.append(f"peak memory: one forward and backward, beside data and weights, by {measured}")

    runs = []
    for name in MODELS:
        state = None
        for side in sides:
            dglnn = importlib.import_module(side.library)
            torch.manual_seed(seed)
            model = build(name, dglnn, data.feat.shape[1], data.num_classes, hidden, heads)
            if state is None:
                state = copy.deepcopy(model.state_dict())
            model.load_state_dict(state)
            with dispatch.record() as choices:
                trained = train(
                    model,
                    side.graph,
                    data,
                    side.device,
                    epochs=epochs,
                    lr=lr,
                    weight_decay=WEIGHT_DECAY,
                    progress=_bind(progress, name, side.library),
                )
            kernels = ("DGL's own",) if side.library == "dgl.nn" else summarize(choices)
            runs.append(Run(name, side.library, _describe(side.device), trained, kernels))

    return DemoResult(
        data={
            "name": data.name,
            "nodes": data.num_nodes,
            "edges": data.num_edges,
            "features": data.feat.shape[1],
            "classes": data.num_classes,
            "train/val/test": [data.train.numel(), data.val.numel(), data.test.numel()],
        },
        settings={
            "epochs": epochs,
            "hidden": hidden,
            "heads": heads,
            "lr": lr,
            "weight_decay": WEIGHT_DECAY,
            "seed": seed,
        },
        runs=tuple(runs),
        notes=(*data.notes, *notes),
    )


def _sides(data: NodeData, target: torch.device) -> tuple[list[Side], list[str]]:
    """Decide which libraries train on which graph and device, and what to say about it."""
    notes = [
        "no dropout, so the two loss curves may differ by rounding alone",
        "test accuracy: at the epoch that does best on the validation nodes",
    ]
    dgl, why_no_dgl = import_dgl()
    if dgl is None:
        notes.append(f"{why_no_dgl}: dgl_flash.nn trained alone, on a dgl_flash.graph")
        return [Side("dgl_flash.nn", data.graph(dgl_flash), target)], notes
    graph = data.graph(dgl)
    theirs = Side("dgl.nn", graph, target)
    if target.type == "cuda":
        try:
            theirs = Side("dgl.nn", graph.to(target), target)
        except dgl.DGLError:  # the wheel of PyPI is built for the CPU alone
            theirs = Side("dgl.nn", graph, torch.device("cpu"))
            notes.append(
                f"DGL {dgl.__version__} is built without CUDA: dgl.nn trained on the CPU, "
                f"dgl_flash.nn on the GPU with the same CPU graph"
            )
    return [theirs, Side("dgl_flash.nn", graph, target)], notes


def summarize(choices: Iterable[dispatch.Choice]) -> tuple[str, ...]:
    """Condense recorded choices: a line for each path and reason, with the ops that took it."""
    ops: dict[tuple[str, str], dict[str, None]] = {}
    for choice in choices:
        what = ", ".join(choice.kernels) if choice.path == "fused" else "; ".join(choice.reasons)
        ops.setdefault((choice.path, what), {})[choice.op] = None
    return tuple(
        f"{', '.join(names)}: {path} ({what})" if what else f"{', '.join(names)}: {path}"
        for (path, what), names in ops.items()
    )


def _pick_device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise DemoError(f"unknown device {str(device)!r}; use cpu, cuda or cuda:N") from error
    if chosen.type not in ("cpu", "cuda"):
        raise DemoError(f"device {chosen} is not supported; use cpu, cuda or cuda:N")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise DemoError(f"there is no device {chosen}: torch sees {torch.cuda.device_count()} GPUs")
    return chosen


def _describe(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)


def _bind(progress: Progress | None, model: str, library: str) -> Callable[[int, float], None]:
    if progress is None:
        return lambda epoch, loss: None
    return lambda epoch, loss: progress(model, library, epoch, loss)
