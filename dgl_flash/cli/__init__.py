"""The ``dgl-flash`` command: run old scripts, migrate and check them, see what is missing."""

from __future__ import annotations

from .parser import main

__all__ = ["main"]
