"""Tell whether a model does with ``dgl_flash.nn`` what it does with ``dgl.nn``.

:func:`check` runs both on the same weights, graph and features; ``dgl-flash check`` is the same on
the command line.
"""

from __future__ import annotations

from .compare import Difference
from .errors import CheckError
from .measure import Cost
from .result import CheckResult, Side
from .run import check

__all__ = ["CheckError", "CheckResult", "Cost", "Difference", "Side", "check"]
