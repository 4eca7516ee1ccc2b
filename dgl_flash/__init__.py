"""dgl_flash: ``dgl.nn`` on IO-aware CUDA kernels."""

from __future__ import annotations

__version__ = "0.1.0"
