"""Reorder graphs in every way, predict what that gains and measure it; write a CSV.

    python -m benchmarks.reordering --out benchmarks/results/reordering_h200.csv

Stored graphs are those of the shared folder of data; without it, the tiny ones of this project.
Times are of the forward of an op on the graph as it was given and reordered, in turns.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import dgl_flash
from benchmarks.environment import describe
from benchmarks.graphs import load
from benchmarks.paths import RESULTS, find_shared
from dgl_flash.reordering.measuring import OPS
from dgl_flash.reordering.search import METHODS
from dgl_flash.structure import GraphStructure

COLUMNS = (
    *("graph", "nodes", "edges", "method", "taken", "seconds"),
    *("gathered_rows", "edges_a_row", "share_4", "density_4", "predicted"),
    *("op", "width", "dtype", "given_ms", "given_p20", "given_p80"),
    *("reordered_ms", "reordered_p20", "reordered_p80", "measured"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
STORED = ("tolokers", "amazon_computers", "ppi_small", "mesh_copter2", "ca_astroph", "fb100_mit8")
Row = dict[str, Any]


def measure(
    name: str, struct: GraphStructure, methods: Sequence[str], options: argparse.Namespace
) -> Iterator[Row]:
    """A row for each order and op."""
    for method in methods:
        begin = time.perf_counter()
        found = dgl_flash.reorder(struct, method, progress=False)
        seconds = time.perf_counter() - begin
        figures = found.statistics[found.method]
        about: Row = {
            "graph": name,
            "nodes": struct.num_src,
            "edges": struct.num_edges,
            "method": method,
            "taken": found.method,
            "seconds": f"{seconds:.3g}",
            "gathered_rows": figures.num_columns,
            "edges_a_row": f"{figures.edges_per_column:.3g}",
            "share_4": f"{figures.share(4):.3f}",
            "density_4": f"{figures.density(4):.3f}",
            "predicted": f"{found.predicted:.3f}",
        }
        for op in options.ops:
            times = found.measure(op, width=options.width, dtype=getattr(torch, options.dtype))
            yield about | {
                "op": op,
                "width": options.width,
                "dtype": options.dtype,
                "given_ms": f"{times.before.median_ms:.4g}",
                "given_p20": f"{times.before.p20_ms:.4g}",
                "given_p80": f"{times.before.p80_ms:.4g}",
                "reordered_ms": f"{times.after.median_ms:.4g}",
                "reordered_p20": f"{times.after.p20_ms:.4g}",
                "reordered_p80": f"{times.after.p80_ms:.4g}",
                "measured": f"{times.ratio:.3f}",
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    known = STORED if find_shared("data") else ("tiny", "tiny-clusters")
    parser = argparse.ArgumentParser(description="Measure what orders of nodes gain.")
    parser.add_argument("--graphs", nargs="+", default=list(known))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--ops", nargs="+", choices=OPS, default=list(OPS))
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "reordering.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in options.graphs:
            struct = load(name, device).struct
            for row in measure(name, struct, options.methods, options):
                writer.writerow(row | environment)
                file.flush()
                print(
                    f"{name} by {row['method']} ({row['taken']}): gathers x {row['predicted']}, "
                    f"{row['op']} takes x {row['measured']}",
                    flush=True,
                )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
