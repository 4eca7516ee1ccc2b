"""Redirects ``dgl.nn`` in a process that a redirected script has started.

Python imports a module of this name at its start: so workers that are spawned, and scripts that
are started by scripts, are served as the first one was.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import PathFinder
from pathlib import Path

# The folder has done its work. Without it the next line finds the sitecustomize that this hides.
_FOLDER = Path(__file__).parent
sys.path[:] = [entry for entry in sys.path if Path(entry) != _FOLDER]
_hidden = PathFinder.find_spec("sitecustomize")
if _hidden is not None and _hidden.loader is not None:
    _hidden.loader.exec_module(importlib.util.module_from_spec(_hidden))

try:
    from dgl_flash.legacy.redirect import install_for_good
except ImportError:  # another Python, without dgl_flash
    pass
else:
    install_for_good()
