"""A stand-in for ``dgl.graphbolt``, used only where the real one cannot load."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_NAME = "dgl.graphbolt"


class GraphboltFinder(MetaPathFinder):
    """Wraps the loader of ``dgl.graphbolt`` and refuses the sub-modules of the stand-in.

    It answers to no other name, so every other import goes on as if it were not there.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find ``dgl.graphbolt`` as the import system would, with a loader that may fall back.

        Parameters
        ----------
        fullname : str
            Dotted name of the module.
        path : sequence of str, optional
            Where the parent package lies.
        target : module, optional
            Module object to be reloaded.

        Returns
        -------
        ModuleSpec or None
            None for every other module, and when this DGL has no graphbolt (1.x).

        Raises
        ------
        ImportError
            A name or sub-module is imported from the stand-in.
        """
        if fullname.startswith(_NAME + "."):
            parent = sys.modules.get(_NAME)
            if isinstance(parent, GraphboltStandIn):
                raise ImportError(parent.explain(fullname), name=fullname)
            return None
        if fullname != _NAME:
            return None
        spec = self._real_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _FallbackLoader(spec.loader)
        return spec

    def _real_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is not self and find_spec is not None:
                spec: ModuleSpec | None = find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None


class _FallbackLoader(Loader):
    """Runs the real module; when that raises, leaves the stand-in in ``sys.modules``."""

    def __init__(self, real: Loader) -> None:
        self._real = real

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        assert spec is not None
        # From here on the module looks as if nobody had wrapped its loader.
        spec.loader = module.__loader__ = self._real
        try:
            self._real.exec_module(module)
        except Exception as error:
            for name in [name for name in sys.modules if name.startswith(_NAME + ".")]:
                del sys.modules[name]
            # The import system takes from sys.modules what it binds in the parent package.
            sys.modules[_NAME] = GraphboltStandIn(error, spec.submodule_search_locations or [])


class GraphboltStandIn(ModuleType):
    """Module that explains, at every use, why ``dgl.graphbolt`` is not there.

    Parameters
    ----------
    error : Exception
        What the real module raised.
    folders : sequence of str
        Where the real module lies; its shared libraries tell the torch releases it is for.
    """

    def __init__(self, error: Exception, folders: Sequence[str]) -> None:
        super().__init__(_NAME, "Stand-in of dgl_flash: graphbolt could not be loaded.")
        self.__spec__ = importlib.util.spec_from_loader(_NAME, loader=None, is_package=True)
        # As a package without folders, `from dgl.graphbolt import X` asks the finder for X, which
        # can answer with the whole explanation instead of "cannot import name".
        self.__path__: list[str] = []
        self._cause = f"{type(error).__name__}: {error}"
        self._releases = _releases_with_library(folders)
        # dgl.distributed asks isinstance(graph, FusedCSCSamplingGraph) of ordinary graphs too.
        self.FusedCSCSamplingGraph = _placeholder_class(self, "FusedCSCSamplingGraph")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        # AttributeError, so that hasattr() and pickle's scan of all modules keep working.
        raise AttributeError(self.explain(f"{_NAME}.{name}"))

    def explain(self, name: str) -> str:
        """Say why `name` is missing and what to do.

        Parameters
        ----------
        name : str
            Dotted name that was asked for.

        Returns
        -------
        str
            Text for an exception.
        """
        torch_version = getattr(sys.modules.get("torch"), "__version__", "this torch")
        dgl_version = getattr(sys.modules.get("dgl"), "__version__", "")
        built_for = ", ".join(self._releases) or "no release of torch"
        return (
            f"{name} is not available: graphbolt of DGL {dgl_version} cannot load beside torch "
            f"{torch_version} ({self._cause}); dgl_flash put a stand-in in its place so that the "
            "rest of DGL works. Use the samplers and the DataLoader of dgl.dataloading, or "
            f"install a torch that this graphbolt has a library for ({built_for}) together with "
            "torchdata < 0.10."
        )


def _releases_with_library(folders: Sequence[str]) -> list[str]:
    pattern = re.compile(r"graphbolt_pytorch_(\d+(?:\.\d+)*)\.")
    found = [
        match.group(1)
        for folder in folders
        for file in Path(folder).glob("*graphbolt_pytorch_*")
        if (match := pattern.search(file.name))
    ]
    return sorted(found, key=lambda release: [int(part) for part in release.split(".")])


def _placeholder_class(module: GraphboltStandIn, name: str) -> type:
    def refuse(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise ImportError(module.explain(f"{_NAME}.{name}"), name=_NAME)

    return type(name, (), {"__module__": _NAME, "__new__": refuse})
