"""What the doctor looks at on the disk: compiled kernels, and what was tuned."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dgl_flash.kernels import tuned

from .doctor_findings import Findings


def look(findings: Findings, compiles: bool) -> None:
    """Note where the two caches lie and whether they can be written.

    Parameters
    ----------
    findings : Findings
        Gains facts, problems and advice.
    compiles : bool
        Whether CuPy is there to fill the first.
    """
    kernels = kernel_cache()
    findings.fact("kernel cache", _describe(kernels))
    if compiles and not writable(kernels):
        findings.problem(
            f"CuPy cannot write compiled kernels to {kernels}",
            'export CUPY_CACHE_DIR="$(mktemp -d)"   # better: a folder of yours that stays',
        )
    own = tuned.file().parent
    findings.fact("tuning cache", _describe(own))
    if not writable(own):
        findings.advise(
            f"what dgl_flash.tune finds cannot be kept in {own}",
            'export DGL_FLASH_CACHE_DIR="$(mktemp -d)"   # better: a folder of yours that stays',
        )


def kernel_cache() -> Path:
    """Where CuPy keeps compiled kernels."""
    return Path(os.environ.get("CUPY_CACHE_DIR") or Path.home() / ".cupy" / "kernel_cache")


def writable(folder: Path) -> bool:
    """Whether files can be made in a folder, or the folder itself."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        # Permissions tell little to root, and on file systems that refuse for other reasons.
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def _describe(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files) / 2**20
    state = "writable" if writable(folder) else "NOT WRITABLE"
    return f"{folder}: {len(files)} files, {size:.1f} MiB, {state}"
