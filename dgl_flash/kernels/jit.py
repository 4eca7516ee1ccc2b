"""From a frozen key to a compiled module: prelude, NVRTC through CuPy, disk cache."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import torch

from dgl_flash.kernels.source import load_source

# The first 16-bit flavour is a type of cuda/common/scalar.cuh.
SCALAR = {
    torch.float64: "double",
    torch.float32: "float",
    torch.float16: "half_t",
    torch.bfloat16: "bfloat16_t",
}
INDEX = {torch.int32: "int", torch.int64: "long long"}
OPTIONS = ("-std=c++17",)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Dtype of the arithmetic for storage of ``dtype``."""
    return torch.float64 if dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class KernelKey:
    """Everything that changes the machine code of one ``.cu`` file.

    Attributes
    ----------
    file : str
        Source file under ``cuda/``.
    dtype : torch.dtype
        Storage type of the features, ``scalar_t``.
    index_dtype : torch.dtype
        ``index_t``.
    constants : tuple of (str, int)
        Compile-time names of the prelude with their values.
    """

    file: str
    dtype: torch.dtype
    index_dtype: torch.dtype
    constants: tuple[tuple[str, int], ...]

    def source(self) -> str:
        """Complete text for the compiler."""
        lines = [
            "struct half_t;",
            "struct bfloat16_t;",
            f"using scalar_t = {SCALAR[self.dtype]};",
            f"using acc_t = {SCALAR[accumulator(self.dtype)]};",
            f"using index_t = {INDEX[self.index_dtype]};",
            *(f"constexpr int {name} = {int(value)};" for name, value in self.constants),
        ]
        return "\n".join(lines) + "\n" + load_source(self.file)

    def parameters(self) -> dict[str, tuple[str, ...]]:
        """Parameter types of every entry point, ``"pointer"`` or a scalar's C type."""
        aliases = {
            "acc_t": SCALAR[accumulator(self.dtype)],
            "index_t": INDEX[self.index_dtype],
        }
        return {
            name: tuple(aliases.get(kind, kind) for kind in kinds)
            for name, kinds in _signatures(self.file).items()
        }


_ENTRY = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)\s*\{'
)


@functools.cache
def _signatures(file: str) -> dict[str, tuple[str, ...]]:
    text = re.sub(r"//[^\n]*", "", load_source(file))
    found = {}
    for name, body in _ENTRY.findall(text):
        kinds = []
        for parameter in body.split(","):
            words = parameter.replace("*", " * ").split()
            kinds.append(
                "pointer" if "*" in words else words[1] if words[0] == "const" else words[0]
            )
        found[name] = tuple(kinds)
    return found


@functools.cache
def compile_module(key: KernelKey, device_index: int) -> Any:
    """Compile ``key`` for a device, or take the binary from CuPy's disk cache.

    Parameters
    ----------
    key : KernelKey
        What to compile.
    device_index : int
        CUDA device; it must be the current one.

    Returns
    -------
    cupy.RawModule
        The loaded module.
    """
    import cupy

    return cupy.RawModule(code=key.source(), options=OPTIONS, backend="nvrtc")


def compile_probe(device: torch.device) -> None:
    """Compile and load the smallest kernel on ``device``; whatever is missing raises."""
    index = torch.cuda.current_device() if device.index is None else device.index
    with torch.cuda.device(index):
        key = KernelKey("merge.cu", torch.float32, torch.int32, (("H", 1), ("D", 1)))
        compile_module(key, index).get_function("merge_sum").kernel  # noqa: B018  loads the binary
