"""Compile kernels with NVRTC on a machine without a GPU.

CuPy's public compiler asks the driver for the card first. Its private program class does not; this
is the only place that touches it.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

from dgl_flash.kernels.jit import OPTIONS, KernelKey

# What CuPy adds to every compilation.
CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of a multiprocessor."""

    registers: int
    spill_bytes: int


def compile_for(key: KernelKey, architecture: int) -> Resources:
    """Compile to machine code and read the assembler's report.

    Parameters
    ----------
    key : KernelKey
        What to compile.
    architecture : int
        Compute capability times ten, e.g. 90.
    """
    from cupy.cuda import compiler

    log = io.StringIO()
    program = compiler._NVRTCProgram(key.source(), key.file, method="cubin")
    options = (*OPTIONS, *CUPY_OPTIONS, f"--gpu-architecture=sm_{architecture}")
    code, _ = program.compile((*options, "--ptxas-options=-v"), log)
    assert code.startswith(b"\x7fELF")
    report = log.getvalue()
    # 177: a constant of the prelude that this entry point does not use.
    warnings = set(re.findall(r"warning #(\d+)", report)) - {"177"}
    assert not warnings, report
    spills = re.search(r"(\d+) bytes spill stores", report)
    registers = re.search(r"Used (\d+) registers", report)
    assert spills and registers, report
    return Resources(int(registers[1]), int(spills[1]))
