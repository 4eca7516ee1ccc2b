"""Hiding from the parser what IPython understands and Python does not."""

from __future__ import annotations

import re

from .dynamic import mentions_nn
from .result import Finding

# Lines that start with a magic, a shell command or a question; `x = %magic`, `x = !command`; `x?`.
_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.,\s\[\]\"']+=\s*[%!](?!=))|^[^#\"']*\w\?{1,2}\s*$")
_CELL_MAGIC = re.compile(r"^\s*%%(\w+)")
# Cell magics below which there is Python for the same namespace.
_PYTHON = frozenset(("time", "timeit", "capture", "prun", "memit", "mprun"))


class Mask:
    """The magics of one cell.

    Parameters
    ----------
    source : str
        The cell.
    token : str
        Text that occurs nowhere in the notebook.
    active : bool
        False where the cell is Python as it stands: what looks like a magic may then be the second
        line of an expression.

    Attributes
    ----------
    hidden : list of str
        The lines that hold magics.
    code : str
        The cell with a comment or a statement in place of each magic, line by line.
    """

    def __init__(self, source: str, token: str, active: bool = True) -> None:
        self._token = token
        self.hidden: list[str] = []
        continued = False
        lines = []
        for line in source.split("\n"):
            magic = active and (continued or _MAGIC.match(line) is not None)
            lines.append(self._hide(line, continued) if magic else line)
            continued = magic and line.rstrip().endswith("\\")
        self.code = "\n".join(lines)

    def _hide(self, line: str, continued: bool) -> str:
        """A block may hold nothing but the magic, so it becomes a statement."""
        indent = line[: len(line) - len(line.lstrip())]
        text = f"{self._token}{len(self.hidden)}_"
        self.hidden.append(line)
        return f"{indent}# {text}" if continued else f"{indent}{text}"

    def restore(self, code: str) -> str:
        """Put the magics back.

        Parameters
        ----------
        code : str
            The code, which may have changed around them.

        Returns
        -------
        str
            The cell.
        """
        for number, hidden in enumerate(self.hidden):
            found = re.compile(rf"^[ \t]*(?:# )?{self._token}{number}_", re.MULTILINE)
            match = found.search(code)
            if match is not None:
                code = code[: match.start()] + hidden + code[match.end() :]
        return code

    def findings(self, source: str, cell: int) -> list[Finding]:
        """List the magics that mention ``dgl.nn``.

        Parameters
        ----------
        source : str
            The cell as it was.
        cell : int
            Its number.

        Returns
        -------
        list of Finding
            Magics are left as they are.
        """
        hidden = set(self.hidden)
        return [
            Finding(number, "a magic names dgl.nn; change it by hand", cell)
            for number, line in enumerate(source.split("\n"), 1)
            if line in hidden and mentions_nn(line)
        ]


def is_other_language(source: str) -> bool:
    """Tell whether a cell magic hands the cell to something else than Python.

    Parameters
    ----------
    source : str
        The cell.

    Returns
    -------
    bool
        True for ``%%bash`` and its like.
    """
    magic = _CELL_MAGIC.match(source.lstrip())
    return magic is not None and magic[1] not in _PYTHON
