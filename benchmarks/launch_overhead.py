"""Host time: of one launch, and of each op on a graph so small that the host decides.

    python -m benchmarks.launch_overhead

Wall time over many calls that are enqueued back to back; the device is idle most of the time, so
this is what a training step on a small graph waits for.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from benchmarks import cases
from benchmarks.environment import describe
from benchmarks.graphs import load
from benchmarks.paths import RESULTS

# Microseconds: of one launch, of a forward, of a forward and backward.
MUST = {"launch": 15.0, "forward": 60.0, "both": 250.0}
WARM_UP = 20


def microseconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Mean wall time of a call, the wait for the device at the end included."""
    for _ in range(WARM_UP):
        call()
    _synchronize(device)
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    _synchronize(device)
    return 1e6 * (time.perf_counter() - start) / repeats


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def launch_call(device: torch.device) -> Callable[[], object]:
    """A launch of a kernel that has next to nothing to do: one piece of one row."""
    from dgl_flash.kernels.jit import KernelKey
    from dgl_flash.kernels.launch import get_kernel

    constants = (("H", 1), ("D", 1))
    key = KernelKey("merge.cu", "merge_sum", torch.float32, torch.int32, constants)
    index = torch.cuda.current_device() if device.index is None else device.index
    kernel = get_kernel(key, index)
    part, out = torch.zeros(1, device=device), torch.zeros(1, device=device)
    row = torch.zeros(1, dtype=torch.int32, device=device)
    pieces = torch.tensor([0, 1], dtype=torch.int32, device=device)
    return lambda: kernel((1, 1), 256, part, row, pieces, out)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Measure host time a launch and a call.")
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "launch_overhead.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    struct = load("cora", device).struct

    found: list[tuple[str, str, float]] = []
    if device.type == "cuda":
        found.append(
            ("kernel", "launch", microseconds(launch_call(device), device, options.repeats))
        )
    for op, (case, *_) in cases.STANDARD.items():
        call = case.prepare(struct, torch.float32)
        for which in ("forward", "both"):
            taken = microseconds(getattr(call, which), device, options.repeats)
            found.append((f"{op} {case.shape}", which, taken))

    environment = describe(device, options.commit)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["what", "pass", "microseconds", "must", "met", *environment])
        for what, which, taken in found:
            met = "yes" if taken <= MUST[which] else "no"
            writer.writerow([what, which, f"{taken:.1f}", MUST[which], met, *environment.values()])
            print(f"{what:18} {which:8} {taken:8.1f} µs (must {MUST[which]:.0f}: {met})")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
