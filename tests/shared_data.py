"""Where the folders of data shared between checkouts lie, if they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.paths import find_shared


def shared_folder(name: str) -> Path:
    """Find a shared folder (``data`` or ``bench``), or skip the test."""
    folder = find_shared(name)
    if folder is None:
        pytest.skip(f"no shared folder {name!r}; set DGL_FLASH_SHARED to the folder that holds it")
    return folder
