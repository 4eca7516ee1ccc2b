"""Rewriting a Jupyter notebook, whose cells are one module."""

from __future__ import annotations

import re

from .cells import Cell, code_cells, replaced
from .dynamic import mentions_nn
from .magics import Mask, is_other_language
from .result import Finding, MigrationError, Part, Rewrite
from .source import parse, rewrite_code


def migrate_notebook(text: str) -> Rewrite:
    """Rewrite a notebook so that it uses ``dgl_flash.nn`` instead of ``dgl.nn``.

    A name that one cell imports is known in all others. Cells that are not Python are left, and
    listed where they mention ``dgl.nn``.

    Parameters
    ----------
    text : str
        The notebook.

    Returns
    -------
    Rewrite
        The notebook with what was left for people to decide; nothing but sources of code cells
        changes.

    Raises
    ------
    MigrationError
        If the text is no notebook.
    """
    if "dgl" not in text:
        return Rewrite(text)
    token = _unused(text)
    findings: list[Finding] = []
    cells = []
    for cell in code_cells(text):
        mask = _readable(cell, token, findings)
        if mask is not None:
            cells.append((cell, mask))
            findings.extend(mask.findings(cell.source, cell.number))
    hidden = any("dgl" in line for _, mask in cells for line in mask.hidden)
    marker = re.compile(rf"^# {token}cell\n", re.MULTILINE)
    joined = "".join(f"# {token}cell\n{mask.code}\n" for _, mask in cells)
    code, found = rewrite_code(joined, keep_dgl=hidden or bool(findings))
    findings.extend(_located(finding, cells) for finding in found)
    changed = {}
    for (cell, mask), new in zip(cells, marker.split(code)[1:], strict=True):
        source = mask.restore(new.removesuffix("\n"))
        if source != cell.source:
            changed[cell] = source
    parts = tuple(Part(cell.source, new, cell.number) for cell, new in changed.items())
    findings.sort(key=lambda finding: (finding.cell, finding.line, finding.text))
    return Rewrite(replaced(text, changed), parts, tuple(findings))


def _unused(text: str) -> str:
    token = "dgl_flash_hidden_"
    while token in text:
        token += "_"
    return token


def _readable(cell: Cell, token: str, findings: list[Finding]) -> Mask | None:
    """Mask a cell; None with a finding for one that is no Python."""
    if is_other_language(cell.source):
        if mentions_nn(cell.source):
            text = "a cell in another language names dgl.nn; change it by hand"
            findings.append(Finding(1, text, cell.number))
        return None
    problem = None
    for active in (False, True):
        mask = Mask(cell.source, f"{token}{cell.number}_", active)
        try:
            parse(mask.code)
            return mask
        except MigrationError as error:
            problem = error
    findings.append(Finding(1, f"this cell is left as it is ({problem})", cell.number))
    return None


def _located(finding: Finding, cells: list[tuple[Cell, Mask]]) -> Finding:
    """Turn a line of the joined cells into one of its cell."""
    line = finding.line
    for cell, mask in cells:
        length = mask.code.count("\n") + 2  # with the marker
        if line <= length:
            return Finding(line - 1, finding.text, cell.number)
        line -= length
    raise AssertionError("a finding lies in a cell")
