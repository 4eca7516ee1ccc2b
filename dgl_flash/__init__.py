"""dgl_flash: ``dgl.nn`` on IO-aware CUDA kernels."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dgl_flash import compat as _compat

if TYPE_CHECKING:
    from dgl_flash import nn, ops
    from dgl_flash.checking import CheckResult, check
    from dgl_flash.device_graphs import disable_cuda, enable_cuda
    from dgl_flash.errors import DGLError, FallbackWarning
    from dgl_flash.explanation import Explanation, explain
    from dgl_flash.reordering import Reordering, reorder
    from dgl_flash.structure import Graph, GraphStructure, graph
    from dgl_flash.tuning import TuneResult, tune

__version__ = "0.1.0"
__all__ = [
    "CheckResult",
    "DGLError",
    "Explanation",
    "FallbackWarning",
    "Graph",
    "GraphStructure",
    "Reordering",
    "TuneResult",
    "check",
    "disable_cuda",
    "enable_cuda",
    "explain",
    "graph",
    "nn",
    "ops",
    "reorder",
    "tune",
]

# Where each public name lives. They are loaded at first use, so that the import stays quick.
_HOME = {
    "CheckResult": "checking",
    "DGLError": "errors",
    "Explanation": "explanation",
    "FallbackWarning": "errors",
    "Graph": "structure",
    "GraphStructure": "structure",
    "Reordering": "reordering",
    "TuneResult": "tuning",
    "check": "checking",
    "disable_cuda": "device_graphs",
    "enable_cuda": "device_graphs",
    "explain": "explanation",
    "graph": "structure",
    "reorder": "reordering",
    "tune": "tuning",
}
_SUBMODULES = ("nn", "ops")

_compat.install()


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"dgl_flash.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'dgl_flash' has no attribute {name!r}")
    home = importlib.import_module(f"dgl_flash.{_HOME[name]}")
    value = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
