"""Every notebook runs top to bottom, at small size."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def outputs(notebook: Path) -> list[dict[str, object]]:
    cells = json.loads(notebook.read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", [])]


def test_there_are_notebooks() -> None:
    assert [notebook.name for notebook in NOTEBOOKS] == ["01_quickstart.ipynb"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGL_FLASH_NOTEBOOK_SMALL", "1")
    copy = Path(shutil.copy(notebook, tmp_path))
    command = [sys.executable, str(FOLDER / "execute.py"), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, f"executing {copy.name}\n")
    shown = outputs(copy)
    assert sum("image/png" in output.get("data", {}) for output in shown) == 3
    assert any("text/html" in output.get("data", {}) for output in shown)  # what explain says
    assert [output for output in shown if output.get("name") == "stderr"] == []


def test_a_failing_cell_fails_the_run(tmp_path: Path) -> None:
    import nbformat

    broken = tmp_path / "broken.ipynb"
    cells = [nbformat.v4.new_code_cell("raise RuntimeError('on purpose')")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), broken)
    command = [sys.executable, str(FOLDER / "execute.py"), "--discard", str(broken)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert "on purpose" in done.stderr
    assert outputs(broken) == []
