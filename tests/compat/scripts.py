"""Runs a few lines in an interpreter of their own, where what is imported first matters."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Blocks packages as if they were not installed.
HIDE = """
import sys

class Hidden:
    def __init__(self, *names):
        self.names = names

    def find_spec(self, fullname, path, target=None):
        if fullname.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

sys.meta_path.insert(0, Hidden(%s))
"""


def hide(*packages: str) -> str:
    return HIDE % ", ".join(map(repr, packages))


def environment(*folders: Path) -> dict[str, str]:
    path = os.pathsep.join(map(str, (*folders, ROOT)))
    return {**os.environ, "PYTHONPATH": path, "DGLBACKEND": "pytorch"}


def run(code: str, *folders: Path, warnings: str = "error") -> str:
    """Output of `code`; `folders` come before everything else on sys.path."""
    result = subprocess.run(
        [sys.executable, "-W", warnings, "-c", code],
        env=environment(*folders),
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout
