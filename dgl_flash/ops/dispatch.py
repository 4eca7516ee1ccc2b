"""Which path an op takes, why, and who wants to know.

Every op asks :func:`use_kernel` once per call. The answer is recorded for :func:`record` (and so
for ``dgl_flash.explain``); a fall-back on a GPU warns once per op and reason.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from dgl_flash.errors import FallbackWarning
from dgl_flash.kernels.availability import why_unavailable


@dataclass(frozen=True)
class Choice:
    """One op call: its name, the path taken, the kernels launched or the reasons against them."""

    op: str
    path: str  # "fused" or "reference"
    kernels: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()


_listener: ContextVar[list[Choice] | None] = ContextVar("dgl_flash_choices", default=None)
_warned: set[tuple[str, tuple[str, ...]]] = set()


@contextlib.contextmanager
def record() -> Iterator[list[Choice]]:
    """Collect the :class:`Choice` of every op call made inside the block.

    Yields
    ------
    list of Choice
        Filled while the block runs, in call order.
    """
    choices: list[Choice] = []
    token = _listener.set(choices)
    try:
        yield choices
    finally:
        _listener.reset(token)


def kernels_run(device: torch.device) -> bool:
    """Whether kernels run on a device; tells nobody."""
    return device.type == "cuda" and why_unavailable(device) is None


def use_kernel(
    op: str, device: torch.device, *, kernels: Sequence[str], blockers: Sequence[str] = ()
) -> bool:
    """Decide between the fused kernels and the reference path, and tell whoever listens.

    Parameters
    ----------
    op : str
        Name of the op.
    device : torch.device
        Where the features live.
    kernels : sequence of str
        Entry points that the fused path launches.
    blockers : sequence of str
        What the op itself found against its kernels, in words for the user.

    Returns
    -------
    bool
        True when the kernels run.
    """
    if device.type == "cuda":
        missing = why_unavailable(device)
        reasons = tuple(blockers) if missing is None else (missing, *blockers)
    else:
        reasons = (f"the features are on {device.type}", *blockers)
    listener = _listener.get()
    if listener is not None:
        listener.append(
            Choice(op, "reference", reasons=reasons)
            if reasons
            else Choice(op, "fused", tuple(kernels))
        )
    if reasons and device.type == "cuda" and (op, reasons) not in _warned:
        _warned.add((op, reasons))
        warnings.warn(
            f"dgl_flash.ops.{op}: the reference path (plain torch) runs instead of the fused "
            f"kernel: {'; '.join(reasons)}",
            FallbackWarning,
            stacklevel=3,
        )
    return not reasons
