"""What a check found, to be read by people."""

from __future__ import annotations

import html
from collections import Counter
from dataclasses import dataclass

from .compare import Difference
from .measure import Cost

_SHOWN = 8  # of the tensors that differ; the first says most


@dataclass(frozen=True)
class Side:
    """One library in a check.

    Attributes
    ----------
    library : str
        ``"dgl.nn"`` or ``"dgl_flash.nn"``.
    device : str
        ``"cpu"``, or the name of the GPU.
    cost : Cost or None
        Time and memory, if they were measured.
    """

    library: str
    device: str
    cost: Cost | None


@dataclass(frozen=True)
class CheckResult:
    """Whether a model does with ``dgl_flash.nn`` what it does with ``dgl.nn``; ``print`` it.

    Attributes
    ----------
    differences : tuple of Difference
        One for each tensor that was compared: outputs of modules and of the model, gradients.
    state : tuple of str
        What differs between the keys, shapes and dtypes of the two ``state_dict``.
    first_difference : Difference or None
        What to look at first: the first module, in the order of calls, whose output differs; where
        all agree, the gradient that goes wrong first in the backward.
    failure : str
        The error of ``dgl_flash.nn`` where ``dgl.nn`` has none; else empty.
    sides : tuple of Side
        Devices, times and memory of ``dgl.nn`` and of ``dgl_flash.nn``.
    notes : tuple of str
        What a reader must know.
    """

    differences: tuple[Difference, ...]
    state: tuple[str, ...]
    first_difference: Difference | None
    failure: str
    sides: tuple[Side, ...]
    notes: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.failure and not self.state and all(part.ok for part in self.differences)

    def __str__(self) -> str:
        parts = [self._verdict(), *(f"state_dict: {line}" for line in self.state)]
        wrong = [str(part) for part in self.differences if not part.ok]
        parts += [f"- {line}" for line in wrong[:_SHOWN]]
        if len(wrong) > _SHOWN:
            parts.append(f"- and {len(wrong) - _SHOWN} more, see `differences`")
        table = [("", *(side.library for side in self.sides)), *self.rows()]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        parts += ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in table), ""]
        parts += [f"note: {note}" for note in self.notes]
        return "\n".join(parts).rstrip()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"

    def rows(self) -> list[tuple[str, ...]]:
        """Table rows ``(quantity, value of each library)``, as text."""
        rows = [("device", *(side.device for side in self.sides))]
        costs = [side.cost for side in self.sides if side.cost is not None]
        if costs and len(costs) == len(self.sides):
            rows += [
                ("forward", *(f"{1e3 * cost.forward:.3g} ms" for cost in costs)),
                ("forward + backward", *(f"{1e3 * cost.training:.3g} ms" for cost in costs)),
                ("peak memory", *(f"{cost.memory / 2**20:.3g} MiB" for cost in costs)),
            ]
        return rows

    def _verdict(self) -> str:
        if self.failure:
            return f"DIFFERENT: only dgl_flash.nn fails, with {self.failure}"
        if self.first_difference is not None:
            return f"DIFFERENT: look first at {self.first_difference}"
        if self.state:
            return "DIFFERENT: the checkpoints do not fit each other"
        counts = Counter(part.kind for part in self.differences)
        return "the same: " + ", ".join(
            f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in counts.items()
        )
