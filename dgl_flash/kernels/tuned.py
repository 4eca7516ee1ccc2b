"""What was measured to be fastest on this machine: a small file that outlives the process.

``dgl_flash.tune`` writes it; it is looked into when a kernel is bound to a graph, never in a call.
A graph is known by the magnitude of its rows only, so that similar graphs share an entry: the file
holds no graph and no tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dgl_flash.kernels.layout import Layout

LIMIT = 512  # entries; the oldest make room
MOST_WARPS = 32  # a block
BACKENDS = ("kernel", "cusparse")
_FORMAT = 1

_lock = threading.Lock()
_loaded: dict[Path, dict[str, Any]] = {}  # each file as it was when it was read or written last


@dataclass(frozen=True)
class Profile:
    """Magnitudes of an adjacency: the binary digits of each figure.

    Attributes
    ----------
    rows, edges, mean, longest : int
        Of the number of rows, of edges, of the mean and of the longest row.
    """

    rows: int
    edges: int
    mean: int
    longest: int

    @classmethod
    def of(cls, num_rows: int, num_edges: int, max_degree: int) -> Profile:
        """Measure an adjacency."""
        figures = (num_rows, num_edges, num_edges // max(num_rows, 1), max_degree)
        return cls(*(figure.bit_length() for figure in figures))


@dataclass(frozen=True)
class Key:
    """All that a measurement depends on.

    Attributes
    ----------
    machine : str
        Card and versions, see :func:`machine`.
    op : str
        Kernel, with the flags that change what it reads.
    num_heads, head_dim : int
        H and D of the (N, H, D) rows.
    dtype, index_dtype : torch.dtype
        Of the features and of the adjacency.
    profile : Profile
        Magnitudes of the adjacency.
    """

    machine: str
    op: str
    num_heads: int
    head_dim: int
    dtype: torch.dtype
    index_dtype: torch.dtype
    profile: Profile

    def __str__(self) -> str:
        sizes = ", ".join(
            f"<2^{bits} {name}" for name, bits in dataclasses.asdict(self.profile).items()
        )
        dtypes = " ".join(
            str(dtype).removeprefix("torch.") for dtype in (self.dtype, self.index_dtype)
        )
        return f"{self.machine}; {self.op}; H={self.num_heads} D={self.head_dim} {dtypes}; {sizes}"


@dataclass(frozen=True)
class Tuned:
    """The winner of a measurement.

    Attributes
    ----------
    layout : Layout or None
        Fastest layout of our kernel; None is that of the rule.
    backend : str
        One of :data:`BACKENDS`: whether our kernel or cuSPARSE is faster.
    """

    layout: Layout | None
    backend: str = "kernel"


@functools.cache
def machine(device_index: int) -> str:
    """Name a card and what compiles for it; a change of any part starts afresh."""
    import cupy

    from dgl_flash import __version__

    major, minor = torch.cuda.get_device_capability(device_index)
    nvrtc = ".".join(map(str, cupy.cuda.nvrtc.getVersion()))
    return (
        f"{torch.cuda.get_device_name(device_index)} sm_{major}{minor}, "
        f"driver {cupy.cuda.runtime.driverGetVersion()}, CUDA {torch.version.cuda}, "
        f"NVRTC {nvrtc}, cupy {cupy.__version__}, dgl_flash {__version__}"
    )


def file() -> Path:
    """The file: in ``$DGL_FLASH_CACHE_DIR``, else ``dgl_flash`` in the user's cache directory."""
    environ = os.environ
    return _file(environ.get("DGL_FLASH_CACHE_DIR"), environ.get("XDG_CACHE_HOME"))


@functools.cache  # each graph that is new to a kernel asks
def _file(own: str | None, cache: str | None) -> Path:
    if own:
        return Path(own) / "tuned.json"
    return Path(cache or os.path.expanduser("~/.cache")) / "dgl_flash" / "tuned.json"


