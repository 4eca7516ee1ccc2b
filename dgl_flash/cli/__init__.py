"""The ``dgl-flash`` command: ``demo`` trains a model, ``doctor`` says what is missing."""

from __future__ import annotations

from .parser import main

__all__ = ["main"]
