"""DGL's C functions, which hand the home of their arguments on to their results."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dgl_flash.device_graphs.arrays import PLAIN, home_among, write_back
from dgl_flash.structure.homes import set_home


def homed_functions() -> Iterator[tuple[Any, str, Any]]:
    """Module, name and replacement of each C function that the modules of DGL have bound."""
    from dgl._ffi.function import Function, list_global_func_names

    call = Function.__call__
    settle = _settler()

    class HomedFunction(Function):
        """The same C function. A subclass, because DGL's constructors take nothing else."""

        def __call__(self, *arguments: Any) -> Any:
            home = home_among(arguments)
            result = call(self, *arguments)
            if home is None:
                return result
            write_back(arguments)
            return settle(result, home)

    # Modules know the last part of a name. Where that names two functions, DGL's are left alone:
    # conversions of graphs from before there were types, which read the host only.
    known = list_global_func_names()
    count = Counter(name.rpartition(".")[2] for name in known)
    names = {short: name for name in known if count[short := name.rpartition(".")[2]] == 1}
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] == "dgl"]:
        for name, value in list(vars(module).items()):
            if type(value) is Function and name in names:
                yield module, name, HomedFunction(_handle(names[name]), False)


def _handle(name: str) -> Any:
    """A handle of one's own: each function frees the one that it has."""
    from dgl._ffi import base, function

    handle = function.FunctionHandle()
    base.check_call(base._LIB.DGLFuncGetGlobal(base.c_str(name), ctypes.byref(handle)))
    return handle


def _settler() -> Callable[[Any, torch.device], Any]:
    """What gives a result of a C function a home, if it is something that can have one."""
    from dgl._ffi.function import Function
    from dgl._ffi.ndarray import NDArrayBase
    from dgl._ffi.object import ObjectBase
    from dgl.graph_index import GraphIndex

    def settle(result: Any, home: torch.device) -> Any:
        if type(result) in PLAIN:
            return result
        if isinstance(result, Function):  # the parts of a result are taken by calls of it
            return lambda *arguments: settle(result(*arguments), home)
        # A graph of types is no graph of nodes: DGL reads it on the host wherever the nodes are.
        if isinstance(result, (NDArrayBase, ObjectBase)) and not isinstance(result, GraphIndex):
            return set_home(result, home)
        return result

    return settle
