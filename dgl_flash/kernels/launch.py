"""Launch compiled kernels on torch's current stream with arguments of the declared types."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dgl_flash.kernels.jit import KernelKey, compile_function
from dgl_flash.streams import current_stream_pointer

Argument = Tensor | int | float | None  # a pointer may be given as an address
Typed = tuple[Any, ...]


def _pointer(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.data_ptr()
    return value or 0


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

    __slots__ = ("_convert", "_function", "device_index", "key")

    def __init__(self, key: KernelKey, device_index: int) -> None:
        self.key = key
        self.device_index = device_index
        self._convert = tuple(_CONVERT[kind] for kind in key.parameters().values())
        with torch.cuda.device(device_index):
            self._function = compile_function(key)

    def convert(self, arguments: Sequence[Argument], first: int = 0) -> Typed:
        """Give arguments the declared types.

        Parameters
        ----------
        arguments : sequence of torch.Tensor, int, float or None
            In the order of the kernel's declaration; None is a null pointer.
        first : int
            Where in the declaration they begin.

        Returns
        -------
        tuple
            For :meth:`launch`.
        """
        kinds = self._convert[first : first + len(arguments)]
        return tuple([convert(value) for convert, value in zip(kinds, arguments, strict=True)])

    def launch(self, grid: tuple[int, ...], threads: int, typed: Typed) -> None:
        """Launch on torch's current stream of the kernel's device; nothing is synchronised.

        Parameters
        ----------
        grid : tuple of int
            Blocks along x and y. An empty grid launches nothing.
        threads : int
            Threads a block.
        typed : tuple
            All arguments, converted.
        """
        if len(typed) != len(self._convert):
            raise TypeError(
                f"{self.key.entry}: expected {len(self._convert)} arguments, got {len(typed)}"
            )
        if 0 in grid:
            return  # CuPy would silently launch one block
        if torch.cuda.current_device() == self.device_index:
            self._launch(grid, threads, typed)
        else:
            with torch.cuda.device(self.device_index):
                self._launch(grid, threads, typed)

    def __call__(self, grid: tuple[int, ...], threads: int, *arguments: Argument) -> None:
        """Convert all arguments and launch."""
        self.launch(grid, threads, self.convert(arguments))

    def _launch(self, grid: tuple[int, ...], threads: int, typed: Typed) -> None:
        stream = _Stream(current_stream_pointer(self.device_index))
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
