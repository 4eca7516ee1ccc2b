"""Old scripts train when their imports are migrated, and nothing else of them has changed."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

import pytest

from dgl_flash.migration.source import migrate_source
from tests.test_legacy import LAYERS, LEGACY, PLAIN, SCRIPTS, SMALL, results

# Runs without any help: the scripts have to import dgl_flash by themselves.
BARE = """
import runpy, sys

def run(script, options):
    sys.argv = [script, *options]
    runpy.run_path(script, run_name="__main__")
    return 0
"""


def test_migrated_they_train_alike(tmp_path: Path) -> None:
    """Only imports change, those of ``dgl.nn`` and the one that goes before."""
    for script in SCRIPTS:
        old = (LEGACY / f"{script}.py").read_text()
        new = migrate_source(old)
        assert new.findings == ()
        changed = [line for line in difflib.ndiff(old.splitlines(), new.text.splitlines())]
        changed = [line[2:] for line in changed if line[0] in "+-"]
        assert all(re.match(r"(import|from) dgl", line) for line in changed), changed
        assert bool(changed) == bool(LAYERS[script][0])
        # One without layers is left alone, and imports DGL where DGL can be imported.
        first = "" if changed else "import dgl_flash\n"
        (tmp_path / f"{script}.py").write_text(first + new.text)
    options = ("--device", "cpu", *SMALL)
    found, plain = results(BARE, options, folder=tmp_path)[0], results(PLAIN, options)[0]
    for script in SCRIPTS:
        assert found[script]["loss"] == pytest.approx(plain[script]["loss"], rel=1e-4)
