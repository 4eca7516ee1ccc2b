"""The same model twice: with the layers of ``dgl.nn`` and with those of ``dgl_flash.nn``."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dgl_flash.demo.optional import import_dgl

from .convert import DGL, OURS, converted, is_layer, library_of
from .errors import CheckError

Factory = Callable[..., nn.Module]


@dataclass(frozen=True)
class Pair:
    """One model in both libraries.

    Attributes
    ----------
    theirs, ours : nn.Module
        With the layers of ``dgl.nn`` and of ``dgl_flash.nn``, and the same weights.
    state : tuple of str
        What differs between the keys, shapes and dtypes of the two ``state_dict``.
    """

    theirs: nn.Module
    ours: nn.Module
    state: tuple[str, ...]


def make_pair(model: nn.Module | Factory, seed: int) -> Pair:
    """Build or convert a model for both libraries and give both the weights of the first.

    Parameters
    ----------
    model : nn.Module or callable
        A model; or what builds one, called with the namespace of the layers, or with nothing if it
        needs no argument.
    seed : int
        Set before each model is built.

    Returns
    -------
    Pair
        Both models.

    Raises
    ------
    CheckError
        If DGL is missing, or there is no way to the second model.
    """
    dgl, reason = import_dgl()
    if dgl is None:
        raise CheckError(f'{reason}; a check needs it: pip install "dgl_flash[dgl]"')
    if library_of(importlib.import_module(DGL).GraphConv) != DGL:
        raise CheckError(
            "dgl.nn stands for dgl_flash.nn in this process, so there is nothing to compare with; "
            "check without that redirection"
        )
    if isinstance(model, nn.Module):
        return _pair(converted(model, DGL), converted(model, OURS))
    if not callable(model):
        raise CheckError(
            f"expected an nn.Module or a function that builds one, got {type(model).__name__}"
        )
    if _takes_namespace(model):
        # Converted as well, for the layers that it does not take from the namespace.
        theirs, ours = (
            converted(_build(model, seed, importlib.import_module(library)), library)
            for library in (DGL, OURS)
        )
        return _pair(theirs, ours)
    built = _build(model, seed)
    return _pair(converted(built, DGL), converted(built, OURS))


def _takes_namespace(factory: Factory) -> bool:
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):  # written in C
        return True
    needed = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if len(needed) > 1:
        raise CheckError(
            f"{_name(factory)} needs {len(needed)} arguments ({', '.join(needed)}); pass a "
            f"function of one, the namespace of the layers, such as `lambda nn: Model(nn, 32, 16)`"
        )
    return bool(needed)


def _build(factory: Factory, seed: int, *namespace: Any) -> nn.Module:
    torch.manual_seed(seed)
    model = factory(*namespace)
    if not isinstance(model, nn.Module):
        raise CheckError(
            f"{_name(factory)} gave {type(model).__name__} instead of an nn.Module; return the "
            f"model from it"
        )
    return model


def _pair(theirs: nn.Module, ours: nn.Module) -> Pair:
    if not any(map(is_layer, ours.modules())):
        raise CheckError(
            f"{type(ours).__name__} has no layer of dgl.nn or dgl_flash.nn, so there is nothing to "
            f"compare; build it from the namespace that the factory is called with"
        )
    expected, found = theirs.state_dict(), ours.state_dict()
    state = tuple(_state_differences(expected, found))
    fitting = {
        key: value
        for key, value in expected.items()
        if isinstance(value, torch.Tensor) and getattr(found.get(key), "shape", None) == value.shape
    }
    ours.load_state_dict(fitting, strict=False)
    return Pair(theirs, ours, state)


def _state_differences(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    lines = [f"{key}: missing in dgl_flash.nn" for key in expected if key not in found]
    lines += [f"{key}: not in dgl.nn" for key in found if key not in expected]
    for key, value in expected.items():
        mine = found.get(key)
        if not isinstance(value, torch.Tensor) or not isinstance(mine, torch.Tensor):
            continue
        if value.shape != mine.shape or value.dtype != mine.dtype:
            lines.append(
                f"{key}: {tuple(value.shape)} {value.dtype} in dgl.nn, "
                f"{tuple(mine.shape)} {mine.dtype} in dgl_flash.nn"
            )
    return lines


def _name(factory: Any) -> str:
    return getattr(factory, "__name__", type(factory).__name__)
