"""Execute notebooks top to bottom: python notebooks/execute.py [NOTEBOOK ...] [--discard].

Without names, all notebooks of this folder run. What they show is stored in them, unless --discard
is given. With the environment variable DGL_FLASH_NOTEBOOK_SMALL=1 they train for a few epochs only.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def execute(path: Path, *, store: bool) -> None:
    """Run one notebook; an exception in a cell is raised here with its traceback."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        timeout=1200,
        kernel_name="python3",
        resources={"metadata": {"path": str(FOLDER)}},
        record_timing=False,
        extra_arguments=["--Application.log_level=ERROR"],  # it warns that it talks over TCP
    ).execute()
    if store:
        # The version of whichever Python ran it would change the file from machine to machine.
        notebook.metadata.pop("language_info", None)
        nbformat.write(notebook, path)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Execute notebooks top to bottom.")
    parser.add_argument("notebooks", nargs="*", type=Path, metavar="NOTEBOOK")
    parser.add_argument("--discard", action="store_true", help="do not store what the cells show")
    options = parser.parse_args(argv)
    # A checkout that is not installed must be importable in the kernel too.
    places = [str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(place for place in places if place)
    for path in options.notebooks or sorted(FOLDER.glob("*.ipynb")):
        print(f"executing {path.name}", file=sys.stderr)
        execute(path, store=not options.discard)


if __name__ == "__main__":
    main()
