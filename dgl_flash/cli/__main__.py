"""``python -m dgl_flash.cli``."""

from __future__ import annotations

import sys

from .parser import main

sys.exit(main())
