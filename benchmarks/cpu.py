"""Time our ops on a CPU against those of DGL 2.1.0, in turns, and write a CSV.

    python -m benchmarks.cpu --out benchmarks/results/cpu_arxiv.csv

Both run on the same edges and operands with as many threads, one call of each after the other, so
that a machine that slows down does so for both. ``ratio`` is our best time over DGL's best.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dgl_flash

# isort: split
import dgl.ops
import torch
from torch import Tensor

from benchmarks.cases import DTYPES
from benchmarks.cpu_attention import AttentionCase, attention_cases
from benchmarks.environment import describe
from benchmarks.graphs import BenchGraph, load
from benchmarks.paths import RESULTS

COLUMNS = (
    *("op", "graph", "generator", "nodes", "edges", "weights", "width", "heads", "dtype", "pass"),
    *("ms", "dgl_ms", "ratio", "must", "met", "median_ms", "dgl_median_ms", "median_ratio"),
    *("cpu", "threads", "torch", "dgl", "commit", "date"),
)
MUST = 1.2
WIDTHS = (64, 256)
PASSES = ("forward", "both")
# Between two calls, so that the threads of the other library have gone to sleep.
REST_SECONDS = 0.02
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One op of ``dgl.ops`` at one width.

    Attributes
    ----------
    op : str
        Its name.
    width : int
        Numbers in a row.
    weights : str
        What the operands on edges hold a number for: ``"edge"`` or ``"element"``; else empty.
    """

    op: str
    width: int
    weights: str = ""
    heads = 1

    def must(self, which: str) -> float:
        """Largest part of DGL's time that a pass may take."""
        return MUST

    def draw(self, graph: BenchGraph, dtype: torch.dtype) -> list[Tensor]:
        """Operands, the same at every call."""
        generator = torch.Generator().manual_seed(0)
        rows = {"u": graph.struct.num_src, "v": graph.struct.num_dst, "e": graph.struct.num_edges}

        def rows_of(end: str) -> Tensor:
            width = 1 if end == "e" and self.weights == "edge" else self.width
            drawn = torch.randn(rows[end], width, generator=generator, dtype=torch.float64)
            return drawn.to(dtype).requires_grad_()

        return [rows_of(end) for end in re.findall(r"(?<![a-z])[uve](?![a-z])", self.op)]

    def of_dgl(self, dgl_graph: Any) -> Callable[..., Tensor]:
        """DGL's op, of the operands."""
        return partial(getattr(dgl.ops, self.op), dgl_graph)

    def ours(self, graph: BenchGraph) -> Callable[..., Tensor]:
        """Our op, of the operands."""
        return partial(getattr(dgl_flash.ops, self.op), graph.struct)


AnyCase = Case | AttentionCase


def cases_of(width: int) -> list[AnyCase]:
    """What is measured at a width; tensors of edges and attention with the narrower one only."""
    found: list[AnyCase] = [
        Case("copy_u_sum", width),
        Case("copy_u_mean", width),
        Case("u_mul_e_sum", width, "edge"),
        Case("u_dot_v", width),
        Case("copy_u_max", width),
        Case("u_mul_e_max", width, "edge"),
    ]
    if width == WIDTHS[0]:
        found += [
            Case("u_mul_e_sum", width, "element"),
            Case("copy_e_sum", width, "element"),
            Case("copy_e_max", width, "element"),
            Case("u_add_v", width),
            *attention_cases(),
        ]
    return found


def prepare(case: AnyCase, graph: BenchGraph, dgl_graph: Any, dtype: torch.dtype) -> list[Row]:
    """DGL's passes and ours, as calls without arguments, on the same operands."""
    operands = case.draw(graph, dtype)

    def passes(op: Callable[..., Tensor]) -> Row:
        def forward() -> Tensor:
            with torch.no_grad():
                return op(*operands)

        noise = torch.randn(forward().shape, generator=torch.Generator().manual_seed(1)).to(dtype)

        def both() -> tuple[Tensor, ...]:
            return torch.autograd.grad(op(*operands), operands, noise)

        return {"forward": forward, "both": both}

    return [passes(case.of_dgl(dgl_graph)), passes(case.ours(graph))]


