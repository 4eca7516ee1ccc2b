"""DGL graphs on CUDA with a DGL that was built without it: ``enable_cuda``.

Start reading with :mod:`~dgl_flash.device_graphs.arrays`.
"""

from __future__ import annotations

from dgl_flash.device_graphs.switch import CudaEnabled, disable_cuda, enable_cuda

__all__ = ["CudaEnabled", "disable_cuda", "enable_cuda"]
