"""The paths of dgl.nn, against both libraries as they are."""

from __future__ import annotations

import importlib

import dgl_flash  # noqa: F401

# isort: split
import dgl.nn
import pytest

from dgl_flash.migration.targets import home, is_module, star_names, why_missing
from dgl_flash.nn.missing import DGL_MODULES, DGL_NAMES


@pytest.mark.parametrize("prefix", ["dgl.nn", "dgl.nn.pytorch"])
def test_every_public_name_has_its_place(prefix: str) -> None:
    assert [name for name in DGL_NAMES if why_missing(f"{prefix}.{name}")] == []
    assert {home(prefix, name) for name in DGL_NAMES} == {prefix.replace("dgl", "dgl_flash")}


def test_every_module_has_its_place() -> None:
    paths = ["dgl.nn", "dgl.nn.pytorch", "dgl.nn.functional"]
    paths += [f"dgl.nn.pytorch.{module}" for module in DGL_MODULES]
    for path in paths:
        importlib.import_module(path)
        assert is_module(path)
        importlib.import_module(path.replace("dgl", "dgl_flash", 1))


def test_public_classes_are_found_in_the_modules_that_define_them() -> None:
    for name in DGL_NAMES - {"NodeEmbedding"}:
        module = getattr(dgl.nn, name).__module__
        if module.startswith("dgl.nn"):
            assert home(module, name) == module.replace("dgl", "dgl_flash", 1)


def test_star_import_brings_the_public_names() -> None:
    assert DGL_NAMES - star_names("dgl.nn") == {"NodeEmbedding"}
