"""``dgl-flash check``: arguments, what it prints, exit status."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dgl_flash.cli import check as command

MODELS = """
import dgl_flash
import dgl, torch

def make(nn):
    return nn.GATv2Conv(5, 4, num_heads=2)

def wide(nn):
    return nn.GraphConv(32, 3)

def wrong(nn):
    layer = nn.GraphConv(5, 3)
    if nn is dgl_flash.nn:
        layer.register_forward_hook(lambda module, inputs, output: 1.01 * output)
    return layer

finished = make(dgl_flash.nn)

class Nested:
    make = staticmethod(make)
"""
DATA = """
def graph_and_feat():
    graph = dgl.add_self_loop(dgl.rand_graph(20, 50))
    return graph, torch.randn(20, 5)

a_pair = graph_and_feat()
no_pair = 3
"""


def main(*words: str) -> int:
    """The command alone, as the parser of ``dgl-flash`` adds it."""
    parser = argparse.ArgumentParser(prog="dgl-flash")
    command.add_parser(parser.add_subparsers(required=True))
    arguments = parser.parse_args(["check", *words])
    return arguments.run(arguments)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A current directory with two modules of the user's."""
    (tmp_path / "users_models.py").write_text(MODELS)
    (tmp_path / "users_data.py").write_text(MODELS + DATA)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for name in ("users_models", "users_data"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("users_data:make", "--repeats", "1") == 0
    out = capsys.readouterr().out
    assert out.startswith("the same: 1 module, 1 output, ")
    assert "forward + backward" in out and "peak memory" in out


def test_a_random_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("users_models:wide", "--repeats=0") == 0
    assert main("users_models:make", "--repeats=0", "--in-feats=5", "--seed=3", "--train") == 0
    assert main("users_models:make", "--repeats=0") == 1
    error = capsys.readouterr().err
    assert error.startswith("dgl-flash check: the model fails with dgl.nn already (RuntimeError")


@pytest.mark.parametrize("graph", ["users_data:graph_and_feat", "users_data:a_pair"])
def test_a_graph_of_the_users(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main("users_models:Nested.make", "--graph", graph, "--repeats=0") == 0
    assert main("users_models:finished", "--graph", graph, "--repeats=0") == 0


def test_dtype_and_device(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--dtype=float64", "--device=cpu", "--repeats=0"]
    assert main("users_data:make", *options) == 0
    assert "nothing is finer than float64" in capsys.readouterr().out


def test_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("users_data:wrong", "--repeats=0") == 1
    assert capsys.readouterr().out.startswith(
        "DIFFERENT: look first at module the model (GraphConv): differs by "
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["nowhere:make"],
            "cannot import nowhere (No module named 'nowhere'); run from",
        ),
        (["users_models:maker"], "users_models has no maker; give a name that it defines"),
        (["users_models:make", "--graph=users_data:no_pair"], "gives no (graph, feat); return"),
        (["users_data:make", "--device=cuda:99"], "there is no device cuda:99"),
    ],
    ids=["module", "name", "graph", "device"],
)
def test_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(*words, "--repeats=0") == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("dgl-flash check: ") and message in captured.err
    assert captured.out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "the following arguments are required: MODULE:NAME"),
        (["users_models"], "must look like module:name, got 'users_models'"),
        (["users_models:make", "--repeats=-1"], "must be a whole number of at least 0, got -1"),
        (["users_models:make", "--in-feats=0"], "must be a whole number of at least 1, got 0"),
        (["users_models:make", "--dtype=int8"], "invalid choice: 'int8'"),
    ],
    ids=["nothing", "colon", "repeats", "width", "dtype"],
)
def test_usage(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main(*words)
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        main("--help")
    assert raised.value.code == 0
    out = capsys.readouterr().out
    assert "dgl-flash check mymodel:make --graph mydata:load" in out
    assert "exit status: 0 the same, 1 different" in out


def test_the_command_alone_loads_neither_dgl_nor_the_layers() -> None:
    code = (
        "import sys, dgl_flash.cli.check; "
        "print(*sorted({'dgl', 'dgl_flash.nn', 'cupy'} & set(sys.modules)))"
    )
    root = str(Path(command.__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.split() == []
