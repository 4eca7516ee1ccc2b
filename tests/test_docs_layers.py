"""The page about all layers is what its generator writes, and has every name of dgl.nn."""

from __future__ import annotations

import dgl_flash.nn as ours

# isort: split
import importlib
import inspect
import re

import dgl.nn as theirs
import pytest

from docs import layers

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
PACKAGES = ["conv", "explain", "factory", "glob", "gt", "hetero"]
PACKAGES += ["link", "network_emb", "sparse_emb", "utils"]
# What DGL's own code is made of, and ours is not.
NOT_HERE = {"Identity", "bmm_maybe_select", "matmul_maybe_select"}


def rows():
    """The cells of each row, by name."""
    lines = layers.PAGE.read_text().splitlines()
    cells = [re.split(r" (?<!\\)\| ", line[2:-2]) for line in lines if line.startswith("| `")]
    return {name.strip("`"): rest for name, *rest in cells}


def public(module):
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    }


def test_the_page_is_what_the_code_says():
    assert layers.PAGE.read_text() == layers.page(), "`make docs` writes it anew"


def test_every_name_of_dgl_has_a_row():
    assert (public(theirs) | public(theirs.functional)) - rows().keys() == set()
    assert set(ours.__all__) - rows().keys() == {
        name for name in ours.__all__ if inspect.ismodule(getattr(ours, name))
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_every_name_of_a_package_of_dgl_has_a_row(package):
    module = importlib.import_module(f"dgl.nn.pytorch.{package}")
    named = {
        name for name in public(module) if getattr(module, name).__module__.startswith("dgl.nn")
    }
    assert named - rows().keys() - NOT_HERE == set()


def test_a_row_has_five_cells():
    assert {len(cells) for cells in rows().values()} == {4}
    kinds = {cells[0] for cells in rows().values()}
    assert kinds == {"fused", "accelerated", "plain torch", "its layers'", "DGL's own"}


@pytest.mark.parametrize("name", sorted(rows()))
def test_texts_fit_what_was_seen(name):
    """A layer that calls kernels names them or the layer that does, and no other does."""
    kind, _, on_cuda, _ = rows()[name]
    as_another = re.match(r"(?:That of|See) `(\w+)`", on_cuda)
    if as_another is not None:
        assert rows()[as_another.group(1)][0] == kind
    elif kind == "fused":
        assert "kernel" in on_cuda or "`dgl_flash.ops." in on_cuda
    elif kind == "plain torch":
        assert on_cuda.startswith("No kernel")
    elif kind == "accelerated":
        assert "CUDA kernel" not in on_cuda
