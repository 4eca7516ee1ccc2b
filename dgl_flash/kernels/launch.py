"""Launch compiled kernels on torch's current stream with arguments of the declared types."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_flash.kernels.jit import KernelKey, compile_function
from dgl_flash.streams import current_stream_pointer

Argument = Tensor | int | float | None


def _pointer(value: Argument) -> int:
    return 0 if value is None else value.data_ptr()  # type: ignore[union-attr]


# A bare Python number would travel as int64 or double, whatever the kernel declares.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "pointer": _pointer,
    "int64_t": np.int64,
    "long long": np.int64,
    "int": np.int32,
    "float": np.float32,
    "double": np.float64,
}


class _Stream(NamedTuple):
    """All that a launch wants of a stream object; CuPy's own class for this is deprecated."""

    ptr: int


class Kernel:
    """One compiled entry point on one device.

    Parameters
    ----------
    key : KernelKey
        What to compile.
    device_index : int
        CUDA device to load it on.
    """

    __slots__ = ("_convert", "_device_index", "_function", "key")

    def __init__(self, key: KernelKey, device_index: int) -> None:
        self.key = key
        self._device_index = device_index
        self._convert = tuple(_CONVERT[kind] for kind in key.parameters())
        with torch.cuda.device(device_index):
            self._function = compile_function(key)

    def __call__(self, grid: tuple[int, ...], threads: int, *arguments: Argument) -> None:
        """Launch on torch's current stream of the kernel's device; nothing is synchronised.

        Parameters
        ----------
        grid : tuple of int
            Blocks along x and y. An empty grid launches nothing.
        threads : int
            Threads a block.
        *arguments : torch.Tensor, int, float or None
            In the order of the kernel's declaration; None is a null pointer.
        """
        if 0 in grid:
            return  # CuPy would silently launch one block
        typed = tuple(
            [convert(value) for convert, value in zip(self._convert, arguments, strict=True)]
        )
        if torch.cuda.current_device() == self._device_index:
            self._launch(grid, threads, typed)
        else:
            with torch.cuda.device(self._device_index):
                self._launch(grid, threads, typed)

    def _launch(self, grid: tuple[int, ...], threads: int, typed: tuple[Any, ...]) -> None:
        stream = _Stream(current_stream_pointer(self._device_index))
        self._function(grid, (threads,), typed, stream=stream)


@functools.cache
def get_kernel(key: KernelKey, device_index: int) -> Kernel:
    """Compile a kernel on first use and keep it for the process.

    Parameters
    ----------
    key : KernelKey
        Entry point with its compile-time names.
    device_index : int
        CUDA device.

    Returns
    -------
    Kernel
        Ready to launch.
    """
    return Kernel(key, device_index)
