"""Time reductions and softmax over the nodes of each graph of a batch, and write a CSV.

    python -m benchmarks.readout --out benchmarks/results/readout_h200.csv

``ratio`` is the time over that of reading the features once: the fastest of the reductions by
torch that read all of them and write next to nothing (see READS), found anew in the same process
for each batch, width and dtype; ``read`` says which. A backward has to write as much as the forward
reads, and a softmax writes that in its forward too. ``waits`` tells whether the host waits for the
device.
"""

from __future__ import annotations

import argparse
import csv
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import DTYPES, Call
from benchmarks.environment import describe
from benchmarks.graphs import ATOMS, MOLECULES
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer
from dgl_flash import ops
from dgl_flash.demo.memory import peak_memory
from dgl_flash.ops import dispatch

COLUMNS = (
    *("case", "graphs", "nodes", "width", "dtype", "op", "lengths_on", "pass", "path"),
    *("median_ms", "p20_ms", "p80_ms", "read", "read_ms", "ratio", "must", "met"),
    *("waits", "peak_mb", "gpu", "torch", "cupy", "driver", "commit", "date"),
)
PASSES = ("forward", "both")
Row = dict[str, Any]

READS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum of all": torch.sum,
    "sum over rows": partial(torch.sum, dim=0),
    "maximum of all": torch.amax,
}
REDUCERS = ("sum", "mean", "max", "min")
OPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    **{name: partial(ops.segment_reduce, reducer=name) for name in REDUCERS},
    "softmax": ops.segment_softmax,
}
MUST = 1.5  # of the forward of the reductions of molecules


@dataclass(frozen=True)
class Case:
    """A batch of graphs: how many of which number of nodes, and the widths of the features."""

    name: str
    runs: tuple[tuple[int, int], ...]
    widths: tuple[int, ...]

    def small(self) -> Case:
        """A thousandth of the graphs, or of the one large graph, to try the script."""
        runs = ((max(count // 1000, 1), n if count > 1 else n // 1000) for count, n in self.runs)
        return Case(self.name, tuple(runs), self.widths)

    def lengths(self) -> Tensor:
        """Nodes of each graph, (S,), on the CPU."""
        return torch.cat([torch.full((count,), nodes) for count, nodes in self.runs])


CASES = {
    case.name: case
    for case in (
        Case("molecules", ((MOLECULES, ATOMS),), (64, 256)),
        Case("many", ((100_000, 20),), (128,)),
        Case("one", ((1, 10_000_000),), (128,)),
        Case("one among many", ((1, 5_000_000), (250_000, 20)), (128,)),
    )
}


def fastest_read(feat: Tensor, timer: Timer) -> tuple[str, float]:
    """Name the fastest of READS, and its milliseconds."""
    taken = {name: timer(partial(read, feat)).median_ms for name, read in READS.items()}
    name = min(taken, key=taken.__getitem__)
    return name, taken[name]


def measure(case: Case, width: int, dtype: str, timer: Timer) -> Iterator[Row]:
    """Yield a row for each op, place of the lengths and pass."""
    device = timer.device
    lengths = case.lengths()
    generator = torch.Generator(device).manual_seed(0)
    size = int(lengths.sum()), width
    feat = torch.randn(size, device=device, generator=generator).to(DTYPES[dtype])
    read, read_ms = fastest_read(feat, timer)
    feat.requires_grad_()
    places = dict.fromkeys((torch.device("cpu"), torch.device(device.type)))
    for op in OPS:
        for place in places:
            try:
                yield from (
                    {
                        "case": case.name,
                        "graphs": lengths.numel(),
                        "nodes": feat.shape[0],
                        "width": width,
                        "dtype": dtype,
                        "op": op,
                        "lengths_on": place.type,
                        "read": read,
                        **judged(row, read_ms, _is_bound(case, op, row["pass"])),
                    }
                    for row in _measure_passes(OPS[op], lengths.to(place), feat, timer)
                )
            except torch.OutOfMemoryError:
                print(f"out of memory: {op} of {case.name} W={width} {dtype}")


def _is_bound(case: Case, op: str, which: str) -> bool:
    return case.name == "molecules" and op in REDUCERS and which == "forward"


def judged(row: Row, read_ms: float, is_bound: bool) -> Row:
    """Add what reading takes, the ratio to it, and whether that is what it must be."""
    ratio = row["median_ms"] / read_ms
    row = {**row, "read_ms": read_ms, "ratio": ratio, "must": "", "met": ""}
    if is_bound:
        row |= {"must": MUST, "met": "yes" if ratio <= MUST else "no"}
    return {
        name: f"{value:.5g}" if isinstance(value, float) else value for name, value in row.items()
    }


def _measure_passes(
    op: Callable[[Tensor, Tensor], Tensor], lengths: Tensor, feat: Tensor, timer: Timer
) -> Iterator[Row]:
    with dispatch.record() as choices:
        call = Call(lambda: op(lengths, feat), (feat,))
    for which in PASSES:
        run = getattr(call, which)
        timing = timer(run)
        yield {
            "pass": which,
            "path": choices[0].path if choices else "",
            "median_ms": timing.median_ms,
            "p20_ms": timing.p20_ms,
            "p80_ms": timing.p80_ms,
            "waits": _waits(run, timer.device),
            "peak_mb": peak_memory(run, timer.device) / 2**20,
        }


def _waits(run: Callable[[], object], device: torch.device) -> str:
    """Whether a call makes the host wait for the device; empty where they are one."""
    if device.type != "cuda":
        return ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")
    try:
        run()
    except torch.OutOfMemoryError:
        raise
    except RuntimeError:
        return "yes"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return "no"


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time reductions over the nodes of each graph.")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="a thousandth of the nodes")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "readout.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    timer = Timer(device, options.repeats)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in options.cases:
            case = CASES[name].small() if options.small else CASES[name]
            for width in case.widths:
                for dtype in options.dtypes:
                    for row in measure(case, width, dtype, timer):
                        writer.writerow(row | environment)
                        file.flush()
                        print(
                            f"{name} W={width} {dtype} {row['op']} {row['pass']}, lengths on "
                            f"{row['lengths_on']}: {row['median_ms']} ms, {row['ratio']} x read"
                            + (f" (must {MUST}: {row['met']})" if row["met"] else "")
                        )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
