"""The check of one model: both libraries, the same weights, graph and features."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from dgl_flash.demo.memory import HOW
from dgl_flash.structure import Graph

from .arguments import dgl_runs_on, place_model, switch_dropout_off, tensors_in
from .compare import Difference, compare_modules, compare_records
from .compare import first_difference as pick_first
from .errors import CheckError
from .measure import Cost, measure
from .record import ModuleCall, Record, Setting, run_modules, run_once
from .result import CheckResult, Side
from .twin import make_pair


def check(
    model: nn.Module | Callable[..., nn.Module],
    graph: Any,
    feat: Any,
    *inputs: Any,
    keywords: dict[str, Any] | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    train: bool = False,
    repeats: int = 10,
    seed: int = 0,
) -> CheckResult:
    """Run a model with the layers of ``dgl.nn`` and of ``dgl_flash.nn``, and compare.

    Both get the same weights, graph and features. Compared are the outputs, the outputs of the
    modules between the layers, the gradients of all parameters and inputs, and the keys, shapes
    and dtypes of the ``state_dict``; time and peak memory are measured.

    Parameters
    ----------
    model : nn.Module or callable
        A function that builds the model, called once with ``dgl.nn`` and once with
        ``dgl_flash.nn``, from the same seed. Or a model (or a function without arguments that
        builds one) with layers of either library: the classes of the layers in a copy are then
        exchanged, which is refused where layers are subclassed or keep other attributes.
    graph : DGLGraph, DGLBlock, or a list of them
        First argument of the model.
    feat : Tensor, or tensors in dicts, lists and tuples
        Second argument.
    *inputs
        Further arguments.
    keywords : dict, optional
        Keyword arguments of the model.
    device : str or torch.device, optional
        Where both run; by default that of the features. A DGL built without CUDA runs on the CPU.
    dtype : torch.dtype, optional
        Into which weights and features are converted; by default they stay as they are.
    train : bool
        Run in training mode; dropout is then switched off for the comparison, as the two libraries
        draw differently. Default False.
    repeats : int
        Measured calls; 0 leaves time and memory out. Default 10.
    seed : int
        Of the weights, if a function builds the model, and of what is drawn. Default 0.

    Returns
    -------
    CheckResult
        ``ok``, or what differs; ``print`` it.

    Raises
    ------
    CheckError
        If the model cannot be had or cannot run in ``dgl.nn``. A difference raises nothing.

    Notes
    -----
    A tensor counts as the same if its largest error against DGL's layers in float64 is at most
    twice that of DGL in the same dtype, plus 16 ulp (2 in float16 and bfloat16) of the largest
    element (for gradients: of any gradient of the model). Where there is no float64 to compare
    with, the libraries may differ from each other by 1024 ulp (8 in float16 and bfloat16).

    Random state is left as it was, and so are the model, its inputs and their gradients.

    Examples
    --------
    >>> import dgl_flash, dgl, torch
    >>> from dgl_flash.checking import check
    >>> graph = dgl.add_self_loop(dgl.rand_graph(100, 500))
    >>> result = check(lambda nn: nn.GATv2Conv(8, 4, 2), graph, torch.randn(100, 8), repeats=0)
    >>> result.ok
    True
    """
    if isinstance(graph, Graph):
        raise CheckError("dgl.nn does not take a dgl_flash.Graph; pass a DGLGraph")
    if repeats < 0:
        raise CheckError(f"repeats must not be negative, got {repeats}")
    target = _target(device, feat)
    # A seed reaches the generators of all cards.
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        pair = make_pair(model, seed)
        theirs_device = target if dgl_runs_on(target) else torch.device("cpu")
        theirs = Setting(
            model=pair.theirs,
            inputs=(graph, feat, *inputs),
            keywords=keywords or {},
            device=theirs_device,
            dtype=dtype,
            train=train,
            dropout=False,
            seed=seed,
        )
        ours = dataclasses.replace(theirs, model=pair.ours, device=target)
        return _compared(theirs, ours, pair.state, repeats)


def _target(device: str | torch.device | None, feat: Any) -> torch.device:
    if device is None:
        first = next(tensors_in(feat), None)
        return torch.device("cpu") if first is None else first[1].device
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise CheckError(f"unknown device {str(device)!r}; use cpu, cuda or cuda:N") from error
    if chosen.type == "cuda":
        count = torch.cuda.device_count()
        chosen = torch.device("cuda", chosen.index or 0)
        if chosen.index >= count:
            raise CheckError(f"there is no device {chosen}: torch sees {count} GPUs; use cpu")
    return chosen


def _compared(theirs: Setting, ours: Setting, state: tuple[str, ...], repeats: int) -> CheckResult:
    notes = _notes(theirs, ours)
    expected, called = _theirs(theirs)
    differences: list[Difference] = []
    failure = ""
    try:
        found, found_calls = run_once(ours), run_modules(ours)
    except Exception as error:  # of whatever kind: DGL has none here
        failure = _brief(error)
    else:
        oracle, exact, note = _oracle(theirs, expected)
        notes += [note]
        differences += compare_modules(called, found_calls, exact)
        differences += compare_records(expected, found, oracle)
    costs: tuple[Cost | None, ...] = (None, None)
    if repeats and not failure:
        costs = tuple(
            measure(dataclasses.replace(side, dropout=True), repeats) for side in (theirs, ours)
        )
        ways = dict.fromkeys(HOW[side.device.type] for side in (theirs, ours))
        notes += [
            f"times are medians of {repeats} calls after warm-up; memory is that of one forward "
            f"and backward beside weights and inputs, by {' and '.join(ways)}"
        ]
    sides = tuple(
        Side(library, _describe(setting.device), cost)
        for library, setting, cost in zip(
            ("dgl.nn", "dgl_flash.nn"), (theirs, ours), costs, strict=True
        )
    )
    return CheckResult(
        differences=tuple(differences),
        state=state,
        first_difference=pick_first(differences, called),
        failure=failure,
        sides=sides,
        notes=tuple(notes),
    )


def _theirs(setting: Setting) -> tuple[Record, list[ModuleCall]]:
    try:
        return run_once(setting), run_modules(setting)
    except Exception as error:  # of whatever kind: there is nothing to compare with
        raise CheckError(
            f"the model fails with dgl.nn already ({_brief(error)}); mend the call or choose "
            f"another dtype, then check again"
        ) from error


def _oracle(
    setting: Setting, expected: Record
) -> tuple[Record | None, list[ModuleCall] | None, str]:
    """DGL in float64, where that is finer and possible, and what to say about it."""
    dtypes = {out.dtype for out in expected.outputs.values() if out.dtype.is_floating_point}
    direct = "the libraries are compared with each other"
    if not dtypes - {torch.float64}:
        return None, None, f"nothing is finer than float64: {direct}"
    wide = dataclasses.replace(setting, dtype=torch.float64)
    try:
        oracle, calls = run_once(wide), run_modules(wide)
    except Exception as error:  # a model may insist on its dtype in many ways
        return None, None, f"dgl.nn fails in float64 ({_brief(error)}): {direct}"
    return (
        oracle,
        calls,
        "allowed: twice the error of dgl.nn against its float64 result, and some ulp",
    )


def _notes(theirs: Setting, ours: Setting) -> list[str]:
    notes = []
    if theirs.device != ours.device:
        notes.append(
            f"this DGL is built without CUDA: dgl.nn ran on the CPU, dgl_flash.nn on {ours.device}"
        )
    probe = place_model(ours.model, torch.device("cpu"), None)
    if ours.train and switch_dropout_off(probe):
        notes.append("dropout was off in the comparison and on in the measurements")
    return notes


def _brief(error: Exception) -> str:
    """Kind and first line: DGL's errors go on with a trace of its C++ code."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _describe(device: torch.device) -> str:
    return "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