def alternate(calls: Sequence[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Milliseconds of each call in each round; they take turns at being first."""
    times: list[list[float]] = [[] for _ in calls]
    for number in range(-1, rounds):  # the first round warms up
        order = range(len(calls)) if number % 2 else reversed(range(len(calls)))
        for which in order:
            time.sleep(REST_SECONDS)
            start = time.perf_counter()
            calls[which]()
            if number >= 0:
                times[which].append(1e3 * (time.perf_counter() - start))
    return times


def measure(
    case: AnyCase, graph: BenchGraph, dgl_graph: Any, dtype: str, passes: Sequence[str], rounds: int
) -> Iterator[Row]:
    """Yield a row for each pass."""
    theirs, ours = prepare(case, graph, dgl_graph, DTYPES[dtype])
    for which in passes:
        dgl_times, times = alternate([theirs[which], ours[which]], rounds)
        best, dgl_best = min(times), min(dgl_times)
        median, dgl_median = statistics.median(times), statistics.median(dgl_times)
        yield {
            "op": case.op,
            "graph": graph.name,
            "generator": graph.source,
            "nodes": graph.struct.num_dst,
            "edges": graph.struct.num_edges,
            "weights": case.weights,
            "width": case.width,
            "heads": case.heads,
            "dtype": dtype,
            "pass": which,
            "ms": best,
            "dgl_ms": dgl_best,
            "ratio": best / dgl_best,
            "must": case.must(which),
            "met": "yes" if best / dgl_best <= case.must(which) else "no",
            "median_ms": median,
            "dgl_median_ms": dgl_median,
            "median_ratio": median / dgl_median,
        }


def label(op: str, width: int, heads: int, weights: str) -> str:
    """Name a case on a line."""
    parts = [op, f"W={width}", f"H={heads}" if heads > 1 else "", weights]
    return " ".join(part for part in parts if part)


def table(rows: Iterable[Row]) -> str:
    """Milliseconds and ratios, a line for each row; ``!`` marks a missed target."""
    head = f"{'op':28}{'dtype':9}{'pass':8}{'best ms':>9}{'DGL':>9}{'ratio':>7}"
    lines = [f"{head} {'median ms':>10}{'DGL':>9}{'ratio':>7}"]
    for row in rows:
        name = label(row["op"], row["width"], row["heads"], row["weights"])
        mark = "!" if row["met"] == "no" else " "
        lines.append(
            f"{name:28}{row['dtype']:9}{row['pass']:8}"
            f"{row['ms']:9.1f}{row['dgl_ms']:9.1f}{row['ratio']:7.2f}{mark}"
            f"{row['median_ms']:10.1f}{row['dgl_median_ms']:9.1f}{row['median_ratio']:7.2f}"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    names = list(dict.fromkeys(case.op for case in cases_of(WIDTHS[0])))
    parser = argparse.ArgumentParser(description="Time ops on a CPU against DGL's.")
    parser.add_argument("--graph", default="arxiv")
    parser.add_argument("--ops", nargs="+", choices=names, default=names)
    parser.add_argument("--widths", nargs="+", type=int, choices=WIDTHS, default=list(WIDTHS))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "float64"])
    parser.add_argument("--passes", nargs="+", choices=PASSES, default=list(PASSES))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu.csv")
    options = parser.parse_args(argv)

    torch.set_num_threads(options.threads)
    dgl.utils.set_num_threads(options.threads)
    graph = load(options.graph, torch.device("cpu"))
    dgl_graph = dgl.graph(graph.struct.edges(), num_nodes=graph.struct.num_dst)
    dgl_graph.create_formats_()
    found = describe(torch.device("cpu"), options.commit)
    environment = {name: found[name] for name in ("torch", "commit", "date")}
    environment |= {"cpu": cpu_model(), "threads": options.threads, "dgl": dgl.__version__}
    chosen = [case for width in options.widths for case in cases_of(width)]
    chosen = [case for case in chosen if case.op in options.ops]
    total = len(chosen) * len(options.dtypes)
    rows: list[Row] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number, (case, dtype) in enumerate(
            ((case, dtype) for case in chosen for dtype in options.dtypes), 1
        ):
            name = label(case.op, case.width, case.heads, case.weights)
            print(f"[{number}/{total}] {name} {dtype}", flush=True)
            for row in measure(case, graph, dgl_graph, dtype, options.passes, options.rounds):
                rows.append(row)
                full = row | environment
                writer.writerow({name: _short(value) for name, value in full.items()})
                file.flush()
    print(table(rows))
    print(f"wrote {options.out}")


def cpu_model() -> str:
    """Name the processor."""
    if sys.platform == "linux":
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        if models:
            return models[0]
    return platform.processor() or platform.machine()


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value


if __name__ == "__main__":
    main()
