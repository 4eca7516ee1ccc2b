"""Finding and replacing the code cells of a notebook without touching anything else in its text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .result import MigrationError

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Cell:
    """A code cell.

    Attributes
    ----------
    number : int
        Its place among all cells, from 1.
    start, stop : int
        Where the value of ``"source"`` stands in the text of the notebook.
    source : str
        The code.
    """

    number: int
    start: int
    stop: int
    source: str


def code_cells(text: str) -> list[Cell]:
    """Find the code cells of a notebook.

    Parameters
    ----------
    text : str
        The notebook (nbformat 4).

    Returns
    -------
    list of Cell
        In order; empty for a notebook in another language than Python.

    Raises
    ------
    MigrationError
        If the text is no notebook.
    """
    try:
        return _code_cells(text)
    except (ValueError, TypeError, AttributeError, KeyError, IndexError) as error:
        raise MigrationError(
            f"not a notebook of format 4 ({error}); open and save it in Jupyter first"
        ) from error


def replaced(text: str, cells: dict[Cell, str]) -> str:
    """Write new sources into a notebook.

    Parameters
    ----------
    text : str
        The notebook.
    cells : dict
        Cell -> new source.

    Returns
    -------
    str
        The notebook, the same outside of these sources.
    """
    for cell in sorted(cells, key=lambda cell: cell.start, reverse=True):
        new = _encoded(text[cell.start : cell.stop], cell.source, cells[cell])
        text = text[: cell.start] + new + text[cell.stop :]
    return text


def _code_cells(text: str) -> list[Cell]:
    notebook = json.loads(text)
    if not isinstance(notebook["cells"], list):
        raise ValueError('"cells" is not a list')
    if _language(notebook.get("metadata", {})) not in ("", "python", "ipython"):
        return []
    spans: list[tuple[int, int]] = []

    def cell(start: int) -> int:
        found: list[tuple[int, int]] = []

        def value(key: str, start: int) -> int:
            stop = _skip(text, start)
            if key == "source":
                found.append((start, stop))
            return stop

        stop = _members(text, start, value)
        spans.append(found[-1] if found else (start, start))
        return stop

    def top(key: str, start: int) -> int:
        return _elements(text, start, cell) if key == "cells" else _skip(text, start)

    _members(text, _space(text, 0), top)
    return [
        Cell(number, start, stop, "".join(content["source"]))
        for number, (content, (start, stop)) in enumerate(
            zip(notebook["cells"], spans, strict=True), 1
        )
        if content["cell_type"] == "code"
    ]


def _language(metadata: dict[str, Any]) -> str:
    info = metadata.get("language_info", {}).get("name")
    return str(info or metadata.get("kernelspec", {}).get("language", "")).lower()


def _space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    return match.end() if match else position


def _skip(text: str, start: int) -> int:
    return _DECODER.raw_decode(text, start)[1]


def _members(text: str, start: int, value: Callable[[str, int], int]) -> int:
    """Walk over an object that is known to be well formed; give the position behind it."""
    position = _space(text, start + 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        position = _space(text, _space(text, position) + 1)  # the colon
        position = _space(text, value(key, position))
        if text[position] == ",":
            position = _space(text, position + 1)
    return position + 1


def _elements(text: str, start: int, element: Callable[[int], int]) -> int:
    """Walk over an array in the same way."""
    position = _space(text, start + 1)
    while text[position] != "]":
        position = _space(text, element(position))
        if text[position] == ",":
            position = _space(text, position + 1)
    return position + 1


def _encoded(raw: str, old: str, new: str) -> str:
    """Write a source as the old one is written: one string or many, its spaces, its escapes."""
    ascii_only = raw.isascii() and not old.isascii()

    def encode(value: str) -> str:
        return json.dumps(value, ensure_ascii=ascii_only)

    if raw[0] == '"':
        return encode(new)
    first = _space(raw, 1)
    lead = raw[1:first]
    tail = raw[len(raw[:-1].rstrip()) : -1]
    # A list on one line has its spaces behind the commas only.
    between = re.search(r'",([ \t\r\n]*)"', raw)
    gap = lead if between is None else between[1]
    lines = new.splitlines(keepends=True)
    return f"[{lead}{f',{gap}'.join(map(encode, lines))}{tail}]"
