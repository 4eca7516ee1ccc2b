"""Find the CUDA sources and make one self-contained text of a kernel and what it includes.

CuPy's disk cache does not look into included files, so ours are pasted in; ``#line`` keeps the
compiler's messages pointing at the real file.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

_INCLUDE = re.compile(r'^#include "([^"]+)"\s*$')
# An entry point ends with the first brace in column 0.
_ENTRY = re.compile(r'^extern "C" __global__ void.*?^\}$', re.DOTALL | re.MULTILINE)
_PACKAGE = Path(__file__).resolve().parent.parent


@functools.cache
def source_root() -> Path:
    """Directory that holds the ``.cu`` files.

    Returns
    -------
    pathlib.Path
        ``dgl_flash/_cuda`` of an installed wheel, or ``cuda`` of a checkout.

    Raises
    ------
    FileNotFoundError
        When neither is there: the installation is broken.
    """
    for candidate in (_PACKAGE / "_cuda", _PACKAGE.parent / "cuda"):
        if (candidate / "common").is_dir():
            return candidate
    raise FileNotFoundError(
        f"dgl_flash: expected CUDA sources in {_PACKAGE / '_cuda'} or {_PACKAGE.parent / 'cuda'}, "
        f"found neither; reinstall dgl_flash"
    )


@functools.cache
def load_source(name: str) -> str:
    """Text of ``cuda/<name>`` with every ``#include "..."`` pasted in once.

    Parameters
    ----------
    name : str
        File name relative to :func:`source_root`, e.g. ``"gatv2.cu"``.

    Returns
    -------
    str
        Source that needs no include path.
    """
    return "".join(_inlined(source_root() / name, set()))


@functools.cache
def load_entry(name: str, entry: str) -> str:
    """Text of ``cuda/<name>`` with one entry point; the others become empty lines.

    Each costs the compiler about a second, and every pass has a layout of its own anyway.

    Parameters
    ----------
    name : str
        File name relative to :func:`source_root`.
    entry : str
        The ``extern "C"`` function to keep.

    Returns
    -------
    str
        Source whose line numbers are unchanged.
    """

    def keep_or_blank(match: re.Match[str]) -> str:
        wanted = re.search(rf"\b{entry}\(", match.group()) is not None
        return match.group() if wanted else "\n" * match.group().count("\n")

    return _ENTRY.sub(keep_or_blank, load_source(name))


def _inlined(path: Path, seen: set[Path]) -> list[str]:
    seen.add(path)
    shown = path.relative_to(source_root()).as_posix()
    parts = [f'#line 1 "{shown}"\n']
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip() == "#pragma once":
            parts.append("\n")  # every file is pasted once anyway, and a main file must not say it
            continue
        match = _INCLUDE.match(line)
        if match is None:
            parts.append(line + "\n")
            continue
        included = (path.parent / match.group(1)).resolve()
        if included not in seen:
            parts.extend(_inlined(included, seen))
        parts.append(f'#line {number + 1} "{shown}"\n')
    return parts
