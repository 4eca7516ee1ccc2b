"""A device without hardware: tensors that say they are on it, with values in the host's memory.

What converts between host and device runs here as on CUDA, and as strictly: an operation of torch
that would meet tensors of both refuses them. The device is called "meta", the only other one that
torch's autograd runs on without a driver.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

DEVICE = torch.device("meta")
NUMBER = 13  # in DGL's list of devices: none of its own
HOST = torch.device("cpu")
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
# Indices may lie on the host, as for CUDA.
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default}


class Emulated(Tensor):
    """A tensor on the device."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> Emulated:
        layout = {"strides": host.stride(), "storage_offset": host.storage_offset()}
        made = Tensor._make_wrapper_subclass(
            cls, host.shape, dtype=host.dtype, device=DEVICE, **layout
        )
        made.host = host
        return made

    def __repr__(self) -> str:
        return f"Emulated({self.host!r})"

    def tolist(self) -> Any:
        return self.host.tolist()

    def record_stream(self, stream: Any) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _OnDevice(TorchDispatchMode):
    """Makes tensors on the device where they are asked for there."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class _FromNumbers(TorchFunctionMode):
    """``torch.tensor(numbers, device=...)``, which no dispatch mode sees."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if func not in (torch.tensor, torch.as_tensor) or named.get("device") is None:
            return func(*args, **named)
        return func(*args, **{**named, "device": HOST}).to(named["device"])


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """One operation on the host, with its result where it belongs."""
    leaves, spec = tree_flatten((args, kwargs))
    there = [leaf for leaf in leaves if isinstance(leaf, Emulated)]
    asked = [leaf for leaf in leaves if isinstance(leaf, torch.device)]
    rows_here = any(
        isinstance(leaf, Tensor) and not isinstance(leaf, Emulated) and leaf.dim() > 0
        for leaf in leaves
    )
    if there and rows_here and func not in COPIES | INDEXING:
        raise RuntimeError(f"{func}: expected all tensors on one device, found meta and cpu")
    result = func(*(tree_unflatten([_on_host(leaf) for leaf in leaves], spec)[0]), **_named(kwargs))
    if func._schema.is_mutable:
        own = [leaf for leaf in there if leaf.host is result]
        return own[0] if own else result
    on_device = asked[0] == DEVICE if asked else bool(there)
    return tree_map_only(Tensor, Emulated, result) if on_device else result


def _on_host(leaf: Any) -> Any:
    if isinstance(leaf, Emulated):
        return leaf.host
    return HOST if isinstance(leaf, torch.device) else leaf


def _named(kwargs: Any) -> Any:
    leaves, spec = tree_flatten(kwargs)
    return tree_unflatten([_on_host(leaf) for leaf in leaves], spec)


@contextmanager
def emulated_device() -> Iterator[torch.device]:
    """Teach DGL and torch about the device, for a while."""
    import dgl.backend
    from dgl.ndarray import DGLContext

    with pytest.MonkeyPatch.context() as patch, _OnDevice(), _FromNumbers():
        known = {
            name: getattr(dgl.backend, name) for name in ("to_backend_ctx", "device_id", "copy_to")
        }
        autocast = torch.is_autocast_enabled

        def copy_to(data: Tensor, ctx: Any, **named: Any) -> Tensor:
            there = torch.device(ctx) == DEVICE
            return data.to(DEVICE) if there else known["copy_to"](data, ctx, **named)

        patch.setitem(DGLContext.STR2MASK, DEVICE.type, NUMBER)
        patch.setitem(DGLContext.MASK2STR, NUMBER, DEVICE.type)
        for module in (dgl.backend, importlib.import_module("dgl.backend.pytorch.tensor")):
            patch.setattr(
                module,
                "to_backend_ctx",
                lambda ctx: DEVICE if ctx.device_type == NUMBER else known["to_backend_ctx"](ctx),
            )
        patch.setattr(
            dgl.backend,
            "device_id",
            lambda ctx: 0 if torch.device(ctx) == DEVICE else known["device_id"](ctx),
        )
        patch.setattr(dgl.backend, "copy_to", copy_to)
        patch.setattr(
            torch, "is_autocast_enabled", lambda *kind: kind != (DEVICE.type,) and autocast(*kind)
        )
        patch.setattr(torch, "autocast", partial(_autocast, torch.autocast))
        yield DEVICE


def _autocast(real: Any, kind: str, *given: Any, **named: Any) -> Any:
    return nullcontext() if kind == DEVICE.type else real(kind, *given, **named)
