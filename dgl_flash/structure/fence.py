"""Cached tensors and CUDA streams: what one stream builds, another must not read too early."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import torch
from torch import Tensor

from dgl_flash.streams import current_stream_pointer

# Bytes. What the driver takes along with the command, and what is pinned for a copy: torch keeps
# pinned memory for the next one, and all processes share what there is of it.
_MOST_STAGED = 2**16
_MOST_PINNED = 2**23


def copy_to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor without making the host wait, wherever that is safe.

    Towards a GPU, a little pageable memory is staged before the call returns, so that the source
    may die at once. Somewhat more is pinned first, as such a copy would wait for those before it. A
    source that is pinned already would be read later, when its owner may have written to it, and a
    copy to the host must be complete when read.
    """
    if device.type != "cuda" or tensor.device.type != "cpu" or tensor.is_pinned():
        return tensor.to(device)
    if _MOST_STAGED < tensor.nbytes <= _MOST_PINNED:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


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

    __slots__ = ("_event", "_ordered", "device")

    def __init__(self, device: torch.device):
        self.device = device
        self._event = torch.cuda.Event()
        self.mark()

    def mark(self) -> None:
        """Note that the current stream has just built something."""
        builder = current_stream_pointer(self.device.index)
        self._event.record(_current_stream(self.device.index, builder))
        self._ordered = {builder}

    def wait(self, tensors: Iterable[Tensor], *, are_all: bool = True) -> None:
        """Let the current stream wait for all that was built, and keep the memory until it is done.

        Parameters
        ----------
        tensors : iterable of Tensor
            Cached tensors; looked at only when the stream is one that has not waited yet.
        are_all : bool
            Whether they are all there are, so that the stream need not wait again.
        """
        reader = current_stream_pointer(self.device.index)
        if reader in self._ordered:
            return
        # A capture begins with a synchronisation, and may not refer to events before it.
        if torch.cuda.is_current_stream_capturing():
            return
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(self._event)
        for tensor in tensors:
            tensor.record_stream(stream)
        if are_all:
            self._ordered.add(reader)
