"""Output memory: torch's allocator only, poisoned on demand so that tests see what is unwritten."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

_poisoned = False
_ALIGNMENT = 32  # elements, so that every array begins on a boundary of 128 bytes


@contextlib.contextmanager
def poisoned_outputs() -> Iterator[None]:
    """Fill every output of the block with NaN before its kernel runs."""
    global _poisoned
    before, _poisoned = _poisoned, True
    try:
        yield
    finally:
        _poisoned = before


def empty(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that a kernel will fill completely.

    Parameters
    ----------
    shape : tuple of int
        Sizes.
    dtype : torch.dtype
        A floating-point dtype.
    device : torch.device
        Device of the features.

    Returns
    -------
    torch.Tensor
        Uninitialised, or NaN inside :func:`poisoned_outputs`.
    """
    out = torch.empty(shape, dtype=dtype, device=device)
    return out.fill_(float("nan")) if _poisoned else out


def empty_bytes(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Memory of uint8 that a kernel will fill completely; 170 inside :func:`poisoned_outputs`."""
    out = torch.empty(shape, dtype=torch.uint8, device=device)
    return out.fill_(170) if _poisoned else out


class Scratch:
    """Working memory of one call: several arrays in one allocation, each given by its address.

    Keep the object until everything that uses the addresses is enqueued.

    Parameters
    ----------
    dtype : torch.dtype
        A floating-point dtype.
    device : torch.device
        Device of the features.
    *sizes : int
        Elements of each array. Where all are 0, nothing is allocated and addresses are null.
    """

    __slots__ = ("_memory", "addresses")

    def __init__(self, dtype: torch.dtype, device: torch.device, *sizes: int) -> None:
        starts, total = [], 0
        for size in sizes:
            starts.append(total)
            total += -(-size // _ALIGNMENT) * _ALIGNMENT
        if total == 0:
            self.addresses = [0] * len(sizes)
            return
        self._memory = empty((total,), dtype, device)
        first = self._memory.data_ptr()
        self.addresses = [first + start * dtype.itemsize for start in starts]
