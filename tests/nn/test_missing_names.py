"""All names of dgl.nn are there; one that DGL adds says so, wherever it is asked for."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys

import pytest

from dgl_flash.nn import missing
from tests.nn.common import ours, theirs

# What there is, by itself; tests/nn/test_layers.py has the list of the layers.
HERE = set(ours.__all__) & missing.DGL_NAMES | missing.LAZY.keys()
MODULES_HERE = {
    module.name.removeprefix("dgl_flash.nn.")
    for module in pkgutil.walk_packages(ours.__path__, "dgl_flash.nn.")
}


def test_the_list_of_names_is_live_dgls():
    names = {
        name
        for name, value in vars(theirs).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert names - {"backend_name"} == missing.DGL_NAMES


def test_the_list_of_modules_is_live_dgls():
    package = importlib.import_module("dgl.nn.pytorch")
    prefix = f"{package.__name__}."
    found = {module.name for module in pkgutil.walk_packages(package.__path__, prefix)}
    assert {name.removeprefix(prefix) for name in found} == missing.DGL_MODULES


def test_nothing_is_missing():
    assert missing.DGL_NAMES == HERE
    assert missing.DGL_MODULES <= MODULES_HERE


def test_a_name_that_dgl_adds(monkeypatch):
    monkeypatch.setattr(missing, "DGL_NAMES", missing.DGL_NAMES | {"NewConv"})
    text = r"dgl_flash\.nn\.NewConv is not in dgl_flash yet; dgl\.nn\.NewConv can be used meanwhile"
    with pytest.raises(AttributeError, match=text):
        _ = ours.NewConv
    with pytest.raises(ImportError, match=text):
        exec("from dgl_flash.nn import NewConv")
    assert not hasattr(ours, "NewConv")


@pytest.mark.parametrize("module", ["nn", "nn.conv", "nn.pytorch", "nn.pytorch.conv"])
def test_every_import_path_says_it(module, monkeypatch):
    monkeypatch.setattr(missing, "DGL_NAMES", missing.DGL_NAMES | {"NewConv"})
    path = f"dgl_flash.{module}"
    text = "NewConv is not in dgl_flash yet"
    with pytest.raises(AttributeError, match=text):
        _ = importlib.import_module(path).NewConv
    with pytest.raises(ImportError, match=text):
        exec(f"from {path} import NewConv")


def test_a_module_that_dgl_adds(monkeypatch):
    monkeypatch.setattr(missing, "DGL_MODULES", missing.DGL_MODULES | {"conv.newconv"})
    for prefix in ("dgl_flash.nn.pytorch", "dgl_flash.nn"):
        with pytest.raises(ImportError, match=r"not in dgl_flash yet; dgl\.nn\.pytorch\."):
            importlib.import_module(f"{prefix}.conv.newconv")


@pytest.mark.parametrize("name", sorted(HERE))
def test_what_is_here(name):
    assert name in missing.DGL_NAMES
    assert getattr(ours, name) is getattr(importlib.import_module("dgl_flash.nn.pytorch"), name)


def test_other_names_fail_as_usual():
    with pytest.raises(AttributeError, match=r"module 'dgl_flash\.nn' has no attribute 'Nonsense'"):
        _ = ours.Nonsense
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        exec("from dgl_flash.nn import Nonsense")
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'dgl_flash\.nn\.nonsense'"):
        importlib.import_module("dgl_flash.nn.nonsense")


def test_the_finder_is_installed_once_and_answers_for_nothing_else():
    finders = [finder for finder in sys.meta_path if isinstance(finder, missing._Finder)]
    missing.install()
    assert [f for f in sys.meta_path if isinstance(f, missing._Finder)] == finders
    (finder,) = finders
    assert finder.find_spec("dgl.nn.GATConv", None) is None
    assert finder.find_spec("other.GATConv", None) is None
    assert finder.find_spec("dgl_flash.nn.conv.somewhere", None) is None
