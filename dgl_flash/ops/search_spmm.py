"""Measure every way to sum neighbour rows, for ``dgl_flash.tune`` and for benchmarks."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dgl_flash.kernels import tuned
from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.layout import Layout
from dgl_flash.ops.candidates import candidates, label
from dgl_flash.ops.choose_spmm import CUSPARSE, Sum
from dgl_flash.ops.choose_spmm import KERNEL as OURS
from dgl_flash.ops.gradients import Scaling
from dgl_flash.ops.rows import tuned_key
from dgl_flash.ops.spmm import ELEMENTWISE, KERNEL, SCALED, WEIGHTED, _launch
from dgl_flash.ops.spmm_cusparse import can_run, cusparse_sum

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

ROWS_PER_SLOT = (1, 4, 8)
CHUNKS = (64, 128, 512)
FINALISTS = 3
SCREENING = 5  # repeats that decide who becomes one
MARGIN = 0.02  # share of its time by which the rule, or our kernel, has to be beaten
MOST_COMPILERS = 8
RULE = "rule"

Step = Callable[[], object]
Measure = Callable[[Callable[[], object], int], float]  # median ms of that many calls


class Pass(NamedTuple):
    """A sum to be measured: by our kernel as a function of the layout, and by cuSPARSE."""

    name: str
    key: tuned.Key
    rule: Layout
    run: Callable[[Layout], object]
    library: Callable[[], object] | None  # None where cuSPARSE cannot compute it


@dataclass(frozen=True)
class Measured:
    """One way to run a pass.

    Attributes
    ----------
    name : str
        ``"rule"``, ``"cusparse"`` or the numbers of a layout.
    ms : float
        Median time in milliseconds.
    layout : Layout or None
        The layout, where it is neither the rule's nor that of a library.
    """

    name: str
    ms: float
    layout: Layout | None = None


@dataclass(frozen=True)
class TunedPass:
    """What was found for one pass.

    Attributes
    ----------
    name : str
        ``"forward"``, ``"backward"``, or both where they share an entry.
    measured : tuple of Measured
        The finalists, the fastest first.
    tried : int
        How many were measured.
    """

    name: str
    measured: tuple[Measured, ...]
    tried: int

    def find(self, name: str) -> Measured | None:
        """A finalist by name, None where there is none."""
        return next((found for found in self.measured if found.name == name), None)

    @property
    def kernel(self) -> Measured:
        """Our kernel at its best: the rule's layout, unless another one is clearly faster."""
        best = next(found for found in self.measured if found.name != CUSPARSE)
        rule = self.find(RULE)
        return best if rule is None or best.ms < (1 - MARGIN) * rule.ms else rule

    @property
    def chosen(self) -> Measured:
        """Our kernel, unless cuSPARSE is clearly faster."""
        library = self.find(CUSPARSE)
        return library if library and library.ms < (1 - MARGIN) * self.kernel.ms else self.kernel

    @property
    def backend(self) -> str:
        """Who was chosen."""
        return CUSPARSE if self.chosen.name == CUSPARSE else OURS