def is_empty() -> bool:
    """Whether nothing was ever tuned."""
    return not _entries()


def find(key: Key) -> Tuned | None:
    """Look up what was measured.

    Parameters
    ----------
    key : Key
        What is about to run.

    Returns
    -------
    Tuned or None
        None when nothing was measured, or when what the file says of it makes no sense.
    """
    entry = _entries().get(str(key))
    if entry is None:
        return None
    found = _decode(entry, key)
    if found is None:
        warnings.warn(
            f"dgl_flash: an entry of {file()} makes no sense and is ignored; tune again, or "
            f"delete the file",
            stacklevel=2,
        )
    return found


def store(key: Key, found: Tuned) -> None:
    """Keep a winner, in this process and in the file.

    Parameters
    ----------
    key : Key
        What was measured.
    found : Tuned
        The winner; it takes the place of an earlier one.

    Warns
    -----
    UserWarning
        The file cannot be written: the winner is forgotten when the process ends.
    """
    path = file()
    layout = None if found.layout is None else dataclasses.asdict(found.layout)
    entry = {"backend": found.backend, "layout": layout}
    with _lock:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path):
                _loaded[path] = _with(_read(path), str(key), entry)
                _write(path, _loaded[path])
        except OSError as error:
            _loaded[path] = _with(_loaded.get(path, {}), str(key), entry)
            warnings.warn(
                f"dgl_flash: what was tuned holds for this process only, {path} cannot be written "
                f"({error}); set DGL_FLASH_CACHE_DIR to a folder of yours",
                stacklevel=2,
            )


def _with(entries: dict[str, Any], key: str, entry: Any) -> dict[str, Any]:
    kept = {name: value for name, value in entries.items() if name != key}
    kept[key] = entry
    return dict(list(kept.items())[-LIMIT:])


def _entries() -> dict[str, Any]:
    path = file()
    found = _loaded.get(path)
    if found is None:
        with _lock:
            found = _loaded.setdefault(path, _read(path))
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] == _FORMAT and isinstance(content["entries"], dict):
            return content["entries"]
        raise ValueError("not a file of this version")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError) as error:
        warnings.warn(
            f"dgl_flash: {path} cannot be read and is ignored ({error}); delete it, or tune again",
            stacklevel=2,
        )
        return {}


def _write(path: Path, entries: dict[str, Any]) -> None:
    """Replace the file at once: a reader sees the old or the new one, whatever happens."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as part:
            json.dump({"format": _FORMAT, "entries": entries}, part, indent=1)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time read, add and write."""
    import fcntl  # not on Windows, where no kernel runs and hence nothing is tuned

    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _decode(entry: Any, key: Key) -> Tuned | None:
    if not isinstance(entry, dict) or entry.get("backend") not in BACKENDS:
        return None
    fields = entry.get("layout")
    if fields is None:
        return Tuned(None, entry["backend"])
    names = {field.name for field in dataclasses.fields(Layout)}
    if not isinstance(fields, dict) or set(fields) != names:
        return None
    if not all(isinstance(value, int) and 0 <= value < 2**31 for value in fields.values()):
        return None
    layout = Layout(**fields)
    is_sound = layout.covers(key.head_dim, key.dtype.itemsize) and _is_sound(layout, key.head_dim)
    return Tuned(layout, entry["backend"]) if is_sound else None


def _is_sound(layout: Layout, head_dim: int) -> bool:
    """Whether a layout compiles, writes all of each row and nothing behind it.

    What :func:`store` was given does. A sum walks no slices of a head, and takes for granted that
    each of those it shares out begins inside the head.
    """
    owned = layout.vector * layout.vectors * layout.head_lanes
    return (
        all(size & (size - 1) == 0 for size in (layout.vector, layout.unroll))
        and layout.warps <= MOST_WARPS
        and layout.loops == 1
        and (layout.slices - 1) * owned < head_dim
        and isinstance(layout.ahead, bool)
    )
