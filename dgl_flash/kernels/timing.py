"""Times of device work: events on CUDA, the host clock elsewhere; a cold cache each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

WARM_UP = 3
# Writing this much evicts any L2 cache. It also keeps the card busy (a quarter of a millisecond on
# an H200) while the host enqueues what is measured: events see device time and not launches.
FLUSH_BYTES = 2**30


@dataclass(frozen=True)
class Timing:
    """Milliseconds of the repeats."""

    median_ms: float
    p20_ms: float
    p80_ms: float


class Timer:
    """Measures calls on one device.

    Parameters
    ----------
    device : torch.device
        Where the work runs.
    repeats : int
        Measured calls, after a few that warm up.
    """

    def __init__(self, device: torch.device, repeats: int = 20) -> None:
        self.device, self.repeats = device, repeats
        size = FLUSH_BYTES if device.type == "cuda" else 2**20
        self._flush = torch.empty(size, dtype=torch.int8, device=device)

    def __call__(self, call: Callable[[], object], repeats: int | None = None) -> Timing:
        """Measure ``call``, with another number of repeats if one is given."""
        for _ in range(WARM_UP):
            call()
        measure = self._events if self.device.type == "cuda" else self._host
        times = measure(call, repeats or self.repeats)
        p20, median, p80 = np.percentile(times, [20, 50, 80]).tolist()
        return Timing(median, p20, p80)

    def _events(self, call: Callable[[], object], repeats: int) -> list[float]:
        pairs = []
        for _ in range(repeats):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize(self.device)
        return [start.elapsed_time(end) for start, end in pairs]

    def _host(self, call: Callable[[], object], repeats: int) -> list[float]:
        times = []
        for _ in range(repeats):
            self._flush.zero_()
            start = time.perf_counter()
            call()
            times.append(1e3 * (time.perf_counter() - start))
        return times