def passes_of(
    struct: GraphStructure,
    width: int,
    dtype: torch.dtype,
    *,
    mean: bool = False,
    edge_weight_heads: int = 0,
) -> Iterator[Pass]:
    """Forward and backward of a sum, on random operands on the graph's device.

    Parameters
    ----------
    struct : GraphStructure
        On a CUDA device.
    width : int
        Numbers in a row.
    dtype : torch.dtype
        Of the features.
    mean : bool
        Whether the sum is a mean.
    edge_weight_heads : int
        Weights of an edge.
    """
    generator = torch.Generator(struct.device).manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, device=struct.device, generator=generator).to(dtype)

    # As a call chooses between them.
    if edge_weight_heads == 0:
        kernel, kind, num_heads = KERNEL, 0, 1
    elif edge_weight_heads == width > 1:
        kernel, kind, num_heads = ELEMENTWISE, 3, 1
    else:
        kernel, kind, num_heads = WEIGHTED, min(edge_weight_heads, 2), edge_weight_heads
    sizes = num_heads, width // num_heads
    weight = None
    if edge_weight_heads > 0:
        weight = draw(struct.num_edges, *([edge_weight_heads] if edge_weight_heads > 1 else []))
    forward = Scaling(mean=mean)
    backward = forward.reverse(struct, accumulator(dtype))
    for name, seen, scaling in (
        ("forward", struct, forward),
        ("backward", struct.reverse(), backward),
    ):
        adjacency = seen.in_adj
        rule_of = SCALED if kernel is KERNEL and scaling.src is not None else kernel
        flags = {"WEIGHT": kind, "SRC_SCALE": scaling.src is not None}
        feat = draw(seen.num_src, width)
        library = None
        if can_run(adjacency, Sum(width, dtype.itemsize, edge_weight_heads, scaled=mean)):
            out = torch.empty(seen.num_dst, width, dtype=dtype, device=struct.device)
            library = partial(cusparse_sum, adjacency, feat, weight, out)
        yield Pass(
            name=name,
            key=tuned_key("spmm", adjacency, dtype, *sizes, flags),
            rule=rule_of.choose_layout(adjacency, *sizes, dtype.itemsize),
            run=partial(_launch, seen, feat, weight, scaling, False),
            library=library,
        )


def layouts_of(todo: Pass) -> list[Layout]:
    """The shapes that are measured first: that of the rule and all candidates."""
    key = todo.key
    shapes = candidates("spmm", key.num_heads, key.head_dim, key.dtype.itemsize)
    return list(dict.fromkeys([todo.rule, *shapes]))


def count_steps(num_layouts: int) -> int:
    """Steps that :func:`compile_all` and :func:`search` report for so many shapes, at most."""
    return 2 * num_layouts + len(ROWS_PER_SLOT) * len(CHUNKS) + FINALISTS + 2


def compile_all(
    run: Callable[[Layout], object], layouts: Sequence[Layout], device: torch.device, step: Step
) -> None:
    """Run each layout once, several at a time: the compiler lets go of the interpreter."""

    def once(layout: Layout) -> None:
        with torch.cuda.device(device):
            run(layout)

    once(layouts[0])  # what all of them share is built by one
    with ThreadPoolExecutor(min(MOST_COMPILERS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(once, layouts):
            step()
    torch.cuda.synchronize(device)


def search(
    todo: Pass, layouts: Sequence[Layout], measure: Measure, repeats: int, step: Step
) -> TunedPass:
    """Find the fastest way to run a pass.

    Every shape is measured a few times; the best one again with other run-time sizes; the best of
    all of them, the rule and cuSPARSE once more, with all repeats.

    Parameters
    ----------
    todo : Pass
        What to run.
    layouts : sequence of Layout
        Shapes to begin with.
    measure : callable
        From a call and a number of repeats to its time.
    repeats : int
        Of each finalist.
    step : callable
        Called after each measurement.

    Returns
    -------
    TunedPass
        The finalists.
    """

    def timed(call: Callable[[], object], count: int) -> float:
        ms = measure(call, count)
        step()
        return ms

    times: dict[Layout, float] = {}

    def screen(shapes: Sequence[Layout]) -> list[Layout]:
        for shape in shapes:
            times[shape] = timed(partial(todo.run, shape), SCREENING)
        return sorted(times, key=times.__getitem__)[:FINALISTS]

    best = screen(layouts)[0]
    resized = [
        dataclasses.replace(best, rows_per_slot=rows, chunk=chunk)
        for rows, chunk in itertools.product(ROWS_PER_SLOT, CHUNKS)
    ]
    finalists = screen(resized)
    found = [Measured(RULE, timed(partial(todo.run, todo.rule), repeats))]
    if todo.library is not None:
        found.append(Measured(CUSPARSE, timed(todo.library, repeats)))
    found += [
        Measured(label(shape), timed(partial(todo.run, shape), repeats), shape)
        for shape in finalists
        if shape != todo.rule
    ]
    ordered = tuple(sorted(found, key=lambda one: one.ms))
    return TunedPass(
        todo.name, ordered, tried=len({*times, todo.rule}) + (todo.library is not None)
    )
