"""Turn the layers of a finished model into their twins of the other library, in place.

The arguments of constructors are not kept by layers, so no twin can be built from them. What can be
had is the layer's own attributes under the class of the other library: the two libraries give their
attributes the same names and values. Where they do not, the conversion refuses.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from .arguments import copied
from .errors import CheckError

DGL, OURS = "dgl.nn", "dgl_flash.nn"
# The same attributes, read in another sense: a reducer is a name here and a function there, and
# TWIRLS keeps what it has computed of a graph.
_REFUSED = {"GMMConv", "NNConv", "TWIRLSConv", "TWIRLSUnfoldingAndAttention"}
# Parts of DGL's layers that need no twin.
_KEPT = {"Identity"}
_REMEDY = (
    "pass a function that builds the model from a namespace instead, for example "
    "`lambda nn: Model(nn, 32, 16)`, which takes its layers from `nn`"
)


def library_of(cls: type) -> str | None:
    """Which library defines a class: ``"dgl.nn"``, ``"dgl_flash.nn"``, or neither."""
    for library in (OURS, DGL):
        if cls.__module__ == library or cls.__module__.startswith(library + "."):
            return library
    return None


def is_layer(module: nn.Module) -> bool:
    """Whether a module is a layer of either library, or derives from one."""
    return any(library_of(cls) is not None for cls in type(module).__mro__)


def converted(model: nn.Module, library: str) -> nn.Module:
    """Copy a model and give its layers the classes of one library.

    Parameters
    ----------
    model : nn.Module
        Has layers of ``dgl.nn``, of ``dgl_flash.nn`` or of both; stays as it is.
    library : {"dgl.nn", "dgl_flash.nn"}
        Where all layers of the copy come from.

    Returns
    -------
    nn.Module
        With the same weights.

    Raises
    ------
    CheckError
        If the model cannot be copied, or a layer has no twin with the same attributes.
    """
    try:
        twin = copied(model)
    except Exception as error:  # whatever the model's attributes raise
        raise CheckError(
            f"{type(model).__name__} cannot be copied ({type(error).__name__}: {error}); {_REMEDY}"
        ) from error
    for name, module in twin.named_modules():
        home = next(filter(None, map(library_of, type(module).__mro__)), None)
        if home not in (None, library) and type(module).__name__ not in _KEPT:
            _switch(module, library, where=f"{name or 'the model'} ({type(module).__name__})")
    return twin


def _switch(module: nn.Module, library: str, where: str) -> None:
    cls: type = type(module)
    if library_of(cls) is None:
        base = next(base for base in cls.__mro__ if library_of(base) is not None)
        raise CheckError(
            f"{where} derives from {base.__module__}.{base.__name__} and cannot be given another "
            f"base class; {_REMEDY}"
        )
    if cls.__name__ in _REFUSED:
        raise CheckError(f"{where} stores its settings differently in {library}; {_REMEDY}")
    twin_class = _twin_class(cls, library)
    if twin_class is None:
        raise CheckError(f"{where} has no twin in {library}; {_REMEDY}")
    changed = _own_functions(module, library, where)
    # What both classes read and the layer has not depends on an option that is off.
    unknown = _attributes_read(twin_class) - _attributes_read(cls)
    missing = sorted(unknown - _names(module) - set(dir(twin_class)))
    if missing:
        raise CheckError(f"{where} lacks what {library} reads: {', '.join(missing)}; {_REMEDY}")
    # Everything that refers to the module, a dict of a HeteroGraphConv for one, goes on to do so.
    module.__class__ = twin_class
    vars(module).update(changed)


def _twin_class(cls: type, library: str) -> type | None:
    """Find the class by its public name, or, for a part of a layer, in the module it lies in."""
    found = getattr(importlib.import_module(library), cls.__name__, None)
    if inspect.isclass(found):
        return found
    roots = {DGL: "dgl.nn.pytorch", OURS: "dgl_flash.nn"}
    old = roots[OURS if library == DGL else DGL]
    if not cls.__module__.startswith(old + "."):
        return None
    path = roots[library] + cls.__module__.removeprefix(old)
    while path.startswith(roots[library]):  # a module of the one may be a package of the other
        with contextlib.suppress(ImportError):
            found = getattr(importlib.import_module(path), cls.__name__, None)
            if inspect.isclass(found):
                return found
        path = path.rpartition(".")[0]
    return None


def _own_functions(module: nn.Module, library: str, where: str) -> dict[str, Any]:
    """Attributes that are code of the old library, with what the other library has instead."""
    replaced = {}
    for key, value in vars(module).items():
        if isinstance(value, nn.Module) or not callable(value) or not _is_of_library(value):
            continue
        if key != "agg_fn":
            raise CheckError(f"{where}.{key} is code of the library itself; {_REMEDY}")
        replaced[key] = _aggregator(value, library, where)
    return replaced


def _is_of_library(value: Any) -> bool:
    code = value.func if isinstance(value, functools.partial) else value
    if not inspect.isroutine(code) and not inspect.isclass(code):
        code = type(code)
    return (getattr(code, "__module__", None) or "").split(".")[0] in ("dgl", "dgl_flash")


def _aggregator(value: Any, library: str, where: str) -> Callable[..., Any]:
    """The aggregator of a HeteroGraphConv in the other library, by its name."""
    homes = {DGL: "dgl.nn.pytorch.hetero", OURS: "dgl_flash.nn.across"}
    makers = {key: importlib.import_module(home).get_aggregate_fn for key, home in homes.items()}
    old = makers[OURS if library == DGL else DGL]
    for name in ("sum", "max", "min", "mean", "stack"):
        if _identity(old(name)) == _identity(value):
            aggregator: Callable[..., Any] = makers[library](name)
            return aggregator
    raise CheckError(f"{where}.agg_fn is not known in {library}; {_REMEDY}")


def _identity(function: Any) -> tuple[Any, ...]:
    """What tells two aggregators apart: each call of a maker gives a new object."""
    if isinstance(function, functools.partial):
        return function.func, tuple(function.keywords.items())
    if inspect.isroutine(function):
        return function.__module__, function.__qualname__
    return type(function), tuple(vars(function).items())


def _names(module: nn.Module) -> set[str]:
    held = (module._parameters, module._buffers, module._modules)
    return set(vars(module)).union(*held)


@functools.cache
def _attributes_read(cls: type) -> frozenset[str]:
    """Names that the methods of a layer read from ``self`` and do not set before."""
    read: set[str] = set()
    written: set[str] = set()
    for base in cls.__mro__:
        if library_of(base) is None:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        for method in ast.walk(tree):
            if isinstance(method, ast.FunctionDef) and method.name != "__init__":
                for attribute in _attributes_of_self(method):
                    stored = isinstance(attribute.ctx, ast.Store)
                    (written if stored else read).add(attribute.attr)
    return frozenset(read - written)


def _attributes_of_self(method: ast.FunctionDef) -> Iterator[ast.Attribute]:
    for node in ast.walk(method):
        if (
            isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        ):
            yield node
