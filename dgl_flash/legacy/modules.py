"""The modules that stand in for those of ``dgl.nn``."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_LONG = "dgl.nn.pytorch."
_SHORT = "dgl.nn."


def stand_ins() -> dict[str, ModuleType]:
    """Build a stand-in for every module of ``dgl.nn`` that is loaded and has a twin here.

    A stand-in has the names of DGL's module. Those that dgl_flash has too lead to dgl_flash; the
    rest (helpers such as ``Identity``, and ``NodeEmbedding``) stay DGL's, because a script may
    import any name that it found there.

    Returns
    -------
    dict of str to ModuleType
        By name in ``sys.modules``. DGL makes ``dgl.nn.conv`` and the like importable beside
        ``dgl.nn.pytorch.conv``; those names are in it as well.
    """
    pairs = {}
    for name in _loaded():
        twin = _twin(name)
        if twin is not None:
            pairs[name] = (sys.modules[name], twin)
    made = {name: ModuleType(name, twin.__doc__) for name, (_, twin) in pairs.items()}
    swap = {id(theirs): made[name] for name, (theirs, _) in pairs.items()}
    for name, (theirs, twin) in pairs.items():
        _fill(made[name], theirs, twin, swap)
    for name in list(made):
        if name.startswith(_LONG):
            made.setdefault(_SHORT + name.removeprefix(_LONG), made[name])
    return made


def _loaded() -> list[str]:
    return [name for name in sys.modules if name == "dgl.nn" or name.startswith(_SHORT)]


def _twin(name: str) -> ModuleType | None:
    """The module of dgl_flash with the same path; a newer DGL may have some that we lack."""
    try:
        return importlib.import_module("dgl_flash" + name.removeprefix("dgl"))
    except ImportError as error:
        if (error.name or "").startswith("dgl_flash.nn."):
            return None
        raise


def _fill(
    made: ModuleType, theirs: ModuleType, twin: ModuleType, swap: dict[int, ModuleType]
) -> None:
    """Copy their names, ours where both have one; sub-modules lead to stand-ins."""
    own_name = made.__name__  # dgl.nn gives itself the name of dgl.nn.pytorch
    for key, value in vars(theirs).items():
        if isinstance(value, ModuleType):
            value = swap.get(id(value), value)
        elif not key.startswith("_"):
            value = getattr(twin, key, value)
        setattr(made, key, value)
    made.__name__ = own_name
