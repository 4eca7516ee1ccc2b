"""The finder and the stand-in, against small packages that play DGL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import dgl_flash.compat
from dgl_flash.compat.graphbolt import GraphboltFinder, GraphboltStandIn

from .scripts import run

INSTALL = "import sys, dgl_flash\n"


def package(folder: Path, **modules: str) -> None:
    """A package `dgl` in `folder`: `init` is its __init__, `a__b` the module dgl.a.b."""
    for name, text in modules.items():
        parts = [] if name == "init" else name.split("__")
        file = folder.joinpath("dgl", *parts, "__init__.py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


@pytest.fixture
def stand_in(tmp_path: Path) -> GraphboltStandIn:
    for release in ("2.10.0", "2.2.1", "2.0.0"):
        (tmp_path / f"libgraphbolt_pytorch_{release}.so").touch()
    return GraphboltStandIn(FileNotFoundError("no library"), [str(tmp_path)])


def test_install_once() -> None:
    dgl_flash.compat.install()
    dgl_flash.compat.install()
    assert sum(isinstance(finder, GraphboltFinder) for finder in sys.meta_path) == 1


def test_importing_dgl_flash_does_not_import_dgl() -> None:
    run(INSTALL + "assert not [n for n in sys.modules if n.split('.')[0] == 'dgl']")


def test_the_message_names_cause_and_remedy(stand_in: GraphboltStandIn) -> None:
    with pytest.raises(AttributeError) as caught:
        stand_in.ItemSet  # noqa: B018
    text = str(caught.value)
    assert text.startswith("dgl.graphbolt.ItemSet is not available")
    assert "FileNotFoundError: no library" in text
    assert "2.0.0, 2.2.1, 2.10.0" in text
    assert "dgl.dataloading" in text
    assert not hasattr(stand_in, "__wrapped__")


def test_no_graph_is_a_graphbolt_graph(stand_in: GraphboltStandIn) -> None:
    assert not isinstance(object(), stand_in.FusedCSCSamplingGraph)
    with pytest.raises(ImportError, match="FusedCSCSamplingGraph is not available"):
        stand_in.FusedCSCSamplingGraph(1, 2)


def test_a_graphbolt_that_loads_is_left_alone(tmp_path: Path) -> None:
    package(
        tmp_path,
        init="from . import graphbolt",
        graphbolt="from . import base\nhere = 1",
        graphbolt__base="",
    )
    code = """
import dgl, dgl.graphbolt, importlib.machinery, inspect
assert dgl.graphbolt.here == 1 and dgl.graphbolt.base
assert type(dgl.graphbolt.__loader__) is importlib.machinery.SourceFileLoader
assert dgl.graphbolt.__spec__.loader is dgl.graphbolt.__loader__
assert "here" in inspect.getsource(dgl.graphbolt)
"""
    run(INSTALL + code, tmp_path)


@pytest.mark.parametrize("error", ["FileNotFoundError", "ImportError", "OSError", "RuntimeError"])
def test_a_graphbolt_that_does_not_load_is_replaced(tmp_path: Path, error: str) -> None:
    package(
        tmp_path,
        init="from . import graphbolt\n__version__ = '2.1.0'",
        graphbolt=f"from . import base\nraise {error}('broken')",
        graphbolt__base="",
    )
    code = """
import dgl, pickle
assert "dgl.graphbolt.base" not in sys.modules
assert dgl.graphbolt is sys.modules["dgl.graphbolt"]
for statement in (
    "from dgl.graphbolt import ItemSet",
    "from dgl.graphbolt.impl import ItemSet",
    "import dgl.graphbolt.base",
):
    try:
        exec(statement)
    except ImportError as error:
        assert "of DGL 2.1.0 cannot load" in str(error) and "broken" in str(error), error
    else:
        raise AssertionError(statement)
class Nameless:
    __module__ = None
try:
    pickle.dumps(Nameless)  # asks every module for the name
except pickle.PicklingError:
    pass
"""
    run(INSTALL + code, tmp_path)


def test_interrupts_go_through(tmp_path: Path) -> None:
    package(tmp_path, init="from . import graphbolt", graphbolt="raise KeyboardInterrupt")
    run(INSTALL + "try:\n    import dgl\nexcept KeyboardInterrupt:\n    pass\n", tmp_path)


def test_a_dgl_without_graphbolt_is_left_alone(tmp_path: Path) -> None:
    package(tmp_path, init="__version__ = '1.1.3'")
    code = """
import dgl
try:
    import dgl.graphbolt
except ModuleNotFoundError as error:
    assert error.name == "dgl.graphbolt" and not hasattr(dgl, "graphbolt")
else:
    raise AssertionError("there is none")
"""
    run(INSTALL + code, tmp_path)


def test_a_stand_in_of_the_user_stays(tmp_path: Path) -> None:
    package(tmp_path, init="from . import _ffi, graphbolt\nraise_ = 1", _ffi="")
    code = """
import sys, types
own = sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
import dgl_flash, dgl
assert dgl.graphbolt is own
"""
    run(code, tmp_path)


def test_a_failed_import_is_cleared_but_a_stand_in_of_the_user_stays(tmp_path: Path) -> None:
    package(
        tmp_path,
        init="from . import _ffi, graphbolt, gone\n",
        _ffi="",
        gone="import sys\nif not hasattr(sys, 'second'): raise ImportError('gone')",
    )
    code = """
import sys, types
own = sys.modules["dgl.graphbolt"] = types.ModuleType("dgl.graphbolt")
try:
    import dgl
except ImportError:
    sys.second = True
old = sys.modules["dgl._ffi"]
import dgl_flash, dgl
assert dgl.graphbolt is own and dgl._ffi is not old
"""
    run(code, tmp_path, warnings="ignore")
