"""The command: what it prints, what it writes, how it ends."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path

import pytest

from dgl_flash.cli import migrate
from dgl_flash.migration import report
from tests.compat.scripts import hide
from tests.compat.scripts import run as run_alone

BEFORE = "import dgl\n\nlayer = dgl.nn.GATConv(1, 2, 3)\n"
AFTER = (
    "import dgl_flash  # before `import dgl`\nimport dgl\n\nlayer = dgl_flash.nn.GATConv(1, 2, 3)\n"
)


def call(*arguments: str | Path) -> int:
    parser = argparse.ArgumentParser(prog="dgl-flash")
    migrate.add_parser(parser.add_subparsers(required=True))
    parsed = parser.parse_args(["migrate", *map(str, arguments)])
    status: int = parsed.run(parsed)
    return status


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "a.py"
    path.write_text(BEFORE)
    return path


def test_shows_the_diff_and_writes_nothing(
    source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(source) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [
        f"--- {source}\tdgl.nn",
        f"+++ {source}\tdgl_flash.nn",
        "@@ -1,3 +1,4 @@",
        "+import dgl_flash  # before `import dgl`",
        " import dgl",
        " ",
        "-layer = dgl.nn.GATConv(1, 2, 3)",
        "+layer = dgl_flash.nn.GATConv(1, 2, 3)",
        "1 file, 1 would change, 0 undecided; run again with --write to change them",
    ]
    assert printed.err == ""
    assert source.read_text() == BEFORE


def test_write_changes_the_file_once(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(source, "--write") == 0
    assert source.read_text() == AFTER
    assert capsys.readouterr().out.splitlines()[-1] == "1 file, 1 changed, 0 undecided"
    before = source.stat().st_mtime_ns
    assert call(source, "--write") == 0
    assert capsys.readouterr().out == "1 file, 0 changed, 0 undecided\n"
    assert source.stat().st_mtime_ns == before


def test_check_is_for_ci(source: Path) -> None:
    assert call("--check", source) == 1
    assert source.read_text() == BEFORE
    source.write_text(AFTER)
    assert call("--check", source) == 0


def test_check_passes_where_people_have_decided(source: Path) -> None:
    source.write_text("import importlib\nimportlib.import_module('dgl.nn')\n")
    assert call("--check", source) == 0


def test_undecided_lines_are_listed(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source.write_text("import dgl\n\ngetattr(dgl, 'nn')\n")
    assert call(source) == 0
    printed = capsys.readouterr().out
    assert f'{source}:3: getattr(dgl, "nn") finds dgl.nn by its name' in printed
    assert printed.endswith("1 file, 0 would change, 1 undecided\n")


def test_encoding_and_line_ends_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    mark = b"\xef\xbb\xbf"
    path.write_bytes(mark + "x = 'é'\r\nimport dgl.nn as nn\r\n".encode())
    assert call(path, "--write") == 0
    assert path.read_bytes() == mark + "x = 'é'\r\nimport dgl_flash.nn as nn\r\n".encode()
    path.write_bytes("# coding: latin-1\nx = 'é'\nimport dgl\ndgl.nn.GATConv\n".encode("latin-1"))
    assert call(path, "--write") == 0
    expected = f"# coding: latin-1\nx = 'é'\n{AFTER[:51]}dgl_flash.nn.GATConv\n"
    assert path.read_bytes() == expected.encode("latin-1")


def test_directories_and_notebooks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cell = {"cell_type": "code", "source": ["import dgl.nn as nn"], "metadata": {}, "outputs": []}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "b.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "a.py").write_text("import os\n")
    assert call(tmp_path, tmp_path / "a.py", "--write") == 0
    printed = capsys.readouterr().out
    assert f"+++ {tmp_path / 'b.ipynb'} (cell 1)\tdgl_flash.nn" in printed
    assert printed.endswith("2 files, 1 changed, 0 undecided\n")
    cell["source"] = ["import dgl_flash.nn as nn"]
    assert (tmp_path / "b.ipynb").read_text() == json.dumps(notebook)


def test_errors_do_not_stop_the_others(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = source.with_name("broken.py")
    broken.write_text("import dgl.nn as nn\nprint nn\n")
    missing = source.with_name("missing.py")
    assert call(broken, missing, source, "--write") == 1
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        f"dgl-flash: {missing}: no such file or directory",
        f"dgl-flash: {broken}: line 2: not the syntax of Python 3; "
        "correct it or leave the file out",
    ]
    assert printed.out.endswith("1 file, 1 changed, 0 undecided\n")
    assert source.read_text() == AFTER


@pytest.mark.parametrize(
    "arguments",
    [[], ["--write", "--check", "a.py"], ["--nosuch", "a.py"]],
    ids=["no_path", "two_modes", "no_such_option"],
)
def test_wrong_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        call(*arguments)
    assert end.value.code == 2
    assert "dgl-flash" in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        call("--help")
    printed = capsys.readouterr().out
    assert "dgl-flash migrate --check ." in printed
    assert max(map(len, printed.splitlines())) <= 100


def test_without_libcst_it_says_what_to_install(source: Path) -> None:
    printed = run_alone(
        f"{hide('libcst')}\n"
        "import argparse, contextlib, io\n"
        "from dgl_flash.cli import migrate\n"
        f"arguments = argparse.Namespace(paths=[{str(source)!r}], write=True, check=False)\n"
        "with contextlib.redirect_stderr(io.StringIO()) as printed:\n"
        "    print(migrate.run(arguments))\n"
        "print(printed.getvalue())\n",
        warnings="ignore",
    )
    assert printed.startswith("1\n")
    assert 'pip install "dgl_flash[migrate]"' in printed
    assert source.read_text() == BEFORE


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_terminal_gets_colours(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert call(source) == 0
    assert "\x1b[32m+layer = dgl_flash.nn.GATConv(1, 2, 3)\x1b[0m\n" in screen.getvalue()
    assert "\x1b[31m-layer = dgl.nn.GATConv(1, 2, 3)\x1b[0m\n" in screen.getvalue()


def test_terminal_without_rich(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert call(source) == 0
    assert "\n+layer = dgl_flash.nn.GATConv(1, 2, 3)\n" in screen.getvalue()


@pytest.mark.parametrize("number", [3, 30])
def test_bar_for_many_files(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    paths = [Path(str(index)) for index in range(number)]
    assert list(report.with_progress(paths)) == paths
    assert ("migrate" in screen.getvalue()) == (number == 30)
