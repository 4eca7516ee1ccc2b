"""Puts ``dgl_flash.nn`` in the place of ``dgl.nn``, now or when DGL is imported.

This module must stay light: Python processes that a script starts import it at their start,
whether or not they use DGL.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import dgl_flash

Then = Callable[[dict[str, ModuleType]], None]
_ABSENT = object()


@contextlib.contextmanager
def redirected(then: Then | None = None) -> Iterator[None]:
    """Let every import of ``dgl.nn`` give the layers of dgl_flash inside the block.

    Where DGL is not imported yet, this happens right after its first import. DGL's own modules
    keep what they have imported from ``dgl.nn``.

    Parameters
    ----------
    then : callable, optional
        Called once the modules are in place, with all of them by name.
    """
    redirection = _Redirection(then)
    redirection.install()
    try:
        yield
    finally:
        redirection.remove()


def install_for_good() -> None:
    """Redirect for the rest of this process, and let graphs move to CUDA."""

    def ready(modules: dict[str, ModuleType]) -> None:
        enable_cuda()

    _Redirection(ready).install()


def enable_cuda() -> contextlib.AbstractContextManager[object]:
    """Let graphs move to CUDA, with versions of dgl_flash that can do that.

    Returns
    -------
    context manager
        Its end takes that back.
    """
    enable = getattr(dgl_flash, "enable_cuda", contextlib.nullcontext)
    with warnings.catch_warnings():
        # Nothing to be done is good news to the user of a script.
        warnings.filterwarnings("ignore", ".* has been built with CUDA")
        return enable()


class _Redirection(MetaPathFinder):
    """Replaces modules after the import of ``dgl``, and puts them back."""

    def __init__(self, then: Then | None) -> None:
        self._then = then
        self._undo: list[Callable[[], None]] = []

    def install(self) -> None:
        if "dgl" in sys.modules:
            self._replace()
        else:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self._undo:
            self._undo.pop()()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "dgl":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        found = (
            finder.find_spec(fullname, path, target)
            for finder in others
            if hasattr(finder, "find_spec")  # some of before Python 3.4 are still about
        )
        spec = next((spec for spec in found if spec is not None), None)
        if spec is not None and spec.loader is not None:
            self._replace_after(spec.loader)
        return spec

    def _replace_after(self, loader: Any) -> None:
        # Only this one method is changed, so that the loader stays of the kind it is.
        load = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            if self in sys.meta_path:  # else the block has ended, or all is in place
                sys.meta_path.remove(self)
                self._replace()

        loader.exec_module = exec_module

    def _replace(self) -> None:
        from dgl_flash.legacy.modules import stand_ins

        dgl = importlib.import_module("dgl")
        importlib.import_module("dgl.nn")
        modules = stand_ins()
        for name, module in modules.items():
            self._undo.append(_reset(sys.modules, name))
            sys.modules[name] = module
        self._undo.append(_reset(vars(dgl), "nn"))
        dgl.nn = modules["dgl.nn"]  # type: ignore[attr-defined]
        if self._then is not None:
            self._then(modules)


def _reset(table: dict[str, Any], key: str) -> Callable[[], None]:
    """What puts an entry back to its value of now, or takes it out again."""
    before = table.get(key, _ABSENT)

    def undo() -> None:
        if before is _ABSENT:
            table.pop(key, None)
        else:
            table[key] = before

    return undo
