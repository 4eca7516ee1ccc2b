"""Runs a script or a module as ``python`` would, with ``dgl.nn`` redirected."""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from dgl_flash.legacy.redirect import enable_cuda, redirected
from dgl_flash.legacy.report import Tally

_ROOT = Path(__file__).resolve().parents[2]
_SITE = Path(__file__).resolve().parent / "site"
_INTERRUPTED = 130  # what shells report for Ctrl-C


def run_script(script: str, args: Sequence[str] = (), *, quiet: bool = False) -> int:
    """Run a script, as ``python SCRIPT ARGS``.

    Parameters
    ----------
    script : str
        Path of the script.
    args : sequence of str
        Its arguments.
    quiet : bool
        Leave out the report, which otherwise goes to stderr at the end.

    Returns
    -------
    int
        Exit status.
    """
    if not Path(script).exists():
        print(f"dgl-flash run: there is no file {script!r}; check the path", file=sys.stderr)
        return 2
    folder = str(Path(script).resolve().parent)
    with _as_started([script, *args], folder):
        return _run(lambda: runpy.run_path(script, run_name="__main__"), quiet)


def run_module(module: str, args: Sequence[str] = (), *, quiet: bool = False) -> int:
    """Run a module, as ``python -m MODULE ARGS``.

    Parameters
    ----------
    module : str
        Dotted name.
    args : sequence of str
        Its arguments.
    quiet : bool
        Leave out the report, which otherwise goes to stderr at the end.

    Returns
    -------
    int
        Exit status.
    """
    with _as_started([module, *args], os.getcwd()):
        return _run(lambda: runpy.run_module(module, run_name="__main__", alter_sys=True), quiet)


def _run(program: Callable[[], Any], quiet: bool) -> int:
    tally = Tally()
    try:
        with tally.counting(), contextlib.ExitStack() as stack:

            def ready(modules: dict[str, ModuleType]) -> None:
                tally.watch(modules)
                stack.enter_context(enable_cuda())

            stack.enter_context(redirected(ready))
            return _status(program)
    finally:
        if not quiet:
            sys.stdout.flush()  # keeps the order where both streams go to one file
            print(tally, file=sys.stderr)


def _status(program: Callable[[], Any]) -> int:
    """Run to the end and turn whatever ends it into an exit status."""
    try:
        program()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BaseException as error:
        trace = _without_ours(error.__traceback__)
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        return 1
    return 0


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """Skip the frames that lie between the command and the program."""
    ours = (__name__, "runpy")
    while trace is not None and trace.tb_frame.f_globals.get("__name__") in ours:
        trace = trace.tb_next
    return trace


@contextlib.contextmanager
def _as_started(argv: list[str], folder: str) -> Iterator[None]:
    """Arguments, search path and environment as if Python had started with the program."""
    argv_before, path_before = sys.argv, sys.path
    python_path = os.environ.get("PYTHONPATH")
    # Without a choice of backend DGL prints about it and writes a file into the home directory.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    os.environ["PYTHONPATH"] = os.pathsep.join(_search_path(python_path))
    sys.argv = argv
    sys.path = [folder, *(sys.path if getattr(sys.flags, "safe_path", False) else sys.path[1:])]
    try:
        yield
    finally:
        sys.argv, sys.path = argv_before, path_before
        if python_path is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = python_path


def _search_path(python_path: str | None) -> list[str]:
    """Where processes of the program look: first in the folder that redirects them, too."""
    parts = [str(_SITE), *([python_path] if python_path else [])]
    # A checkout that is not installed. A folder of packages must not come before Python's own.
    if _ROOT.name not in ("site-packages", "dist-packages"):
        parts.append(str(_ROOT))
    return parts
