"""Counts what a program used of dgl_flash, and says it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from dgl_flash.ops import dispatch
from dgl_flash.ops.dispatch import Choice


class Tally:
    """What was constructed and computed; its size does not grow with the length of a run.

    Attributes
    ----------
    imported : bool
        Whether the program imported DGL.
    layers : Counter of str
        Instances of each class of dgl_flash that the program constructed.
    from_dgl : Counter of str
        The same of classes of ``dgl.nn`` that dgl_flash has no class for.
    ops : Counter of (str, str, str)
        Calls of each op, by its path, and by the kernels or the reasons against them. The backward
        of torch on CUDA runs in a thread of its own and is not counted.
    """

    def __init__(self) -> None:
        self.imported = False
        self.layers: Counter[str] = Counter()
        self.from_dgl: Counter[str] = Counter()
        self.ops: Counter[tuple[str, str, str]] = Counter()
        self._undo = contextlib.ExitStack()
        self._inside = threading.local()

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count calls of ops inside the block, and constructions after :meth:`watch`."""
        token = dispatch._listener.set(_Calls(self.ops))
        try:
            yield
        finally:
            dispatch._listener.reset(token)
            self._undo.close()

    def watch(self, modules: dict[str, ModuleType]) -> None:
        """Count constructions of the classes that the stand-ins of ``dgl.nn`` hold.

        Parameters
        ----------
        modules : dict of str to ModuleType
            The stand-ins.
        """
        self.imported = True
        values = [value for module in modules.values() for value in vars(module).values()]
        homes = ("dgl_flash.nn.", "dgl.nn.")
        classes = {
            value
            for value in values
            if inspect.isclass(value) and value.__module__.startswith(homes)
        }
        for watched in classes:
            init = self._counted(watched.__init__, classes)
            self._undo.callback(_replace_init(watched, init))

    def _counted(self, init: Callable[..., None], classes: set[type]) -> Callable[..., None]:
        @functools.wraps(init)
        def counted(layer: Any, *args: Any, **kwargs: Any) -> None:
            # A layer may construct others, and call the constructor that it inherits.
            outermost = not getattr(self._inside, "active", False)
            if outermost:
                self._count(next(kind for kind in type(layer).__mro__ if kind in classes))
            self._inside.active = True
            try:
                init(layer, *args, **kwargs)
            finally:
                self._inside.active = not outermost

        return counted

    def _count(self, kind: type) -> None:
        counter = self.layers if kind.__module__.startswith("dgl_flash.") else self.from_dgl
        counter[kind.__name__] += 1

    def __str__(self) -> str:
        if not self.imported:
            return "dgl-flash run: DGL was not imported, so nothing was replaced"
        lines = [f"dgl-flash run: {_layers(self.layers) or 'no layer'} of dgl.nn from dgl_flash"]
        if self.from_dgl:
            lines.append(f"from DGL itself: {_layers(self.from_dgl)}")
        if self.ops:
            head = ("calls", "op", "path", "kernel, or why not")
            lines += _columns([head, *((str(n), *row) for row, n in self.ops.items())])
        else:
            lines.append("no dgl_flash op was called in this process")
        return "\n".join(lines)


class _Calls(list[Choice]):
    """A listener for :mod:`dgl_flash.ops.dispatch` that counts instead of collecting."""

    def __init__(self, ops: Counter[tuple[str, str, str]]) -> None:
        super().__init__()
        self._ops = ops

    def append(self, choice: Choice) -> None:
        why = "; ".join(choice.kernels or choice.reasons)
        self._ops[choice.op, choice.path, why] += 1


def _replace_init(kind: Any, init: Callable[..., None]) -> Callable[[], None]:
    """Give a class another constructor; the result puts the old one back."""
    before = vars(kind).get("__init__")
    kind.__init__ = init

    def undo() -> None:
        if before is None:  # it is inherited
            del kind.__init__
        else:
            kind.__init__ = before

    return undo


def _layers(counter: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counter.items()))


def _columns(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return [
        f"{calls:>{widths[0]}}  {op:<{widths[1]}}  {path:<{widths[2]}}  {why}"
        for calls, op, path, why in rows
    ]
