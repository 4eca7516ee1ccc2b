"""Output memory: torch's allocator only, poisoned on demand so that tests see what is unwritten."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

_poisoned = False


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
