"""The stamp: which device code a full GPU run was made on, and what it found."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
STAMP = ROOT / "tests" / "gpu_stamp.json"
COVERED = ("cuda/**/*.cu", "cuda/**/*.cuh", "dgl_flash/kernels/*.py", "dgl_flash/ops/*.py")


def device_code_hash() -> str:
    """Hash of the kernels and of the code that launches them."""
    digest = hashlib.sha256()
    for path in sorted(path for pattern in COVERED for path in ROOT.glob(pattern)):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()


def write(counts: dict[str, int]) -> str:
    """Write the stamp of a green run; say what was done."""
    if counts["failed"] or counts["error"] or not counts["passed"] or not torch.cuda.is_available():
        return f"no GPU stamp: {counts}, CUDA available: {torch.cuda.is_available()}"
    import cupy

    major, minor = torch.cuda.get_device_capability()
    stamp = {
        "gpu": torch.cuda.get_device_name(),
        "compute_capability": f"{major}.{minor}",
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cupy": cupy.__version__,
        **counts,
        "device_code_sha256": device_code_hash(),
    }
    STAMP.write_text(json.dumps(stamp, indent=2) + "\n")
    return f"wrote {STAMP.name}: {counts['passed']} passed on {stamp['gpu']}"
