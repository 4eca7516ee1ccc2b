"""What a measurement was made on, for the columns of a result file."""

from __future__ import annotations

import datetime
import subprocess
from importlib import metadata

import torch

from benchmarks.paths import ROOT


def describe(device: torch.device, commit: str | None = None) -> dict[str, str]:
    """Name the card, the versions, the commit and the day.

    ``commit`` is for copies of the tree without its repository.
    """
    on_cuda = device.type == "cuda"
    driver = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"]
    return {
        "gpu": torch.cuda.get_device_name(device) if on_cuda else "none",
        "torch": torch.__version__,
        "cupy": _cupy_version(),
        "driver": _output(driver) if on_cuda else "",
        "commit": commit or _output(["git", "describe", "--always", "--dirty"]) or "unknown",
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
    }


def _cupy_version() -> str:
    names = metadata.packages_distributions().get("cupy", [])
    return metadata.version(names[0]) if names else ""


def _output(command: list[str]) -> str:
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
