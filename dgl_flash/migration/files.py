"""Finding Python files and notebooks, reading them, and writing them back as they were encoded."""

from __future__ import annotations

import io
import os
import tempfile
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .result import MigrationError

SUFFIXES = (".py", ".pyi", ".ipynb")
_SKIPPED = frozenset(("__pycache__", "node_modules", "site-packages"))


@dataclass(frozen=True)
class Document:
    """A file as text.

    Attributes
    ----------
    text : str
        Its text with its line endings, without a byte-order mark.
    encoding : str
        Encoding that gives the same bytes again.
    """

    text: str
    encoding: str


def find(path: Path) -> list[Path]:
    """List the files to migrate.

    Hidden directories, virtual environments, installed packages and caches below `path` are left
    out, and so is every symbolic link, which may lead to somebody else's files.

    Parameters
    ----------
    path : Path
        A file of any name, or a directory to search for Python files and notebooks.

    Returns
    -------
    list of Path
        In the order of their names.

    Raises
    ------
    MigrationError
        If there is nothing at `path`, or a link to a file.
    """
    if path.is_dir():
        return sorted(_below(path))
    if path.is_symlink():
        raise MigrationError("a symbolic link; give the path of the file that it leads to")
    if not path.is_file():
        raise MigrationError("no such file or directory")
    return [path]


def _below(folder: Path) -> Iterable[Path]:
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not _is_skipped(Path(where, name))]
        for name in names:
            path = Path(where, name)
            if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink():
                yield path


def _refuse(error: OSError) -> None:
    raise MigrationError(f"{error.filename} cannot be listed: {error.strerror}") from error


def _is_skipped(folder: Path) -> bool:
    name = folder.name
    return name.startswith(".") or name in _SKIPPED or (folder / "pyvenv.cfg").exists()


def read(path: Path) -> Document:
    """Read a file.

    Parameters
    ----------
    path : Path
        A Python file, in the encoding that its first lines declare, or a notebook, in UTF-8.

    Returns
    -------
    Document
        Its text and encoding.

    Raises
    ------
    MigrationError
        If it cannot be read or decoded.
    """
    try:
        content = path.read_bytes()
        if path.suffix == ".ipynb":
            encoding = "utf-8-sig" if content.startswith(b"\xef\xbb\xbf") else "utf-8"
        else:
            encoding = tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        return Document(content.decode(encoding), encoding)
    except OSError as error:
        raise MigrationError(f"cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, SyntaxError) as error:
        raise MigrationError(f"cannot be decoded ({error}); save it in UTF-8") from error


def write(path: Path, document: Document) -> None:
    """Replace a file, so that at any time there is either the old one or the whole new one.

    Parameters
    ----------
    path : Path
        The file, whose permissions stay.
    document : Document
        What it shall hold.

    Raises
    ------
    MigrationError
        If it cannot be written; the old file is still there.
    """
    if not os.access(path, os.W_OK):
        raise MigrationError("cannot be written: it is write-protected")
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            temporary = file.name
            file.write(document.text.encode(document.encoding))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, path.stat().st_mode & 0o7777)
        os.replace(temporary, path)
    except OSError as error:
        raise MigrationError(f"cannot be written: {error.strerror}") from error
    finally:
        if temporary is not None:
            Path(temporary).unlink(missing_ok=True)
