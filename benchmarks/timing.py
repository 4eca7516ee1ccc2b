"""Times of device work: the clock of ``dgl_flash.tune``, so that both see the same."""

from __future__ import annotations

from dgl_flash.kernels.timing import WARM_UP, Timer, Timing

__all__ = ["WARM_UP", "Timer", "Timing"]
