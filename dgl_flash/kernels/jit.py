"""From a frozen key to a compiled function: prelude, NVRTC through CuPy, disk cache."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Any

import torch

from dgl_flash.kernels.source import load_entry, load_source

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
    """Everything that changes the machine code of one entry point.

    Attributes
    ----------
    file : str
        Source file under ``cuda/``.
    entry : str
        Its ``extern "C"`` function to compile.
    dtype : torch.dtype
        Storage type of the features, ``scalar_t``.
    index_dtype : torch.dtype
        ``index_t``.
    constants : tuple of (str, int)
        Compile-time names of the prelude with their values.
    """

    file: str
    entry: str
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
        return "\n".join(lines) + "\n" + load_entry(self.file, self.entry)

    def parameters(self) -> dict[str, str]:
        """Parameters of the entry point with their types, ``"pointer"`` or a scalar's C type."""
        aliases = {
            "acc_t": SCALAR[accumulator(self.dtype)],
            "index_t": INDEX[self.index_dtype],
        }
        declared = _signatures(self.file)[self.entry]
        return {name: aliases.get(kind, kind) for name, kind in declared.items()}


_ENTRY = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(([^)]*)\)\s*\{'
)


@functools.cache
def _signatures(file: str) -> dict[str, dict[str, str]]:
    text = re.sub(r"//[^\n]*", "", load_source(file))
    found: dict[str, dict[str, str]] = {}
    for entry, body in _ENTRY.findall(text):
        kinds = found[entry] = {}
        for parameter in body.split(","):
            words = parameter.replace("*", " * ").split()
            kind = "pointer" if "*" in words else words[1] if words[0] == "const" else words[0]
            kinds[words[-1]] = kind
    return found


def compile_function(key: KernelKey) -> Any:
    """Compile ``key`` for the current device, or take the binary from CuPy's disk cache.

    Parameters
    ----------
    key : KernelKey
        What to compile.

    Returns
    -------
    cupy.cuda.Function
        Loaded and ready to launch.
    """
    import cupy

    module = cupy.RawModule(code=key.source(), options=OPTIONS, backend="nvrtc")
    return module.get_function(key.entry).kernel


def compile_probe(device: torch.device) -> None:
    """Compile and load the smallest kernel on ``device``; whatever is missing raises."""
    with torch.cuda.device(device):
        constants = (("H", 1), ("D", 1))
        compile_function(KernelKey("merge.cu", "merge_sum", torch.float32, torch.int32, constants))
