"""The judge of every numeric test: is a result as exact as torch's own, in the same dtype?

The oracle is computed in float64. A result passes when its error is at most twice that of plain
torch in the result's dtype, plus a few units in the last place, on the whole tensor and on its
worst row (a row is an index of the first dimension). NaN and infinity never pass.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Luck of rounding: what a result may miss although plain torch hit it. No oracle is finer than
# float64, hence its allowance of 2e-13.
ULPS = {torch.float16: 2.0, torch.bfloat16: 2.0, torch.float32: 4.0, torch.float64: 1000.0}


@dataclass(frozen=True)
class Verdict:
    """Errors relative to the oracle, and the most that was allowed."""

    whole: float
    whole_limit: float
    worst: float
    worst_limit: float
    worst_row: int

    @property
    def ok(self) -> bool:
        return self.whole <= self.whole_limit and self.worst <= self.worst_limit

    def __str__(self) -> str:
        return (
            f"whole {self.whole:.3g} (allowed {self.whole_limit:.3g}), "
            f"worst row {self.worst_row}: {self.worst:.3g} (allowed {self.worst_limit:.3g})"
        )


def judge(
    actual: Tensor, baseline: Tensor, oracle: Tensor, *, ulps: float | None = None
) -> Verdict:
    """Compare ``actual`` with the float64 ``oracle``, leniently where ``baseline`` errs too.

    Parameters
    ----------
    actual : Tensor
        The result under test.
    baseline : Tensor
        Plain torch's (or DGL's) result from the same inputs in the dtype of ``actual``.
    oracle : Tensor
        The result from the same inputs, widened to float64.
    ulps : float, optional
        Allowance on top of twice the baseline's error, default :data:`ULPS`.
    """
    if oracle.dtype != torch.float64:
        raise TypeError(f"the oracle must be float64, got {oracle.dtype}")
    if actual.dtype != baseline.dtype:
        raise AssertionError(f"expected dtype {baseline.dtype}, got {actual.dtype}")
    if not actual.shape == baseline.shape == oracle.shape:
        shapes = tuple(baseline.shape), tuple(oracle.shape)
        raise AssertionError(f"expected shapes {shapes}, got {tuple(actual.shape)}")
    exact = _rows(oracle)
    found, usual = _rows(actual), _rows(baseline)
    for name, values in (("oracle", exact), ("baseline", usual), ("result", found)):
        if not values.isfinite().all():
            bad = (~values.isfinite().all(dim=1)).nonzero().flatten()
            raise AssertionError(f"the {name} has NaN or infinity, first in row {bad[0].item()}")
    if exact.numel() == 0:
        return Verdict(whole=0.0, whole_limit=0.0, worst=0.0, worst_limit=0.0, worst_row=-1)
    slack = (ULPS[actual.dtype] if ulps is None else ulps) * torch.finfo(actual.dtype).eps
    rows_found, rows_usual = _row_errors(found, exact), _row_errors(usual, exact)
    return Verdict(
        whole=_whole_error(found, exact),
        whole_limit=2 * _whole_error(usual, exact) + slack,
        worst=rows_found.max().item(),
        worst_limit=2 * rows_usual.max().item() + slack,
        worst_row=int(rows_found.argmax()),
    )


def assert_accurate(
    actual: Tensor,
    baseline: Tensor,
    oracle: Tensor,
    *,
    what: str = "output",
    ulps: float | None = None,
) -> None:
    """Fail unless :func:`judge` accepts ``actual``."""
    try:
        verdict = judge(actual, baseline, oracle, ulps=ulps)
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from None
    assert verdict.ok, f"{what} ({actual.dtype}): {verdict}"


def outputs_and_grads(
    function: Callable[..., Any], inputs: Mapping[str, Any], dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Run ``function(**inputs)`` forward and backward.

    Floating inputs become leaves (in ``dtype`` when given). The incoming gradients are the same
    pseudo-random values in every dtype and on every device.

    Returns
    -------
    dict
        ``out`` (``out0``, ``out1`` … for several outputs) and ``grad_<name>`` per floating input.
    """
    arguments = dict(inputs)
    for name, value in inputs.items():
        if isinstance(value, Tensor) and value.is_floating_point():
            leaf = value.detach() if dtype is None else value.detach().to(dtype)
            arguments[name] = leaf.requires_grad_()
    outputs = function(**arguments)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    torch.autograd.backward(outputs, [pseudo_random(out) for out in outputs])
    names = ["out"] if len(outputs) == 1 else [f"out{i}" for i in range(len(outputs))]
    results = {name: out.detach() for name, out in zip(names, outputs, strict=True)}
    for name in inputs:
        if isinstance(arguments[name], Tensor) and arguments[name].requires_grad:
            grad = arguments[name].grad
            results[f"grad_{name}"] = torch.zeros_like(arguments[name]) if grad is None else grad
    return results


def check_op(
    op: Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Mapping[str, Any],
    *,
    ulps: Mapping[str, float] | None = None,
    nothing: float = 0.0,
) -> None:
    """Judge the outputs of ``op`` and every gradient against ``reference``.

    ``reference`` runs twice: in float64 as the oracle and in the dtype of ``inputs`` as baseline.
    ``ulps`` widens the allowance of single results, e.g. ``{"grad_attn": 8}``. A result whose
    oracle stays below ``nothing`` is zero, of which float64 has left some rounding.
    """
    found = outputs_and_grads(op, inputs)
    usual = outputs_and_grads(reference, inputs)
    exact = outputs_and_grads(reference, inputs, dtype=torch.float64)
    for name, value in found.items():
        allowed, oracle = (ulps or {}).get(name), exact[name]
        if oracle.numel() > 0 and oracle.abs().max() < nothing:
            oracle = torch.zeros_like(oracle)
        assert_accurate(value, usual[name], oracle, what=name, ulps=allowed)


def pseudo_random(like: Tensor) -> Tensor:
    """Values in (-1, 1) that every dtype holds exactly and that no two rows share for long."""
    steps = torch.arange(like.numel(), device=like.device)
    return ((steps * 37 % 127 - 63).to(like.dtype) / 64).reshape(like.shape)


def _rows(tensor: Tensor) -> Tensor:
    tensor = tensor.detach().to(device="cpu", dtype=torch.float64)
    return tensor.reshape(-1, 1) if tensor.dim() < 2 else tensor.flatten(1)


def _whole_error(found: Tensor, exact: Tensor) -> float:
    scale = exact.norm().item()
    # Against an all-zero oracle the absolute error has to be small.
    return (found - exact).norm().item() / (scale if scale > 0 else 1.0)


def _row_errors(found: Tensor, exact: Tensor) -> Tensor:
    errors = (found - exact).abs().amax(dim=1)
    scales = exact.abs().amax(dim=1)
    # A row that cancels to almost nothing is measured against an ordinary row: its own relative
    # error says nothing. The median ignores hubs, behind which rows could hide, and what float64
    # itself leaves of sums that are zero.
    present = scales[scales > 1e-9 * scales.max()]
    ordinary = present.median().item() if present.numel() > 0 else 1.0
    return errors / scales.clamp(min=ordinary)
