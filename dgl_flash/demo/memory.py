"""Peak tensor memory of one call, measured alike on the CPU and on CUDA."""

from __future__ import annotations

import gc
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

HOW = {
    "cuda": "torch.cuda.max_memory_allocated",
    "cpu": "allocations seen by torch.profiler",
}


def peak_memory(call: Callable[[], object], device: torch.device) -> int:
    """Peak of the tensor memory that ``call`` holds beside what was there before it.

    The resident size of the process would not do on the CPU: the second of two equal runs reuses
    what the first gave back to the allocator, and seems to need nothing.

    Parameters
    ----------
    call : callable
        What to measure. It runs once.
    device : torch.device
        Where it allocates.

    Returns
    -------
    int
        Bytes.
    """
    if device.type == "cuda":
        gc.collect()  # what dies during the call must not count against it
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with (
        _silent_stderr(),
        profile(
            activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True
        ) as profiler,
    ):
        call()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(trace))
        events = json.loads(trace.read_text())["traceEvents"]
    allocations = [event for event in events if event["name"] == "[memory]"]
    allocations.sort(key=lambda event: event["ts"])
    held = peak = 0
    for event in allocations:
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak


@contextmanager
def _silent_stderr() -> Iterator[None]:
    """Keep the profiler's own lines, written by C++ code, out of the user's terminal."""
    saved = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
            yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
