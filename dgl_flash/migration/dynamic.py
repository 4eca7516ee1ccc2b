"""Uses of ``dgl.nn`` that only show when the program runs: strings, patches, ``sys.modules``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import libcst as cst
from libcst import matchers as m
from libcst.helpers import get_full_name_for_node

# The last part of the function's name -> what it does with its arguments.
_STRING_FUNCTIONS = """
    import_module __import__ find_spec importorskip import_string resolve_name
    patch setattr delattr getattr hasattr eval exec compile cast ForwardRef
"""
_BY_STRING = frozenset(_STRING_FUNCTIONS.split())
_BY_OBJECT = ("setattr", "delattr", "object", "multiple", "dict")
_MENTION = re.compile(r"\bdgl\.nn\b|\bfrom\s+dgl\s+import\s[^\n]*\bnn\b")
_BY_HAND = "; change it by hand where dgl_flash.nn is meant"


def mentions_nn(text: str) -> bool:
    """Tell whether a text speaks of ``dgl.nn``.

    Parameters
    ----------
    text : str
        Code, or what a string holds.

    Returns
    -------
    bool
        True for ``dgl.nn`` and for ``from dgl import nn``.
    """
    return _MENTION.search(text) is not None


def in_call(call: cst.Call, path_of: Callable[[cst.BaseExpression], str | None]) -> str | None:
    """Look for ``dgl.nn`` that is reached through a call.

    Parameters
    ----------
    call : Call
        Any call.
    path_of : callable
        Gives the path that an expression stands for, if it starts at an import of ``dgl``.

    Returns
    -------
    str or None
        What was found, for people.
    """
    function = get_full_name_for_node(call.func) or ""
    last = function.rpartition(".")[2]
    patches, modules = ".patch." in f".{function}", ".modules." in function
    if last not in _BY_STRING and not patches and not modules:
        return None  # most calls
    texts = _strings(call.args)
    target = path_of(call.args[0].value) if call.args else None
    if last in ("getattr", "hasattr") and target == "dgl" and "nn" in texts:
        return f'{function}(dgl, "nn") finds dgl.nn by its name{_BY_HAND}'
    if last == "import_module" and "dgl" in texts and any(t.startswith(".nn") for t in texts):
        return f"{function} imports dgl.nn by its name{_BY_HAND}"
    if not any(map(mentions_nn, texts)):
        return None
    if modules:
        return f"{function}() looks dgl.nn up by its name{_BY_HAND}"
    return f"a string that {function}() gets names dgl.nn{_BY_HAND}"


def patched(
    call: cst.Call, path_of: Callable[[cst.BaseExpression], str | None]
) -> cst.BaseExpression | None:
    """Find the object of ``dgl.nn`` that ``setattr`` or ``patch.object`` changes.

    Parameters
    ----------
    call : Call
        Any call.
    path_of : callable
        As in :func:`in_call`.

    Returns
    -------
    BaseExpression or None
        The argument.
    """
    last = (get_full_name_for_node(call.func) or "").rpartition(".")[2]
    if last not in _BY_OBJECT or not call.args:
        return None
    argument = call.args[0].value
    path = path_of(argument)
    return argument if path is not None and f"{path}.".startswith("dgl.nn.") else None


def in_subscript(node: cst.Subscript) -> str | None:
    """Look for ``sys.modules["dgl.nn"]``.

    Parameters
    ----------
    node : Subscript
        Any subscript.

    Returns
    -------
    str or None
        What was found, for people.
    """
    name = get_full_name_for_node(node.value) or ""
    if name.rpartition(".")[2] == "modules" and any(map(mentions_nn, _strings(node.slice))):
        return f"{name}[...] looks dgl.nn up by its name{_BY_HAND}"
    return None


def in_annotation(node: cst.Annotation) -> str | None:
    """Look for ``dgl.nn`` in an annotation that is a string.

    Parameters
    ----------
    node : Annotation
        Any annotation.

    Returns
    -------
    str or None
        What was found, for people.
    """
    if any(map(mentions_nn, _strings([node]))):
        return f"the annotation is a string that names dgl.nn{_BY_HAND}"
    return None


def names_dgl(node: cst.Annotation) -> bool:
    """Tell whether an annotation is or holds a string that names ``dgl``.

    Parameters
    ----------
    node : Annotation
        Any annotation.

    Returns
    -------
    bool
        True for ``"dgl.DGLGraph"``.
    """
    return any(re.search(r"\bdgl\b", text) for text in _strings([node]))


def _strings(nodes: Sequence[cst.CSTNode]) -> list[str]:
    found: list[str] = []
    for node in nodes:
        for text in m.findall(node, m.SimpleString() | m.FormattedStringText()):
            if isinstance(text, cst.SimpleString):
                value = text.evaluated_value
                found.append(value if isinstance(value, str) else "")
            elif isinstance(text, cst.FormattedStringText):
                found.append(text.value)
    return found
