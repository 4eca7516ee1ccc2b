"""Where a graph of DGL is said to be, if its index object lies on the host all the same.

DGL's wheel on PyPI knows the CPU only. A graph "on CUDA" is therefore an index object in the memory
of the host with a *home*, the device that its users see; :mod:`dgl_flash.device_graphs` gives it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

_HOME = "_dgl_flash_home"


class _Host(NamedTuple):
    """The host as DGL numbers devices."""

    device_type: int = 1
    device_id: int = 0


def home_of(value: Any) -> torch.device | None:
    """The home of an index object or array; None: the host, or no such thing."""
    # Not getattr(): DGL's objects ask their C part for attributes that they do not have.
    return getattr(value, "__dict__", {}).get(_HOME)


def set_home(value: Any, home: torch.device | None) -> Any:
    """Let an index object or array live on a device, or on the host again; returns it."""
    if home is None:
        vars(value).pop(_HOME, None)
    else:
        vars(value)[_HOME] = home
    return value


def on_host(index: Any) -> Any:
    """An index object that answers with tensors on the host; itself if it does so already."""
    return index if home_of(index) is None else index.copy_to(_Host())
