"""dgl_flash: ``dgl.nn`` on IO-aware CUDA kernels."""

from __future__ import annotations

__version__ = "0.1.0"

from dgl_flash import compat as _compat

_compat.install()
