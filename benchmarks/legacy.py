"""Train scripts that were written for DGL on the CPU and, unchanged, on CUDA; write a CSV.

    python -m benchmarks.legacy --out benchmarks/results/legacy_h200.csv

On the CPU a script runs on DGL as it is, with all cores; on CUDA as by ``dgl-flash run``. Each runs
twice in a process of its own, and the second time counts: compiling kernels is no part of it.
``ratio`` is the time of an epoch over that on the CPU, ``loss_difference`` the largest relative one
to the losses there.
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

import torch

from benchmarks.environment import describe
from benchmarks.paths import RESULTS, ROOT

COLUMNS = (
    *("script", "nodes", "hidden", "epochs", "device", "path", "cpu_threads"),
    *("ms_per_epoch", "ratio", "accuracy", "loss_difference", "must", "met"),
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
TWICE = """
import sys
for _ in range(2):
    run(sys.argv_given[0], sys.argv_given[1:])
"""


def train(script: str, options: Sequence[str], how: str) -> dict[str, Any]:
    """What the second of two runs prints last."""
    code = f"import sys; sys.argv_given = {[script, *options]!r}\n{how}{TWICE}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DGLBACKEND": "pytorch", "PYTHONPATH": search_path()},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{script} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def search_path() -> str:
    """The checkout first, then what this process has been given."""
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


def measure(script: str, size: tuple[int, int], epochs: int, devices: Sequence[str]) -> list[Row]:
    """A row for each device, that of the CPU first."""
    path = str(ROOT / "tests" / "legacy" / f"{script}.py")
    nodes, hidden = size
    shared = ["--nodes", str(nodes), "--hidden", str(hidden), "--epochs", str(epochs)]
    rows: list[Row] = []
    losses: list[float] = []
    for device in devices:
        how = PLAIN if device == "cpu" else REDIRECTED
        found = train(path, [*shared, "--device", device], how)
        losses = losses or found["loss"]
        pairs = zip(found["loss"], losses, strict=True)
        seconds = found["seconds_per_epoch"]
        rows.append(
            {
                "script": script,
                "nodes": nodes,
                "hidden": hidden,
                "epochs": epochs,
                "device": device,
                "path": "dgl" if device == "cpu" else "dgl-flash run",
                "cpu_threads": torch.get_num_threads(),
                "ms_per_epoch": f"{1000 * seconds:.4g}",
                "accuracy": f"{found['accuracy']:.4f}",
                "loss_difference": f"{max(abs(a - b) / abs(b) for a, b in pairs):.2g}",
            }
        )
    for row in rows:
        ratio = float(row["ms_per_epoch"]) / float(rows[0]["ms_per_epoch"])
        row["ratio"] = f"{ratio:.3g}"
        if script in FULL_GRAPH and row["device"] != "cpu":
            row |= {"must": MUST, "met": "yes" if ratio <= MUST else "no"}
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time scripts that were written for DGL.")
    parser.add_argument("--scripts", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--epochs", type=int, default=5)
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
            size = (300, 8) if options.small else SIZES[script]
            for row in measure(script, size, options.epochs, devices):
                writer.writerow(row | environment)
                file.flush()
                print(
                    f"{script} on {row['device']}: {row['ms_per_epoch']} ms an epoch "
                    f"({row['ratio']} x CPU), accuracy {row['accuracy']}",
                    flush=True,
                )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
