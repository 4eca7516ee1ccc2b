"""Makes ``import dgl`` succeed beside torch releases that DGL was not built for.

DGL 2.x imports ``dgl.graphbolt`` unconditionally. That module loads a shared library which exists
only for the torch releases of its day, and needs ``torchdata.datapipes``, which torchdata dropped
in 0.10; either loss makes the whole of DGL unimportable, although graphbolt is only one of its
data loaders. See :mod:`dgl_flash.compat.graphbolt` for what is put in its place.
"""

from __future__ import annotations

import sys
import warnings

from dgl_flash.compat.graphbolt import GraphboltFinder

__all__ = ["install"]

_RETRY_TEXT = (
    "an earlier `import dgl` failed in this process. dgl_flash has cleared what it left behind, "
    "so `import dgl` works from here on; code that has already given up on DGL (`dgl = None`) "
    "does not notice. Write `import dgl_flash` above the first `import dgl`."
)


def install() -> None:
    """Let ``import dgl`` succeed without graphbolt; ``import dgl_flash`` calls this.

    It imports nothing of DGL and costs microseconds. Where DGL imports by itself, or is imported
    already, nothing changes.

    Warns
    -----
    UserWarning
        An ``import dgl`` has failed before. Its half-imported modules are dropped, because DGL
        would otherwise come up without some of its sub-modules.
    """
    if not any(isinstance(finder, GraphboltFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, GraphboltFinder())
    if _drop_failed_import():
        warnings.warn(_RETRY_TEXT, UserWarning, stacklevel=3)


def _drop_failed_import() -> bool:
    # A failed import removes the package from sys.modules and keeps the sub-modules that it had
    # finished. On the next try those are found, hence not bound to the new package.
    if "dgl" in sys.modules or "dgl._ffi" not in sys.modules:
        return False
    for name in [name for name in sys.modules if name.startswith("dgl.")]:
        # A module that somebody made by hand, a stand-in of their own, has no spec: keep it.
        if getattr(sys.modules[name], "__spec__", None) is not None:
            del sys.modules[name]
    return True
