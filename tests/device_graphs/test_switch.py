"""Enabling and disabling."""

from __future__ import annotations

import sys

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from dgl.heterograph_index import HeteroGraphIndex

from dgl_flash.device_graphs import switch
from tests.compat.scripts import run


def everything():
    """All that modules and classes of DGL have bound."""
    owners = [module for name, module in sys.modules.items() if name.split(".")[0] == "dgl"]
    owners += [dgl.DGLGraph, HeteroGraphIndex]
    return {(id(owner), name): id(value) for owner in owners for name, value in vars(owner).items()}


@pytest.fixture(autouse=True)
def afterwards():
    yield
    dgl_flash.disable_cuda()


def test_disabling_leaves_nothing():
    before = everything()
    assert dgl_flash.enable_cuda().changed
    assert switch.is_enabled()
    assert everything() != before
    dgl_flash.disable_cuda()
    assert everything() == before
    assert not switch.is_enabled()


def test_once_is_enough():
    assert dgl_flash.enable_cuda().changed
    during = everything()
    assert not dgl_flash.enable_cuda().changed
    assert everything() == during
    dgl_flash.disable_cuda()
    dgl_flash.disable_cuda()


def test_context_manager():
    with dgl_flash.enable_cuda() as enabled:
        assert enabled.changed and switch.is_enabled()
        with dgl_flash.enable_cuda():
            pass
        assert switch.is_enabled(), "the inner one has changed nothing"
    assert not switch.is_enabled()
    with pytest.raises(KeyError), dgl_flash.enable_cuda():
        raise KeyError
    assert not switch.is_enabled()


def test_a_dgl_with_cuda_is_left_alone(monkeypatch):
    monkeypatch.setattr(switch, "has_cuda", lambda: True)
    before = everything()
    with pytest.warns(UserWarning, match="built with CUDA, nothing is changed"):
        assert not dgl_flash.enable_cuda().changed
    assert everything() == before


def test_other_versions_are_told(monkeypatch):
    monkeypatch.setattr(dgl, "__version__", "0.9.1")
    with pytest.warns(UserWarning, match=r"0\.9\.1 .*2\.1\.0"):
        dgl_flash.enable_cuda()


def test_the_wheel_has_no_cuda():
    assert not switch.has_cuda()


def test_graphs_on_the_host_are_as_before():
    with dgl_flash.enable_cuda():
        graph = dgl.graph(([0, 1], [1, 2]))
        assert graph.device == torch.device("cpu") == graph.to("cpu").device
        assert graph.edges()[0].tolist() == [0, 1]
        assert dgl.ops.copy_u_sum(graph, torch.ones(3, 1)).tolist() == [[0], [1], [1]]


def test_without_a_gpu_torch_tells():
    if torch.cuda.is_available():
        return
    with (
        dgl_flash.enable_cuda(),
        pytest.raises((AssertionError, RuntimeError), match=r"CUDA|NVIDIA"),
    ):
        graph = dgl.graph(([0, 1], [1, 2]))
        graph.ndata["h"] = torch.ones(3, 1)
        graph.to("cuda").ndata["h"]


def test_the_process_ends_well():
    """With enabled and disabled functions alive: each has a handle of its own to free."""
    run(
        "import dgl_flash, dgl\n"
        "dgl_flash.enable_cuda(); dgl_flash.disable_cuda(); dgl_flash.enable_cuda()\n"
        "graph = dgl.graph(([0, 1], [1, 2]))\n"
    )


def test_each_function_stays_itself():
    """By its whole name: of two that share the last part of theirs neither is replaced."""
    from dgl._ffi.function import list_global_func_names

    last = [name.rpartition(".")[2] for name in list_global_func_names()]
    dgl_flash.enable_cuda()
    replaced = {name for _, name, value in switch._changed if type(value).__name__ == "Function"}
    assert len(replaced) > 100
    assert {name for name in replaced if last.count(name) != 1} == set()
