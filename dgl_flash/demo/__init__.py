"""A real training run with ``dgl.nn`` and with ``dgl_flash.nn``, side by side.

``run_demo`` is what ``dgl-flash demo`` and the quick-start notebook call.
"""

from __future__ import annotations

from .data import DATASETS, NodeData, load_data
from .models import GCN, GATv2
from .optional import DemoError, MissingDependency
from .result import QUANTITIES, DemoResult, Run
from .run import MODELS, run_demo

__all__ = [
    "DATASETS",
    "GCN",
    "MODELS",
    "QUANTITIES",
    "DemoError",
    "DemoResult",
    "GATv2",
    "MissingDependency",
    "NodeData",
    "Run",
    "load_data",
    "run_demo",
]
