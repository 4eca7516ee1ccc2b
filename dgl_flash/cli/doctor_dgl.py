"""What the doctor looks at in DGL: version, import, CUDA."""

from __future__ import annotations

import importlib.util
import mmap
import re
import sys
from pathlib import Path

import torch

from dgl_flash.checking.arguments import dgl_has_cuda
from dgl_flash.compat.graphbolt import GraphboltStandIn
from dgl_flash.demo.optional import import_dgl

from .doctor_findings import Findings, version_of

SUPPORTED = ("2.1.0", "1.1.3")


def look(findings: Findings) -> None:
    """Note which DGL is there and whether it works beside this torch.

    Parameters
    ----------
    findings : Findings
        Gains facts, problems and advice.
    """
    version = version_of("dgl")
    findings.fact("dgl", version or "not installed")
    if version is None:
        findings.advise(
            "DGL is not installed: train on a DGLGraph and compare with dgl.nn",
            'pip install "dgl_flash[dgl]"',
        )
        return
    release = version.partition("+")[0]
    findings.fact("dgl build", build())
    early = imported_early()
    dgl, reason = import_dgl()
    findings.fact("import dgl", reason or "works")
    pinned = f'"dgl=={SUPPORTED[0]}"'
    if dgl is None:
        findings.problem(
            reason,
            f'pip install --force-reinstall --no-deps {pinned} && pip install "dgl_flash[dgl]"',
        )
    elif release not in SUPPORTED:
        findings.advise(
            f"DGL {release} is not tested, {' and '.join(SUPPORTED)} are", f"pip install {pinned}"
        )
    if early:
        findings.advise(
            "dgl was imported before dgl_flash, which fails where DGL does not know this torch",
            "write `import dgl_flash` above the first `import dgl`",
        )
    if dgl is not None:
        if isinstance(sys.modules.get("dgl.graphbolt"), GraphboltStandIn):
            findings.fact("dgl.graphbolt", "a stand-in: import dgl_flash before dgl")
        if torch.cuda.device_count() > 0:
            without = "no; dgl_flash.enable_cuda() lets graphs go there"
            findings.fact("dgl on CUDA", "yes" if dgl_has_cuda() else without)


def build() -> str:
    """For which CUDA the installed DGL is built, by what its library links."""
    spec = importlib.util.find_spec("dgl")
    for folder in (spec and spec.submodule_search_locations) or ():
        library = Path(folder) / "libdgl.so"
        if library.is_file():
            with (
                library.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held,
            ):
                linked = re.search(rb"libcu(?:blas|sparse|dart)\.so\.(\d+)", held)
                return f"for CUDA {linked.group(1).decode()}" if linked else "for the CPU alone"
    return "unknown: it has no libdgl.so"


def imported_early() -> bool:
    """Whether this process imported DGL before dgl_flash."""
    order = list(sys.modules)
    return "dgl" in order and order.index("dgl") < order.index("dgl_flash")
