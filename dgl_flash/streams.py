"""The current CUDA stream as a number, cheaply: it is asked for several times in every op."""

from __future__ import annotations

from collections.abc import Callable

import torch


def _from_public_api(device_index: int) -> int:
    return torch.cuda.current_stream(device_index).cuda_stream


# What torch's own compiler calls before a launch; it builds no stream object, which takes longer
# than the launch itself.
current_stream_pointer: Callable[[int], int] = getattr(
    torch._C, "_cuda_getCurrentRawStream", _from_public_api
)
