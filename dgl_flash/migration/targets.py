"""Which import paths and names of ``dgl.nn`` there are in ``dgl_flash.nn``."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from dgl_flash.nn.missing import DGL_MODULES, DGL_NAMES, LAZY

OLD = "dgl.nn"
NEW = "dgl_flash.nn"
_FRAMEWORKS = ("mxnet", "tensorflow")
_WITH_PREFIX = {f"pytorch.{module}" for module in DGL_MODULES}
_PATHS = frozenset({"", "pytorch", "functional"} | DGL_MODULES | _WITH_PREFIX)


def is_module(dotted: str) -> bool:
    """Tell whether a module of ``dgl.nn`` has its counterpart.

    Parameters
    ----------
    dotted : str
        Path that starts with ``dgl.nn``.

    Returns
    -------
    bool
        True for a module of ``dgl.nn`` that ``dgl_flash.nn`` has too.
    """
    return _counterpart(dotted) is not None


def why_missing(dotted: str) -> str | None:
    """Look up a path of attributes.

    Parameters
    ----------
    dotted : str
        Path that starts with ``dgl.nn``; what follows a class or function is not looked at.

    Returns
    -------
    str or None
        None when the same path leads to the same thing below ``dgl_flash.nn``; else why not.
    """
    module, rest = OLD, dotted.removeprefix(OLD).lstrip(".").split(".")
    while rest and rest[0]:
        name = rest.pop(0)
        if is_module(f"{module}.{name}"):
            module = f"{module}.{name}"
        elif module == OLD and name in _FRAMEWORKS:
            return f"{OLD}.{name} is for another framework, dgl_flash is for PyTorch"
        elif has_name(module, name):
            return None
        else:
            return f"{module}.{name} is not in {new_path(module)}"
    return None


def has_name(module: str, name: str) -> bool:
    """Tell whether the counterpart of a module has a class, function or value.

    Parameters
    ----------
    module : str
        Path that starts with ``dgl.nn``.
    name : str
        Name in that module. Private names, and packages that a module happens to import, do not
        count: they are not what DGL documents.

    Returns
    -------
    bool
        True if the name can be taken from ``dgl_flash.nn`` instead.
    """
    there = _counterpart(module)
    if there is None:
        return False
    if name.startswith("_"):
        return name.startswith("__") and hasattr(there, name)
    if name in LAZY:  # asking for it would import DGL
        return module in (OLD, f"{OLD}.pytorch") or module.endswith(".sparse_emb")
    value = getattr(there, name, None)
    if value is None or isinstance(value, ModuleType):
        return False
    ours = str(getattr(value, "__module__", "")).startswith("dgl_flash.")
    return ours or name in DGL_NAMES or name in getattr(there, "__all__", ())


def home(module: str, name: str) -> str | None:
    """Find the module that ``from module import name`` becomes.

    Parameters
    ----------
    module : str
        Path that starts with ``dgl.nn``, which need not exist.
    name : str
        Imported name.

    Returns
    -------
    str or None
        Path below ``dgl_flash.nn``: the same one, or for a public name the deepest above it that
        has the name. None if there is none.
    """
    if (module, name) == ("dgl", "nn"):
        return "dgl_flash"
    if is_module(module) and why_missing(f"{module}.{name}") is None:
        return new_path(module)
    above = module.rpartition(".")[0]
    while name in DGL_NAMES and above.startswith(OLD) and not _other_framework(module):
        if has_name(above, name):
            return new_path(above)
        above = above.rpartition(".")[0]
    return None


def star_names(module: str) -> frozenset[str]:
    """List what a star import of the counterpart brings.

    Parameters
    ----------
    module : str
        Path that starts with ``dgl.nn`` and has a counterpart.

    Returns
    -------
    frozenset of str
        Names.
    """
    there = importlib.import_module(new_path(module))
    public = (name for name in vars(there) if not name.startswith("_"))
    return frozenset(getattr(there, "__all__", public))


def new_path(dotted: str) -> str:
    """Put ``dgl_flash`` in place of ``dgl``.

    Parameters
    ----------
    dotted : str
        Path that starts with ``dgl``.

    Returns
    -------
    str
        Path that starts with ``dgl_flash``.
    """
    return f"dgl_flash{dotted.removeprefix('dgl')}"


def _other_framework(module: str) -> bool:
    return module.removeprefix(f"{OLD}.").split(".")[0] in _FRAMEWORKS


@cache
def _counterpart(dotted: str) -> ModuleType | None:
    inside = dotted == OLD or dotted.startswith(f"{OLD}.")
    if not inside or dotted.removeprefix(OLD).lstrip(".") not in _PATHS:
        return None
    try:
        return importlib.import_module(new_path(dotted))
    except ModuleNotFoundError:
        return None
