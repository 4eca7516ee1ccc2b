"""Results of the demo and their presentation as rows and JSON."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .memory import HOW
from .train import TrainedModel

QUANTITIES = (
    "test accuracy",
    "largest loss difference",
    "seconds an epoch",
    "peak memory",
    "device",
    "kernels",
)


@dataclass(frozen=True)
class Run:
    """One model trained with the layers of one library.

    Attributes
    ----------
    model : str
        ``"GATv2"`` or ``"GCN"``.
    library : str
        ``"dgl.nn"`` or ``"dgl_flash.nn"``.
    device : str
        ``"cpu"``, or the name of the GPU.
    trained : TrainedModel
        Losses, times, accuracy, memory.
    kernels : tuple of str
        What ran: the choices that ``dgl_flash`` made, or DGL's own kernels.
    """

    model: str
    library: str
    device: str
    trained: TrainedModel
    kernels: tuple[str, ...]

    @property
    def seconds_per_epoch(self) -> float:
        """Median wall time of an epoch."""
        return statistics.median(self.trained.epoch_seconds)


@dataclass(frozen=True)
class DemoResult:
    """Everything the demo found out.

    Attributes
    ----------
    data : dict
        Name and sizes of the data set.
    settings : dict
        Hyper-parameters.
    runs : tuple of Run
        DGL's run, where there is one, before the ``dgl_flash`` run of each model.
    notes : tuple of str
        What a reader of the table must know.
    """

    data: dict[str, Any]
    settings: dict[str, Any]
    runs: tuple[Run, ...]
    notes: tuple[str, ...]

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models trained, in order."""
        return tuple(dict.fromkeys(run.model for run in self.runs))

    def run(self, model: str, library: str) -> Run | None:
        """Look up one run; None when that library was not there."""
        found = (run for run in self.runs if (run.model, run.library) == (model, library))
        return next(found, None)

    def loss_difference(self, model: str) -> float | None:
        """Largest absolute difference of the two loss curves of a model, or None without DGL."""
        theirs, ours = self.run(model, "dgl.nn"), self.run(model, "dgl_flash.nn")
        if theirs is None or ours is None:
            return None
        pairs = zip(theirs.trained.losses, ours.trained.losses, strict=True)
        return max(abs(a - b) for a, b in pairs)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Namespaces that the layers came from, DGL's first."""
        return tuple(dict.fromkeys(run.library for run in self.runs))

    def rows(self) -> list[tuple[str, ...]]:
        """Table rows ``(model, quantity, value of each library)``, as text."""
        rows: list[tuple[str, ...]] = []
        for model in self.models:
            cells = [self._cells(run) for run in self.runs if run.model == model]
            values = zip(*cells, strict=True)
            rows += [(model, name, *of) for name, of in zip(QUANTITIES, values, strict=True)]
        return rows

    def _cells(self, run: Run) -> tuple[str, ...]:
        difference = None if run.library == "dgl.nn" else self.loss_difference(run.model)
        return (
            f"{100 * run.trained.accuracy:.2f} %",
            "–" if difference is None else f"{difference:.1e}",
            f"{run.seconds_per_epoch:.3g}",
            f"{run.trained.peak_memory / 2**20:.2f} MiB",
            run.device,
            "\n".join(run.kernels),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data of everything, for JSON."""
        return {
            "data": self.data,
            "settings": self.settings,
            "notes": list(self.notes),
            "memory_measured_by": HOW,
            "loss_difference": {model: self.loss_difference(model) for model in self.models},
            "runs": [
                {**asdict(run), "seconds_per_epoch": run.seconds_per_epoch} for run in self.runs
            ],
        }

    def write_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` to a file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n")
