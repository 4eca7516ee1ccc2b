"""Cached tensors and CUDA streams: what one stream builds, another must not read too early."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor

from dgl_flash.streams import current_stream_pointer


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor without making the host wait, wherever that is safe.

    Towards a GPU, pageable memory is staged before the call returns, so that the source may die at
    once. A pinned source would be read later, and a copy to the host must be complete when read.
    """
    return tensor.to(device, non_blocking=device.type == "cuda" and not tensor.is_pinned())


@functools.lru_cache(64)  # torch takes its streams from a pool
def _current_stream(device_index: int, pointer: int) -> torch.cuda.Stream:
    """The current stream as an object, which takes longer to build than an event to record."""
    return torch.cuda.current_stream(device_index)


class Fence:
    """Orders the streams that share the cached tensors of a structure.

    A user orders the streams of the tensors that he sees; those of a structure are built in
    whichever stream first needs them, and are ordered here.

    Parameters
    ----------
    device : torch.device
        The CUDA device of the tensors.
    """

    __slots__ = ("_built_on", "_event", "device")

    def __init__(self, device: torch.device):
        self.device = device
        self._event = torch.cuda.Event()
        self.mark()

    def mark(self) -> None:
        """Note that the current stream has just built something."""
        self._built_on = current_stream_pointer(self.device.index)
        self._event.record(_current_stream(self.device.index, self._built_on))

    def wait(self, tensors: Iterable[Tensor]) -> None:
        """Let the current stream wait for all that was built, and keep the memory until it is done.

        Parameters
        ----------
        tensors : iterable of Tensor
            All cached tensors; looked at only when the stream is another one.
        """
        if current_stream_pointer(self.device.index) == self._built_on:
            return
        # A capture begins with a synchronisation, and may not refer to events before it.
        if torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(self._event)
        for tensor in tensors:
            tensor.record_stream(stream)
