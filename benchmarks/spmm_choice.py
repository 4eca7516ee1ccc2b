"""Sums by our kernel and by cuSPARSE: does ``dgl_flash/ops/choose_spmm.py`` choose the fastest?

    python -m benchmarks.spmm_choice --graphs arxiv,road --out benchmarks/results/spmm_choice.csv

One row for each graph, width, dtype and direction. ``backward`` is the sum over the transpose that
we store. cuSPARSE runs as in other libraries, but with the matrix ready and the output allocated.
``ratio`` is what is chosen over the fastest of all, layouts included. What was tuned on this
machine counts as chosen: point ``DGL_FLASH_CACHE_DIR`` at an empty folder to judge the rules alone.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from benchmarks import sweep
from benchmarks.cases import DTYPES
from benchmarks.environment import describe
from benchmarks.graphs import SUITE, BenchGraph, load
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer
from benchmarks.yardstick import sparse_product
from dgl_flash import ops
from dgl_flash.ops.search_spmm import Measured, TunedPass, layouts_of, passes_of, search
from dgl_flash.ops.spmm_cusparse import uses_cusparse
from dgl_flash.structure import GraphStructure

WIDTHS = (16, 64, 256)
GOOD_ENOUGH = 1.05
COLUMNS = (
    *("op", "graph", "generator", "nodes", "edges", "shape", "dtype", "pass"),
    *("chosen", "chosen_ms", "rule_ms", "best", "best_ms", "cusparse_ms", "ratio", "met"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
Row = dict[str, Any]


def measure(
    graph: BenchGraph, widths: Sequence[int], dtypes: Sequence[str], timer: Timer
) -> Iterator[Row]:
    """Yield one row for each width, dtype and direction on one graph."""
    on_cuda = timer.device.type == "cuda"
    for dtype in dtypes:
        for width in widths:
            shared = {
                "op": "spmm",
                "graph": graph.name,
                "generator": graph.source,
                "nodes": graph.struct.num_dst,
                "edges": graph.struct.num_edges,
                "shape": f"sum W={width}",
                "dtype": dtype,
            }
            contenders = _on_cuda if on_cuda else _on_cpu
            for figures in contenders(graph.struct, width, DTYPES[dtype], timer):
                yield {**shared, **figures}


def _on_cuda(struct: GraphStructure, width: int, dtype: torch.dtype, timer: Timer) -> Iterator[Row]:
    def clock(call: Callable[[], object], repeats: int) -> float:
        return timer(call, repeats).median_ms

    for todo in passes_of(struct, width, dtype):
        found = search(todo, layouts_of(todo), clock, timer.repeats, lambda: None)
        seen = struct if todo.name == "forward" else struct.reverse()
        feat = torch.randn(seen.num_src, width, device=struct.device).to(dtype)
        by_library = uses_cusparse(seen.in_adj, dtype, width, None, scaled=False)
        yield _row(
            found,
            chosen="cusparse" if by_library else "kernel",
            chosen_ms=timer(partial(ops.spmm, seen, feat)).median_ms,
        )


def _on_cpu(struct: GraphStructure, width: int, dtype: torch.dtype, timer: Timer) -> Iterator[Row]:
    """The reference and torch stand in: good for trying the script, not for figures."""
    for name, seen in (("forward", struct), ("backward", struct.reverse())):
        feat = torch.randn(seen.num_src, width).to(dtype)
        ours = timer(partial(ops.spmm, seen, feat)).median_ms
        library = timer(sparse_product(seen, width)).median_ms
        measured = [Measured("rule", ours), Measured("cusparse", library)]
        ordered = tuple(sorted(measured, key=lambda one: one.ms))
        yield _row(TunedPass(name, ordered, tried=2), "kernel", ours)


def _row(found: TunedPass, chosen: str, chosen_ms: float) -> Row:
    rule, library = found.find("rule"), found.find("cusparse")
    assert rule is not None and library is not None
    fastest = found.measured[0]
    ratio = chosen_ms / fastest.ms
    return {
        "pass": found.name,
        "chosen": chosen,
        "chosen_ms": chosen_ms,
        "rule_ms": rule.ms,
        "best": fastest.name,
        "best_ms": fastest.ms,
        "cusparse_ms": library.ms,
        "ratio": ratio,
        "met": "yes" if ratio <= GOOD_ENOUGH else "no",
    }


def table(rows: Sequence[Row]) -> str:
    """Times of cuSPARSE over those of the choice, and every choice that is not the best."""
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for row in rows:
        key = tuple(str(row[name]) for name in ("shape", "dtype", "pass"))
        mark = "!" if row["met"] == "no" else " "
        lines.setdefault(key, {})[row["graph"]] = (
            f"{row['cusparse_ms'] / row['chosen_ms']:.2f}{mark}"
        )
    head = f"{'cuSPARSE over the choice':30}" + "".join(f"{graph:>14}" for graph in graphs)
    body = [
        f"{' '.join(key):30}" + "".join(f"{found.get(graph, '–'):>14}" for graph in graphs)
        for key, found in lines.items()
    ]
    missed = [row for row in rows if row["met"] == "no"]
    told = [
        f"    {row['graph']} {row['shape']} {row['dtype']} {row['pass']}: {row['chosen']} "
        f"{row['chosen_ms']:.4g} ms, {row['ratio']:.2f} × {row['best']} ({row['best_ms']:.4g} ms)"
        for row in missed
    ]
    summary = f"{len(missed)} of {len(rows)} choices are over {GOOD_ENOUGH} × the best"
    return "\n".join([head, *body, summary, *told])


def compile_kernels(widths: Sequence[int], dtypes: Sequence[str]) -> None:
    """Fill the compiler's disk cache by all cores."""
    wanted = [
        key
        for dtype in dtypes
        for width in widths
        for key in sweep.keys("spmm", 1, width, DTYPES[dtype], torch.int32)
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(sweep.compile_key, wanted, chunksize=4))


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    options = _parser().parse_args(argv)
    device = torch.device(options.device)
    if device.type == "cuda":
        compile_kernels(options.widths, options.dtypes)
    timer = Timer(device, options.repeats)
    environment = describe(device, options.commit)
    rows: list[Row] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for number, name in enumerate(options.graphs, 1):
            graph = load(name, device)
            print(f"[{number}/{len(options.graphs)}] {name}: {graph.struct.num_edges:,} edges")
            for row in measure(graph, options.widths, options.dtypes, timer):
                rows.append(row)
                writer.writerow(
                    {key: _short(value) for key, value in {**row, **environment}.items()}
                )
                file.flush()
            del graph
    print(table(rows))
    print(f"wrote {options.out}")


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Measure the choice between kernel and cuSPARSE.")

    def dtypes(text: str) -> list[str]:
        unknown = sorted(set(text.split(",")) - set(DTYPES))
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown {unknown}; choose from {list(DTYPES)}")
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",")]

    names: dict[str, Any] = {"type": lambda text: text.split(","), "metavar": "NAME,..."}
    default = ["float32", "bfloat16"]
    parser.add_argument("--graphs", default=list(SUITE), **names)
    parser.add_argument("--widths", type=numbers, default=list(WIDTHS), metavar="W,...")
    parser.add_argument("--dtypes", type=dtypes, default=default, metavar="NAME,...")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "spmm_choice.csv")
    return parser


if __name__ == "__main__":
    main()
