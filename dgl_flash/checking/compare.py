"""When two tensors count as the same, and which differ first.

The rule: with e the largest error of an element against DGL's layers in float64, ours may have

    e(ours) <= 2 e(DGL in the same dtype) + 16 ulp  (2 ulp in the half types),

an ulp being the machine epsilon of the dtype times the largest element of the float64 result (for
gradients: of all gradients of the model, because a gradient may cancel to rounding alone). Without
a float64 run, where the dtype is float64 itself or the model cannot run in it, the two are compared
with each other, and may differ by 1024 ulp (8 in the half types).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from .record import ModuleCall, Record

# What luck of rounding may cost. The half types add up in float32 and round once.
ULPS, ULPS_DIRECT = 16.0, 1024.0
ULPS_HALF, ULPS_DIRECT_HALF = 2.0, 8.0
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Difference:
    """How one tensor of ours compares with DGL's.

    Attributes
    ----------
    kind : {"module", "output", "gradient"}
        What it is.
    name : str
        The module with its class and the place of the tensor in what it returned; the place in what
        the model returned; the parameter or input.
    absolute : float
        Largest difference of an element between the two libraries.
    relative : float
        The same, divided by the largest element of DGL's.
    error : float
        What is held against ``allowed``: the largest error against float64, or ``absolute``.
    allowed : float
        The tolerance.
    problem : str
        Why numbers cannot be compared, for example two shapes; else empty.
    """

    kind: str
    name: str
    absolute: float = 0.0
    relative: float = 0.0
    error: float = 0.0
    allowed: float = 0.0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it counts as the same."""
        return not self.problem and self.error <= self.allowed

    def __str__(self) -> str:
        what = f"{self.kind} {self.name}".rstrip()
        if self.problem:
            return f"{what}: {self.problem}"
        return (
            f"{what}: differs by {self.absolute:.2g} (relative {self.relative:.2g}); "
            f"error {self.error:.2g}, allowed {self.allowed:.2g}"
        )


def compare(
    kind: str,
    name: str,
    theirs: Tensor,
    ours: Tensor,
    oracle: Tensor | None = None,
    scale: float | None = None,
) -> Difference:
    """Hold one tensor of ours against DGL's.

    Parameters
    ----------
    kind, name : str
        As in :class:`Difference`.
    theirs, ours : Tensor
        Of the two libraries, on any device.
    oracle : Tensor, optional
        Of DGL in float64.
    scale : float, optional
        Size of the numbers, by default the largest element.

    Returns
    -------
    Difference
        The verdict.
    """
    if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        expected, found = (f"{tuple(t.shape)} {t.dtype}" for t in (theirs, ours))
        return Difference(kind, name, problem=f"{found} instead of {expected}")
    usual, found_values = _wide(theirs), _wide(ours)
    exact = usual if oracle is None else _wide(oracle)
    if exact.shape != usual.shape:
        exact, oracle = usual, None
    if not torch.equal(usual.isfinite(), found_values.isfinite()):
        return Difference(kind, name, problem="NaN or infinity in other places than DGL's")
    absolute = _distance(found_values, usual)
    largest = _largest(usual)
    size = _largest(exact) if scale is None else scale
    slack = size * _slack(theirs.dtype, direct=oracle is None)
    relative = absolute / largest if largest > 0 else absolute
    if oracle is None or not theirs.dtype.is_floating_point:
        return Difference(kind, name, absolute, relative, absolute, slack)
    allowed = 2 * _distance(usual, exact) + slack
    return Difference(kind, name, absolute, relative, _distance(found_values, exact), allowed)


def compare_records(theirs: Record, ours: Record, oracle: Record | None) -> list[Difference]:
    """Compare all outputs and gradients of one run."""
    exact = Record({}, {}) if oracle is None else oracle
    scale = max(map(_largest, map(_wide, theirs.gradients.values())), default=0.0)
    return [
        *_compare_all("output", theirs.outputs, ours.outputs, exact.outputs),
        *_compare_all("gradient", theirs.gradients, ours.gradients, exact.gradients, scale=scale),
    ]


def compare_modules(
    theirs: list[ModuleCall], ours: list[ModuleCall], oracle: list[ModuleCall] | None
) -> list[Difference]:
    """Compare calls of modules in the order of DGL's side.

    A layer may call the layers in it less often than DGL does; what only one side calls is left
    out.
    """
    mine = {(call.name, call.number): call for call in ours}
    exact = {(call.name, call.number): call for call in oracle or ()}
    found: list[Difference] = []
    for call in theirs:
        key = call.name, call.number
        if key not in mine:
            continue
        outputs = exact[key].outputs if key in exact else {}
        label = f"{call.name or 'the model'} ({mine[key].kind})"
        label += f" call {call.number + 1}" if call.number else ""
        found += _compare_all("module", call.outputs, mine[key].outputs, outputs, prefix=label)
    return found


def first_difference(found: Iterable[Difference], called: list[ModuleCall]) -> Difference | None:
    """Pick what to look at first.

    The first module whose output differs; else, as the backward goes from the last module to the
    first, the gradient of a parameter whose module was called last; else whatever differs.
    """
    wrong = [difference for difference in found if not difference.ok]
    order = [call.name for call in called]

    def lateness(difference: Difference) -> int:
        owners = [
            position
            for position, name in enumerate(order)
            if name and difference.name.startswith(name + ".")
        ]
        return max(owners, default=-1)

    modules = [difference for difference in wrong if difference.kind == "module"]
    outputs = [difference for difference in wrong if difference.kind == "output"]
    if modules or outputs:
        return [*modules, *outputs][0]
    return max(wrong, key=lateness, default=None)


def _compare_all(
    kind: str,
    theirs: dict[str, Tensor],
    ours: dict[str, Tensor],
    oracle: dict[str, Tensor],
    prefix: str = "",
    scale: float | None = None,
) -> Iterator[Difference]:
    for key in {**theirs, **ours}:
        name = " ".join(filter(None, (prefix, key)))
        if key not in ours or key not in theirs:
            where = "dgl_flash.nn" if key not in ours else "dgl.nn"
            yield Difference(kind, name, problem=f"missing in {where}")
        else:
            yield compare(kind, name, theirs[key], ours[key], oracle.get(key), scale)


def _slack(dtype: torch.dtype, direct: bool) -> float:
    """Allowance beside DGL's own error, relative to the largest element."""
    if not dtype.is_floating_point:
        return 0.0
    if dtype in _HALF:
        ulps = ULPS_DIRECT_HALF if direct else ULPS_HALF
    else:
        ulps = ULPS_DIRECT if direct else ULPS
    return ulps * torch.finfo(dtype).eps


def _wide(tensor: Tensor) -> Tensor:
    return tensor.detach().to(device="cpu", dtype=torch.float64)


def _largest(values: Tensor) -> float:
    values = values[values.isfinite()]
    return float(values.abs().max()) if values.numel() else 0.0


def _distance(left: Tensor, right: Tensor) -> float:
    # Infinities are in the same places on both sides, and say nothing about a distance.
    return _largest(left - right)
