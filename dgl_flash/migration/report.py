"""Showing what changes: diffs, what is left to decide, and the numbers."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .result import Part

# Below that a bar would only flicker.
_MANY = 20


def diff(path: Path, part: Part) -> list[str]:
    """Compare before and after.

    Parameters
    ----------
    path : Path
        The file.
    part : Part
        The module, or a cell of the notebook.

    Returns
    -------
    list of str
        Lines of a unified diff, without line ends; empty if nothing changed.
    """
    name = f"{path} (cell {part.cell})" if part.cell else str(path)
    before, after = part.before.splitlines(), part.after.splitlines()
    return list(
        difflib.unified_diff(before, after, name, name, "dgl.nn", "dgl_flash.nn", lineterm="")
    )


def show_diff(lines: Sequence[str]) -> None:
    """Print a diff, in colours where the output is a terminal and rich is installed.

    Parameters
    ----------
    lines : sequence of str
        Lines of :func:`diff`.
    """
    console = _console("stdout")
    for line in lines:
        if console is None:
            print(line)
        else:
            console.print(
                line, style=_style(line), markup=False, highlight=False, emoji=False, soft_wrap=True
            )


def with_progress(paths: Sequence[Path]) -> Iterator[Path]:
    """Go through files, with a bar where there are many and errors go to a terminal.

    Parameters
    ----------
    paths : sequence of Path
        Files.

    Yields
    ------
    Path
        Each of them.
    """
    console = _console("stderr") if len(paths) >= _MANY else None
    if console is None:
        yield from paths
        return
    progress = importlib.import_module("rich.progress")
    tracked: Iterable[Path] = progress.track(
        paths, description="migrate", console=console, transient=True
    )
    yield from tracked


def summary(files: int, changed: int, undecided: int, written: bool) -> str:
    """Put the numbers into a line.

    Parameters
    ----------
    files : int
        Files that were read.
    changed : int
        Those that change.
    undecided : int
        Places that were left.
    written : bool
        False if the files still hold the old code.

    Returns
    -------
    str
        The line.
    """
    verb = "changed" if written else "would change"
    text = f"{files} {_plural('file', files)}, {changed} {verb}, {undecided} undecided"
    return text if written or not changed else f"{text}; run again with --write to change them"


def _plural(word: str, number: int) -> str:
    return word if number == 1 else f"{word}s"


def _console(stream: str) -> Any:
    """Console of rich for a stream; None if that is no terminal or rich is missing."""
    if not getattr(sys, stream).isatty():
        return None
    try:
        module = importlib.import_module("rich.console")
    except ModuleNotFoundError:
        return None
    return module.Console(stderr=stream == "stderr")


def _style(line: str) -> str:
    if line.startswith(("+++", "---")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
