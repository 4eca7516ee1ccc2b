"""DGL's longer import path, ``dgl.nn.pytorch``: the same modules and classes as ``dgl_flash.nn``.

Classes keep ``dgl_flash.nn`` as their home, so that pickles do not depend on how a class was
imported.
"""

from __future__ import annotations

import sys

from dgl_flash import nn
from dgl_flash.nn import *  # noqa: F403
from dgl_flash.nn import (  # noqa: F401
    conv,
    explain,
    factory,
    functional,
    glob,
    gt,
    hetero,
    linear,
    link,
    network_emb,
    softmax,
    sparse_emb,
    utils,
)
from dgl_flash.nn.missing import attribute_of

# Being a package without files lets `import dgl_flash.nn.pytorch.conv.gatv2conv` come as far as
# sys.modules, where the names below lead to the one copy of each module.
__path__: list[str] = []
__all__ = nn.__all__

_HERE = f"{nn.__name__}."
for _name, _module in list(sys.modules.items()):
    if _name.startswith(_HERE) and not _name.startswith(__name__):
        sys.modules[f"{__name__}.{_name.removeprefix(_HERE)}"] = _module

__getattr__ = attribute_of(__name__)
