"""Whether kernels can be compiled and launched on a device, and what to do if not."""

from __future__ import annotations

import functools

import torch

MIN_CAPABILITY = (7, 0)  # independent thread scheduling and *_sync shuffles


@functools.cache
def why_unavailable(device: torch.device) -> str | None:
    """Tell what keeps kernels from running on ``device``.

    Parameters
    ----------
    device : torch.device
        Device of the features.

    Returns
    -------
    str or None
        None when kernels run; else the reason with its remedy.
    """
    if device.type != "cuda":
        return f"device {device} is no CUDA device"
    if torch.version.cuda is None:
        return "this torch has no CUDA (a ROCm or CPU build)"
    if not torch.cuda.is_available():
        return "torch finds no usable CUDA driver or card"
    capability = torch.cuda.get_device_capability(device)
    if capability < MIN_CAPABILITY:
        return (
            f"{torch.cuda.get_device_name(device)} has compute capability "
            f"{capability[0]}.{capability[1]}, kernels need {MIN_CAPABILITY[0]}.{MIN_CAPABILITY[1]}"
        )
    extra = f"cuda{torch.version.cuda.split('.')[0]}"
    try:
        import cupy  # noqa: F401
    except (
        Exception
    ) as error:  # CuPy raises ImportError, OSError or RuntimeError by what is missing
        return f"CuPy cannot be imported ({error}); pip install 'dgl_flash[{extra}]'"
    return _try_compile(device, extra)


def _try_compile(device: torch.device, extra: str) -> str | None:
    from dgl_flash.kernels.jit import compile_probe

    try:
        compile_probe(device)
    except Exception as error:
        return (
            f"NVRTC or the driver refuses a test kernel ({type(error).__name__}: {error}); "
            f"pip install 'dgl_flash[{extra}]' brings a matching toolkit"
        )
    return None
