"""Finding, reading and writing files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dgl_flash.migration import files
from dgl_flash.migration.result import MigrationError


def make(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("import dgl.nn\n")


def names(root: Path) -> list[str]:
    return [path.relative_to(root).as_posix() for path in files.find(root)]


def test_directories_that_are_not_the_users_are_skipped(tmp_path: Path) -> None:
    make(tmp_path, "b.py", "a/c.pyi", "a/d.ipynb", "a/e.txt", "f")
    skipped = [".git", ".venv", "node_modules", "__pycache__", ".ipynb_checkpoints"]
    make(tmp_path, *(f"a/{folder}/x.py" for folder in skipped), "env/pyvenv.cfg", "env/x.py")
    assert names(tmp_path) == ["a/c.pyi", "a/d.ipynb", "b.py"]


def test_a_skipped_directory_may_be_asked_for(tmp_path: Path) -> None:
    make(tmp_path, ".hidden/x.py")
    assert names(tmp_path / ".hidden") == ["x.py"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    make(inside, "a.py")
    make(outside, "b.py")
    (inside / "file.py").symlink_to(outside / "b.py")
    (inside / "folder").symlink_to(outside)
    (inside / "dangling.py").symlink_to(outside / "nothing.py")
    assert names(inside) == ["a.py"]
    with pytest.raises(MigrationError, match="symbolic link; give the path"):
        files.find(inside / "file.py")


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    make(tmp_path, "train")
    assert files.find(tmp_path / "train") == [tmp_path / "train"]


def test_a_missing_path_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="no such file or directory"):
        files.find(tmp_path / "nothing.py")


CONTENTS = {
    "utf-8": "x = 'é'\n".encode(),
    "bom": b"\xef\xbb\xbfx = '\xc3\xa9'\r\n",
    "cookie": "# -*- coding: latin-1 -*-\nx = 'é'\n".encode("latin-1"),
    "mixed_ends": b"a\r\nb\nc\rd",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_bytes_come_back(name: str, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(CONTENTS[name])
    document = files.read(path)
    assert "\ufeff" not in document.text
    files.write(path, document)
    assert path.read_bytes() == CONTENTS[name]


def test_notebooks_are_utf_8_with_or_without_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    for content in (b'{"a": "\xc3\xa9"}', b"\xef\xbb\xbf{}"):
        path.write_bytes(content)
        document = files.read(path)
        assert document.text.startswith("{")
        files.write(path, document)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "content", [b"x = '\xe9'\n", b"# coding: nosuch\n"], ids=["bytes", "unknown_encoding"]
)
def test_what_cannot_be_decoded_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(content)
    with pytest.raises(MigrationError, match="cannot be decoded"):
        files.read(path)


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(MigrationError, match="cannot be read: No such file"):
        files.read(tmp_path / "gone.py")


def test_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    make(tmp_path, "a.py")
    path.chmod(0o751)
    files.write(path, files.Document("x", "utf-8"))
    assert path.read_text() == "x"
    assert path.stat().st_mode & 0o777 == 0o751


def test_write_protected_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "a.py")
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everything
    with pytest.raises(MigrationError, match="write-protected"):
        files.write(tmp_path / "a.py", files.Document("x", "utf-8"))
    assert (tmp_path / "a.py").read_text() == "import dgl.nn\n"


def test_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    make(tmp_path, "a.py")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(MigrationError, match="cannot be written: No space left"):
        files.write(tmp_path / "a.py", files.Document("x", "utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]
    assert (tmp_path / "a.py").read_text() == "import dgl.nn\n"
