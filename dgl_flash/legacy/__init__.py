"""Runs scripts that were written for ``dgl.nn`` on the layers of dgl_flash, unchanged.

:func:`redirected` puts ``dgl_flash.nn`` in the place of ``dgl.nn``; :mod:`dgl_flash.legacy.program`
runs a script or a module inside of it and counts what it used.
"""

from __future__ import annotations

# The rest imports torch, which the processes that a script starts need not do.
from dgl_flash.legacy.redirect import redirected

__all__ = ["redirected"]
