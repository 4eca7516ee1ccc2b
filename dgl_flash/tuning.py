"""Measure who sums neighbour rows fastest on this machine, and remember it."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dgl_flash.kernels import tuned
from dgl_flash.kernels.availability import why_unavailable
from dgl_flash.kernels.timing import Timer
from dgl_flash.ops import search_spmm
from dgl_flash.ops.gradients import row_width
from dgl_flash.ops.search_spmm import Measured, Pass, TunedPass
from dgl_flash.progress import progress_bar
from dgl_flash.structure import structure
from dgl_flash.structure.graph_structure import resolve_device
from dgl_flash.tables import as_html, as_text

_HEAD = ("pass", "chosen", "ms", "ms by rule", "ms by cuSPARSE", "tried")


@dataclass(frozen=True, repr=False)
class TuneResult:
    """What :func:`tune` found; ``print`` it, or show it in a notebook.

    Attributes
    ----------
    subject : str
        What was measured, in words.
    passes : tuple of TunedPass
        Forward and backward, as one where they share an entry; empty where nothing was tuned.
    note : str
        Why nothing was.
    """

    subject: str
    passes: tuple[TunedPass, ...] = ()
    note: str = ""

    def rows(self) -> list[tuple[str, ...]]:
        """One row a pass: its name, what was chosen, three times in ms, and how many were tried."""

        def ms(found: Measured | None) -> str:
            return "–" if found is None else f"{found.ms:.4f}"

        return [
            (
                one.name,
                one.chosen.name,
                ms(one.chosen),
                ms(one.find("rule")),
                ms(one.find("cusparse")),
                str(one.tried),
            )
            for one in self.passes
        ]

    def __repr__(self) -> str:
        if not self.passes:
            return f"{self.subject}: {self.note}"
        return f"{self.subject}\n{as_text([_HEAD, *self.rows()])}"

    def _repr_html_(self) -> str:
        if not self.passes:
            return f"<p>{html.escape(repr(self))}</p>"
        return f"<p>{html.escape(self.subject)}</p>{as_html([_HEAD, *self.rows()])}"


def tune(
    graph: Any,
    feat_or_width: Tensor | int,
    *,
    dtype: torch.dtype | None = None,
    reduce: str = "sum",
    edge_weight_heads: int = 0,
    repeatable: bool = True,
    device: torch.device | str | None = None,
    repeats: int = 20,
    progress: bool = True,
) -> TuneResult:
    r"""Measure every way to sum neighbour rows of a graph, and use the fastest from now on.

    The winners go into a small file, ``tuned.json`` in ``$DGL_FLASH_CACHE_DIR``, else in
    ``$XDG_CACHE_HOME/dgl_flash`` or ``~/.cache/dgl_flash``. They hold on the same card with the
    same versions, for rows of the same width and dtype, and for graphs like this one: with numbers
    of rows and edges, mean and longest row of the same magnitude.

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type.
    feat_or_width : torch.Tensor or int
        Features as they will be summed, (N_src, \*), of which width, dtype and device are taken; or
        the numbers in a row.
    dtype : torch.dtype, optional
        Of the features; that of the tensor, else float32.
    reduce : {"sum", "mean"}
        Reducer.
    edge_weight_heads : int
        Weights of an edge: 0 for none, 1 for (E,), H for (E, H).
    repeatable : bool
        Whether each run has to give the same bits. If not, cuSPARSE takes part.
    device : torch.device or str, optional
        Where to measure; that of the tensor, else of the graph, else the GPU if there is one.
    repeats : int
        Measured calls of each finalist.
    progress : bool
        Whether to show a bar, where ``tqdm`` is installed.

    Returns
    -------
    TuneResult
        What was measured and chosen. Without a GPU nothing is, and the result says so.

    Raises
    ------
    TypeError
        When ``graph`` is no graph.
    ValueError
        When ``reduce`` is unknown, or the heads do not divide the width.

    Notes
    -----
    It takes less than a minute, most of it for compiling candidates, and needs memory for the
    features and their sums. Each layout of our kernel gives the same bits in each run; two of them
    may round differently.

    cuSPARSE takes part with ``repeatable=False``, in sums without factors of nodes and with at most
    one weight an edge. On skewed graphs its results differ in the last bits from run to run. Where
    it wins it sums from then on: until the same is tuned again with ``repeatable=True``, and not
    while ``torch.use_deterministic_algorithms`` is on. On an H200 it won on none of nine graphs.

    Examples
    --------
    >>> dgl_flash.tune(graph, 256)  # doctest: +SKIP
    """
    width = row_width(feat_or_width) if isinstance(feat_or_width, Tensor) else feat_or_width
    _check(width, reduce, edge_weight_heads)
    if dtype is None:
        dtype = feat_or_width.dtype if isinstance(feat_or_width, Tensor) else torch.float32
    place = _device(graph, feat_or_width, device)
    struct = structure(graph, place, op="tune")
    plural = "weight" if edge_weight_heads == 1 else "weights"
    weights = f", {edge_weight_heads} {plural} an edge" if edge_weight_heads else ""
    numbers = f"{width} {str(dtype).removeprefix('torch.')} numbers"
    subject = f"{reduce} of {numbers} over {struct.num_edges:,} edges{weights}"
    missing = why_unavailable(place)
    if missing is not None:
        return TuneResult(subject, note=f"nothing to tune, no kernel runs here: {missing}")
    if struct.num_edges == 0 or width == 0:
        return TuneResult(subject, note="nothing to tune, there is nothing to sum")
    with torch.cuda.device(place), torch.no_grad():
        todo = search_spmm.passes_of(
            struct, width, dtype, mean=reduce == "mean", edge_weight_heads=edge_weight_heads
        )
        passes = _tune(struct.device, list(todo), repeatable, repeats, progress)
        for adjacency in (struct.in_adj, struct.out_adj):
            adjacency.launches.clear()  # bound by what was known before
    return TuneResult(f"{subject}, {torch.cuda.get_device_name(place)}", passes)


def _check(width: int, reduce: str, heads: int) -> None:
    if reduce not in ("sum", "mean"):
        raise ValueError(f"tune: expected `reduce` to be 'sum' or 'mean', got {reduce!r}")
    if width < 0 or heads < 0 or (heads > 0 and width % heads):
        raise ValueError(
            f"tune: expected `edge_weight_heads` that divides the width {width}, got {heads}; "
            f"give the number of weights that each edge has"
        )


def _device(graph: Any, feat: Tensor | int, device: torch.device | str | None) -> torch.device:
    if device is not None:
        return resolve_device(device)
    if isinstance(feat, Tensor):
        return feat.device
    own = torch.device(getattr(graph, "device", "cpu"))
    return resolve_device("cuda") if own.type == "cpu" and torch.cuda.is_available() else own


def _tune(
    device: torch.device, todo: list[Pass], repeatable: bool, repeats: int, progress: bool
) -> tuple[TunedPass, ...]:
    if todo[0].key == todo[1].key:
        todo = [todo[0]._replace(name="forward, backward")]
    timer = Timer(device, repeats)

    def measure(call: Callable[[], object], count: int) -> float:
        return timer(call, count).median_ms

    found = []
    shapes = [search_spmm.layouts_of(one) for one in todo]
    total = sum(search_spmm.count_steps(len(layouts)) for layouts in shapes)
    with progress_bar("tune", "run", total, progress) as step:
        for one, layouts in zip(todo, shapes, strict=True):
            search_spmm.compile_all(one.run, layouts, device, step)
            allowed = one._replace(library=None) if repeatable else one
            best = search_spmm.search(allowed, layouts, measure, repeats, step)
            _store(one.key, best, may_be_library=one.library is not None)
            found.append(best)
    return tuple(found)


def _store(key: tuned.Key, best: TunedPass, *, may_be_library: bool) -> None:
    backend = best.backend
    if not may_be_library:  # a mean says nothing about who is faster at a sum
        known = tuned.find(key)
        backend = backend if known is None else known.backend
    tuned.store(key, tuned.Tuned(best.kernel.layout, backend))
