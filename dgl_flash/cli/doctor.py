"""``dgl-flash doctor``: what is installed, what runs, and what to install for more."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib import metadata

import torch

from dgl_flash import __version__
from dgl_flash.demo.optional import import_dgl
from dgl_flash.kernels.availability import why_unavailable

# Package -> (extra that brings it, what it is for). CuPy is judged by the GPU instead.
OPTIONAL = {
    "dgl": ("dgl", "train on a DGLGraph and compare with dgl.nn"),
    "scikit-learn": ("demo", "the digits data set of the demo"),
    "rich": ("demo", "progress and table of the demo"),
}


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found.

    Attributes
    ----------
    facts : tuple of (str, str)
        Name and finding.
    remedies : tuple of str
        What to do about what is missing.
    healthy : bool
        False when a GPU is there and the fused kernels cannot use it.
    """

    facts: tuple[tuple[str, str], ...]
    remedies: tuple[str, ...]
    healthy: bool


def diagnose() -> Diagnosis:
    """Look at packages and devices.

    Returns
    -------
    Diagnosis
        Facts and remedies.
    """
    facts = [("dgl_flash", __version__), ("python", platform.python_version())]
    remedies = []
    for package in ("torch", "numpy", "scipy"):
        facts.append((package, _version(package) or "missing"))
    facts.append(("cupy", _cupy_version() or "not installed"))
    for package, (extra, purpose) in OPTIONAL.items():
        version = _version(package)
        facts.append((package, version or "not installed"))
        if version is None:
            remedies.append(f'{package}: pip install "dgl_flash[{extra}]" ({purpose})')
    if _version("dgl") is not None:
        dgl, reason = import_dgl()
        facts.append(("import dgl", "works" if dgl is not None else reason))

    healthy = True
    count = torch.cuda.device_count()
    for index in range(count):
        device = torch.device("cuda", index)
        missing = why_unavailable(device)
        major, minor = torch.cuda.get_device_capability(device)
        facts.append((str(device), f"{torch.cuda.get_device_name(device)}, sm_{major}{minor}"))
        facts.append(("kernels", "fused kernels run" if missing is None else "reference path"))
        if missing is not None:
            remedies.append(f"{device}: {missing}")
            healthy = False
    if count == 0:
        facts.append(("GPU", "none that torch can use; every op runs its reference on the CPU"))
        if torch.version.cuda is None:
            facts.append(("torch build", "without CUDA; a GPU needs a CUDA build of torch"))
    return Diagnosis(tuple(facts), tuple(remedies), healthy)


def run() -> int:
    """Print the diagnosis.

    Returns
    -------
    int
        1 when there is a GPU that the kernels cannot use, else 0.
    """
    diagnosis = diagnose()
    width = max(len(name) for name, _ in diagnosis.facts)
    for name, finding in diagnosis.facts:
        print(f"{name:{width}}  {finding}")
    if diagnosis.remedies:
        print("\nto get more:")
        for remedy in diagnosis.remedies:
            print(f"- {remedy}")
    return 0 if diagnosis.healthy else 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cupy_version() -> str | None:
    """Name and version of whichever of CuPy's distributions is installed."""
    names = metadata.packages_distributions().get("cupy", [])
    return f"{_version(names[0])} ({names[0]})" if names else None
