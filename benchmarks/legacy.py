"""Train scripts that were written for DGL on the CPU and, unchanged, on CUDA; write a CSV.

    python -m benchmarks.legacy --out benchmarks/results/legacy_h200.csv

On the CPU a script runs on DGL as it is, with all cores; on CUDA as by ``dgl-flash run``. The two
take turns for some rounds, each time in a process of its own, which runs the script several times;
the first time does not count: compiling kernels is no part of it. Figures are of an epoch, over all
runs that count. ``ratio`` is to the CPU, ``loss_difference`` the largest relative one to the losses
there.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.environment import describe
from benchmarks.paths import RESULTS, ROOT

COLUMNS = (
    *("script", "nodes", "hidden", "epochs", "device", "path", "cpu_threads"),
    *("median_ms", "p20_ms", "p80_ms", "runs", "ratio"),
    *("accuracy", "loss_difference", "must", "met"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
# Script -> nodes and width where a GPU has something to do; full graphs first.
SIZES = {
    "gcn": (200_000, 256),
    "gat": (100_000, 32),
    "rgcn": (100_000, 128),
    "hgt": (50_000, 64),
    "graphsage_sampling": (20_000, 128),
    "link_prediction": (5_000, 64),
    "gin_graph_classification": (10_000, 128),
    "tree_lstm_udf": (4_000, 64),
}
FULL_GRAPH = ("gcn", "gat", "rgcn", "hgt")
MUST = 0.1  # of full graphs
PARTS = (20, 50, 80)
Row = dict[str, Any]

PLAIN = """
import dgl_flash, runpy, sys
def run(script, options):
    sys.argv = [script, *options]
    runpy.run_path(script, run_name="__main__")
"""
REDIRECTED = """
from dgl_flash.legacy.program import run_script
def run(script, options):
    status = run_script(script, options, quiet=True)
    if status:
        raise SystemExit(status)
"""


def train(script: str, options: Sequence[str], how: str, repeats: int) -> list[dict[str, Any]]:
    """What the runs of a new process print last, but for the first one."""
    times = f"\nfor _ in range({1 + repeats}):\n    run({script!r}, {list(options)!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", how + times],
        cwd=ROOT,
        env={**os.environ, "DGLBACKEND": "pytorch", "PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return results[1:]


def search_path() -> str:
    """The checkout first, then what this process has been given."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def measure(script: str, devices: Sequence[str], options: argparse.Namespace) -> list[Row]:
    """A row for each device, that of the CPU first."""
    path = str(ROOT / "tests" / "legacy" / f"{script}.py")
    nodes, hidden = (300, 8) if options.small else SIZES[script]
    given = ["--nodes", str(nodes), "--hidden", str(hidden), "--epochs", str(options.epochs)]
    found: dict[str, list[dict[str, Any]]] = {device: [] for device in devices}
    for _ in range(options.rounds):
        for device in devices:
            how = PLAIN if device == "cpu" else REDIRECTED
            found[device] += train(path, [*given, "--device", device], how, options.repeats)
    rows: list[Row] = []
    on_cpu = found["cpu"][-1]["loss"]
    base = 0.0
    for device, runs in found.items():
        p20, median, p80 = np.percentile([1e3 * run["seconds_per_epoch"] for run in runs], PARTS)
        base = base or median
        pairs = list(zip(runs[-1]["loss"], on_cpu, strict=True))
        row = {
            "script": script,
            "nodes": nodes,
            "hidden": hidden,
            "epochs": options.epochs,
            "device": device,
            "path": "dgl" if device == "cpu" else "dgl-flash run",
            "cpu_threads": torch.get_num_threads(),
            "median_ms": f"{median:.4g}",
            "p20_ms": f"{p20:.4g}",
            "p80_ms": f"{p80:.4g}",
            "runs": len(runs),
            "ratio": f"{median / base:.3g}",
            "accuracy": f"{runs[-1]['accuracy']:.4f}",
            "loss_difference": f"{max(abs(a - b) / abs(b) for a, b in pairs):.2g}",
        }
        if script in FULL_GRAPH and device != "cpu":
            row |= {"must": MUST, "met": "yes" if median / base <= MUST else "no"}
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time scripts that were written for DGL.")
    parser.add_argument("--scripts", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=4, help="runs that count in a process")
    parser.add_argument("--rounds", type=int, default=2, help="processes on each device")
    parser.add_argument("--small", action="store_true", help="few nodes, narrow layers")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "legacy.csv")
    options = parser.parse_args(argv)
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    environment = describe(torch.device(devices[-1]), options.commit)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for script in options.scripts:
            for row in measure(script, devices, options):
                writer.writerow(row | environment)
                file.flush()
                print(
                    f"{script} on {row['device']}: {row['median_ms']} ms an epoch "
                    f"({row['p20_ms']} to {row['p80_ms']}, {row['ratio']} x CPU), "
                    f"accuracy {row['accuracy']}",
                    flush=True,
                )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
