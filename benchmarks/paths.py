"""Where things lie: the checkout, and the data sets that are shared between checkouts."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


def find_shared(name: str) -> Path | None:
    """Find a shared folder: in ``$DGL_FLASH_SHARED``, beside the checkout, or in ``.gpu`` in it."""
    places = [ROOT.parent / "shared", ROOT / ".gpu"]
    if "DGL_FLASH_SHARED" in os.environ:
        places.insert(0, Path(os.environ["DGL_FLASH_SHARED"]))
    found = (place / name for place in places if (place / name).is_dir())
    return next(found, None)
