"""Optional packages: import them late and say what to install when they are missing."""

from __future__ import annotations

import importlib
import importlib.util
import os
from types import ModuleType


class DemoError(Exception):
    """The demo cannot run as asked; the text is meant to be read by the person who asked."""


class MissingDependency(DemoError):
    """An optional package is not installed; the text names the extra that brings it."""


def require(name: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package or say how to get it.

    Parameters
    ----------
    name : str
        Module to import, for example ``"sklearn.datasets"``.
    extra : str
        Extra of ``dgl_flash`` that installs it.
    purpose : str
        What needs the package; starts the message.

    Returns
    -------
    ModuleType
        The imported module.

    Raises
    ------
    MissingDependency
        If the package is not installed.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        top_level = name.partition(".")[0]
        raise MissingDependency(
            f"{purpose} needs the package {top_level!r}, which is not installed; "
            f'run: pip install "dgl_flash[{extra}]"'
        ) from error


def import_dgl() -> tuple[ModuleType | None, str]:
    """Import DGL where that is possible.

    Returns
    -------
    module : ModuleType or None
        ``dgl``, or None when it cannot be imported.
    reason : str
        Why not, for people; empty when DGL is there.
    """
    # Without a choice of backend DGL prints about it and writes a file into the home directory.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if importlib.util.find_spec("dgl") is None:
        return None, "DGL is not installed"
    try:
        return importlib.import_module("dgl"), ""
    except Exception as error:  # a broken DGL fails in many ways, and the demo has a plan for all
        return None, f"DGL is installed but does not import ({type(error).__name__}: {error})"
