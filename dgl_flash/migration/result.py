"""What rewriting a file gives."""

from __future__ import annotations

from dataclasses import dataclass


class MigrationError(Exception):
    """A file cannot be read, understood or written; the text is for the person who asked."""


@dataclass(frozen=True, order=True)
class Finding:
    """Something that was left for people to decide.

    Attributes
    ----------
    line : int
        Line, from 1; within its cell in a notebook.
    text : str
        What was left, why, and what to do.
    cell : int
        Cell of a notebook, from 1; 0 in a Python file.
    """

    line: int
    text: str
    cell: int = 0

    def place(self, path: object) -> str:
        """Name the place.

        Parameters
        ----------
        path : object
            The file.

        Returns
        -------
        str
            ``file:line``, in a notebook ``file:cell N:line``.
        """
        cell = f"cell {self.cell}:" if self.cell else ""
        return f"{path}:{cell}{self.line}"


@dataclass(frozen=True)
class Part:
    """A piece that is shown in one diff: a module, or a cell of a notebook.

    Attributes
    ----------
    before, after : str
        The code.
    cell : int
        Cell of a notebook, from 1; 0 in a Python file.
    """

    before: str
    after: str
    cell: int = 0


@dataclass(frozen=True)
class Rewrite:
    """A rewritten file.

    Attributes
    ----------
    text : str
        The whole file, rewritten.
    parts : tuple of Part
        What changed in it.
    findings : tuple of Finding
        What was left.
    """

    text: str
    parts: tuple[Part, ...] = ()
    findings: tuple[Finding, ...] = ()
