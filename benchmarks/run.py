"""Measure ops against the yardstick, write a CSV, print the ratios.

    python -m benchmarks.run --ops gatv2,spmm --graphs arxiv,road --out benchmarks/results/h200.csv

One row for each op, graph, shape, dtype and pass. ``ratio`` is the time over that of the yardstick
of the same width on the same graph in the same process (see yardstick.py), or over twice that where
an edge reads two rows; ``yardstick_ms`` is this unit. ``must`` is the largest ratio that targets.py
accepts. ``backward`` is autograd.grad on a forward made before.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import cases, targets
from benchmarks.environment import describe
from benchmarks.graphs import SUITE, BenchGraph, load
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer, Timing
from benchmarks.yardstick import yardstick_ms
from dgl_flash.demo.memory import peak_memory
from dgl_flash.ops import dispatch

COLUMNS = (
    *("op", "graph", "generator", "nodes", "edges", "shape", "dtype", "pass", "path"),
    *("median_ms", "p20_ms", "p80_ms", "yardstick_ms", "ratio", "must", "met", "peak_mb"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
Row = dict[str, Any]


ROUNDS = 3  # cases of one op take turns, so that all of them see the clocks of the card drift


def measure(
    graph: BenchGraph,
    wanted: Sequence[cases.Case],
    dtypes: Sequence[str],
    passes: Sequence[str],
    timer: Timer,
) -> Iterator[Row]:
    """Yield one row for each case, dtype and pass on one graph."""
    widths = dict.fromkeys(case.width for case in wanted)
    yardsticks = {width: yardstick_ms(graph.struct, width, timer) for width in widths}
    ratios: dict[tuple[cases.Case, str, str], float] = {}
    for op in dict.fromkeys(case.op for case in wanted):
        for dtype in dtypes:
            of_op = [case for case in wanted if case.op == op]
            for case, which, figures in _measure_together(of_op, graph, dtype, passes, timer):
                unit = yardsticks[case.width] * case.rows_an_edge
                ratio = figures["median_ms"] / unit
                ratios[case, dtype, which] = ratio
                row = {
                    "op": case.op,
                    "graph": graph.name,
                    "generator": graph.source,
                    "nodes": graph.struct.num_dst,
                    "edges": graph.struct.num_edges,
                    "shape": case.shape,
                    "dtype": dtype,
                    "yardstick_ms": unit,
                    **figures,
                    **{"pass": which, "ratio": ratio, "must": "", "met": ""},
                }
                measure_of = case.held_against(which)
                if measure_of is not None:
                    base, share = measure_of
                    known = ratios.get((base, dtype, which))
                    must = None if known is None else share * known
                else:
                    in_float32 = ratios.get((case, "float32", which))
                    must = _must(case, graph, dtype, which, in_float32, timer.device)
                if must is not None:
                    row |= {"must": must, "met": "yes" if ratio <= must else "no"}
                yield row


def _measure_together(
    wanted: Sequence[cases.Case],
    graph: BenchGraph,
    dtype: str,
    passes: Sequence[str],
    timer: Timer,
) -> Iterator[tuple[cases.Case, str, Row]]:
    calls: dict[cases.Case, tuple[cases.Call, str]] = {}

    @contextlib.contextmanager
    def in_memory(case: cases.Case) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            calls.pop(case, None)
            print(f"    out of memory: {case.op} {case.shape} {dtype} on {graph.name}")

    for case in wanted:
        with in_memory(case), dispatch.record() as choices:
            call = case.prepare(graph.struct, cases.DTYPES[dtype])
            calls[case] = call, choices[0].path if choices else ""
    for which in passes:
        times: dict[cases.Case, list[Timing]] = {case: [] for case in calls}
        for _ in range(ROUNDS):
            for case, (call, _) in list(calls.items()):
                with in_memory(case):
                    run = getattr(call, which)
                    times[case].append(timer(run, -(-timer.repeats // ROUNDS)))
        for case, (call, path) in calls.items():
            timing = sorted(times[case], key=lambda timing: timing.median_ms)[ROUNDS // 2]
            figures = {
                "path": path,
                "median_ms": timing.median_ms,
                "p20_ms": timing.p20_ms,
                "p80_ms": timing.p80_ms,
                "peak_mb": peak_memory(getattr(call, which), timer.device) / 2**20,
            }
            yield case, which, figures


def _must(
    case: cases.Case,
    graph: BenchGraph,
    dtype: str,
    which: str,
    float32: float | None,
    device: torch.device,
) -> float | None:
    """Largest acceptable ratio; None where nothing is asked."""
    if dtype == "float32":
        return targets.target(case.op, case.shape, which, graph.name)
    if dtype == "float64" or float32 is None or device.type != "cuda":
        return None
    cache = torch.cuda.get_device_properties(device).L2_cache_size
    beyond = 4 * graph.struct.num_src * case.width > cache
    return float32 * (targets.HALF_SHARE if beyond else 1.0)


def table(rows: Sequence[Row]) -> str:
    """Ratios by graph, one line for each op, shape, dtype and pass; ``!`` marks a missed target."""
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in ("op", "shape", "dtype", "pass"))
        mark = "!" if row["met"] == "no" else " "
        lines.setdefault(key, {})[row["graph"]] = f"{row['ratio']:.2f}{mark}"
    head = f"{'ratio to the yardstick':54}" + "".join(f"{graph:>14}" for graph in graphs)
    body = [
        f"{' '.join(key):54}" + "".join(f"{found.get(graph, '–'):>14}" for graph in graphs)
        for key, found in lines.items()
    ]
    return "\n".join([head, *body])


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    options = _parser().parse_args(argv)
    device = torch.device(options.device)
    choices = cases.ALL if options.shapes == "all" else cases.STANDARD
    wanted = [case for op in options.ops for case in choices[op]]
    # float32 comes first: the targets of the 16-bit types are shares of its times.
    dtypes = sorted(options.dtypes, key=lambda name: name != "float32")
    environment = describe(device, options.commit)
    timer = Timer(device, options.repeats)
    rows: list[Row] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number, name in enumerate(options.graphs, 1):
            graph = load(name, device)
            edges = graph.struct.num_edges
            print(f"[{number}/{len(options.graphs)}] {name}: {edges:,} edges ({graph.source})")
            for row in measure(graph, wanted, dtypes, options.passes, timer):
                rows.append(row)
                writer.writerow(
                    {key: _short(value) for key, value in {**row, **environment}.items()}
                )
                file.flush()
                print(
                    f"    {row['op']} {row['shape']} {row['dtype']} {row['pass']}: "
                    f"{row['median_ms']:.4g} ms, {row['ratio']:.3g} × yardstick"
                    + (f" (must {row['must']:.3g}: {row['met']})" if row["met"] else "")
                )
    print(table(rows))
    print(f"wrote {options.out}")


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure ops against the yardstick.")

    def names(flag: str, default: Sequence[str], known: Sequence[str] | None = None) -> None:
        def split(text: str) -> list[str]:
            chosen = text.split(",")
            unknown = [name for name in chosen if known is not None and name not in known]
            if unknown:
                raise argparse.ArgumentTypeError(
                    f"unknown {unknown}; choose from {list(known or ())}"
                )
            return chosen

        parser.add_argument(flag, type=split, default=list(default), metavar="NAME,...")

    names("--ops", tuple(cases.STANDARD), tuple(cases.STANDARD))
    names("--graphs", SUITE)
    names("--dtypes", ("float32", "bfloat16"), tuple(cases.DTYPES))
    names("--passes", cases.PASSES, cases.PASSES)
    parser.add_argument("--shapes", choices=("standard", "all"), default="standard")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "latest.csv")
    return parser


if __name__ == "__main__":
    main()
