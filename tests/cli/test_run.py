"""``dgl-flash run``: a program sees dgl_flash where it imports dgl.nn, and nothing else changes."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import dgl_flash
from dgl_flash.cli import run
from dgl_flash.legacy import redirected
from dgl_flash.legacy.report import Tally, _Calls
from dgl_flash.ops.dispatch import Choice
from tests.compat.scripts import environment

SITE = Path(run.__file__).parents[1] / "legacy" / "site"

Runner = Callable[..., int]


def command(*arguments: str) -> int:
    """Exit status of ``dgl-flash run ...``."""
    parser = argparse.ArgumentParser()
    run.add_parser(parser.add_subparsers())
    parsed = parser.parse_args(["run", *arguments])
    status: int = parsed.run(parsed)
    return status


@pytest.fixture
def run_code(tmp_path: Path) -> Runner:
    """Exit status of a program that consists of the given lines."""

    def call(code: str, *arguments: str, quiet: bool = True) -> int:
        script = tmp_path / "train.py"
        script.write_text(textwrap.dedent(code))
        return command(*(["--quiet"] if quiet else []), str(script), *arguments)

    return call


SPELLINGS = {
    "import dgl.nn": "dgl.nn.GraphConv",
    "import dgl": "dgl.nn.GraphConv",
    "import dgl.nn as dglnn": "dglnn.GraphConv",
    "from dgl import nn": "nn.GraphConv",
    "from dgl.nn import GraphConv": "GraphConv",
    "from dgl.nn import *": "GraphConv",
    "import dgl.nn.pytorch as x": "x.GraphConv",
    "import dgl.nn.pytorch": "dgl.nn.pytorch.conv.graphconv.GraphConv",
    "from dgl.nn.pytorch import GraphConv, conv": "conv.GraphConv",
    "from dgl.nn.pytorch import *": "GraphConv",
    "from dgl.nn.pytorch.conv import *": "GraphConv",
    "from dgl.nn.pytorch.conv import GraphConv as G": "G",
    "from dgl.nn.pytorch.conv.graphconv import GraphConv": "GraphConv",
    "import dgl.nn.pytorch.conv.graphconv as m": "m.GraphConv",
    "from dgl.nn.conv import GraphConv": "GraphConv",
    "from dgl.nn.pytorch.glob import SumPooling": "SumPooling",
    "from dgl.nn.pytorch.hetero import HeteroGraphConv": "HeteroGraphConv",
    "from dgl.nn.pytorch.utils import JumpingKnowledge": "JumpingKnowledge",
    "import importlib; m = importlib.import_module('dgl.nn.pytorch')": "m.GraphConv",
    "import dgl.nn.functional": "dgl.nn.functional.edge_softmax",
    "import dgl.nn.functional as fn": "fn.edge_softmax",
    "from dgl.nn.functional import edge_softmax": "edge_softmax",
    "from dgl.nn.pytorch.softmax import edge_softmax": "edge_softmax",
    "from dgl.nn import functional, edge_softmax": "edge_softmax",
}


@pytest.mark.parametrize("line", SPELLINGS, ids=lambda line: line.replace("import ", "i "))
def test_every_spelling_leads_to_dgl_flash(line: str) -> None:
    importlib.import_module("dgl")
    names: dict[str, object] = {}
    with redirected():
        exec(line, names)
        value = eval(SPELLINGS[line], names)
    assert value.__module__.startswith("dgl_flash.")


def test_cuda_is_enabled_for_the_program_only(
    run_code: Runner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextlib.contextmanager
    def enabled() -> Iterator[None]:
        print("on")
        yield
        print("off")

    monkeypatch.setattr(dgl_flash, "enable_cuda", enabled, raising=False)
    assert run_code("import dgl; print('program')") == 0
    assert capsys.readouterr().out.split() == ["on", "program", "off"]


def test_names_that_only_dgl_has_stay() -> None:
    importlib.import_module("dgl")
    from dgl.nn.pytorch.sparse_emb import NodeEmbedding
    from dgl.nn.pytorch.utils import Identity

    with redirected():
        import dgl.nn as dglnn
        from dgl.nn.pytorch.utils import Identity as Found

        assert Found is Identity
        assert dglnn.NodeEmbedding is NodeEmbedding


def test_everything_is_put_back() -> None:
    dgl = importlib.import_module("dgl")
    from dgl_flash.nn import GraphConv

    def state() -> tuple[object, ...]:
        modules = {name: id(module) for name, module in sys.modules.items() if "dgl.nn" in name}
        return modules, dgl.nn, GraphConv.__init__, list(sys.meta_path), sys.path, sys.argv

    importlib.import_module("dgl.nn.pytorch")
    before, path = state(), os.environ.get("PYTHONPATH")
    assert command("--quiet", str(Path(__file__).parents[1] / "legacy" / "gcn.py"), "--help") == 0
    assert state() == before
    assert os.environ.get("PYTHONPATH") == path


def test_program_is_main_and_sees_its_arguments(
    run_code: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "beside.py").write_text("value = 7")
    code = """
        import sys
        from beside import value
        assert __name__ == "__main__" and sys.modules["__main__"].value == 7
        print(sys.argv[1:], sys.argv[0] == __file__)
    """
    assert run_code(code, "--quiet", "-m", "x", "--", "--epochs=3") == 0
    assert capsys.readouterr().out == "['--quiet', '-m', 'x', '--', '--epochs=3'] True\n"
    del sys.modules["beside"]


def test_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pack").mkdir()
    code = "import sys; print(__name__, sys.argv[1:], sys.argv[0] == __file__)"
    (tmp_path / "pack" / "train.py").write_text(code)
    monkeypatch.chdir(tmp_path)
    assert command("--quiet", "-m", "pack.train", "--epochs", "3") == 0
    assert capsys.readouterr().out == "__main__ ['--epochs', '3'] True\n"
    del sys.modules["pack"]


@pytest.mark.parametrize(
    ("code", "status", "text"),
    [
        ("pass", 0, ""),
        ("raise SystemExit", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("raise SystemExit('no data')", 1, "no data\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_exit_status(
    code: str, status: int, text: str, run_code: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_code(code) == status
    assert capsys.readouterr().err == text


@pytest.mark.parametrize("code", ["def f():\n    1 / 0\nf()", "1 +"])
def test_traceback_is_the_one_of_python(
    code: str, run_code: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_code(code) == 1
    plain = subprocess.run(
        [sys.executable, str(tmp_path / "train.py")], capture_output=True, text=True, timeout=60
    )
    assert capsys.readouterr().err == plain.stderr


def test_what_cannot_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert command() == 2
    assert "name a script, or a module after -m" in capsys.readouterr().err
    assert command("nowhere/train.py") == 2
    assert "there is no file 'nowhere/train.py'" in capsys.readouterr().err
    assert command("--quiet", "-m", "no_such_module") == 1
    assert "No module named no_such_module" in capsys.readouterr().err


def test_report(run_code: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
        import copy
        import dgl, torch
        from dgl.nn import GraphConv, HGTConv
        from dgl.nn.pytorch.utils import Identity

        class Mine(GraphConv):
            def __init__(self):
                super().__init__(3, 2)

        g = dgl.add_self_loop(dgl.rand_graph(4, 6))
        model = [Mine(), GraphConv(2, 2), HGTConv(2, 2, 1, 1, 1), Identity()]
        for step in range(5):
            model[1](g, model[0](g, torch.ones(4, 3)))
        copy.deepcopy(model)
    """
    assert run_code(code, quiet=False) == 0
    assert capsys.readouterr().err.splitlines() == [
        "dgl-flash run: 2 GraphConv, 1 HGTConv of dgl.nn from dgl_flash",
        "from DGL itself: 1 Identity",
        "calls  op    path       kernel, or why not",
        "   10  spmm  reference  the features are on cpu",
    ]


def test_report_of_a_program_without_layers(
    run_code: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_code("import dgl", quiet=False) == 0
    assert capsys.readouterr().err.splitlines() == [
        "dgl-flash run: no layer of dgl.nn from dgl_flash",
        "no dgl_flash op was called in this process",
    ]


def test_report_does_not_grow_with_the_run() -> None:
    tally = Tally()
    calls = _Calls(tally.ops)
    for _ in range(1000):
        calls.append(Choice("spmm", "fused", ("spmm_rows",)))
    assert len(calls) == 0
    assert tally.ops == {("spmm", "fused", "spmm_rows"): 1000}


def test_program_without_dgl() -> None:
    """In a process of its own, where nobody else has imported DGL."""
    code = """
import sys
from dgl_flash.legacy.program import run_module
status = run_module("json.tool", ["--help"])
assert "dgl" not in sys.modules and "cupy" not in sys.modules
sys.exit(status)
"""
    done = python("-c", code)
    assert done.stderr == "dgl-flash run: DGL was not imported, so nothing was replaced\n"


# What a worker or another process finds when it imports dgl.nn.
WORKERS = """
import subprocess, sys
import torch
from torch.utils.data import DataLoader, Dataset

class Homes(Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        from dgl.nn.pytorch import GraphConv
        return GraphConv.__module__

if __name__ == "__main__":
    for how in ("spawn", "fork"):
        print(how, *next(iter(DataLoader(Homes(), num_workers=1, multiprocessing_context=how))))
    code = "import dgl.nn; print('process', dgl.nn.GraphConv.__module__)"
    sys.stdout.flush()
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def test_workers_and_processes_are_redirected(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WORKERS)
    code = "import sys; from dgl_flash.legacy import program as p; p.run_script(sys.argv[1])"
    done = python("-c", code, str(tmp_path / "train.py"))
    home = "dgl_flash.nn.conv.graphconv"
    assert [line.split() for line in done.stdout.splitlines()] == [
        ["spawn", home],
        ["fork", home],
        ["process", home],
    ]


def test_a_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')")
    assert python("-c", "pass", path=[SITE, tmp_path]).stdout == "mine\n"
    assert python("-c", "pass", path=[SITE]).stdout == ""


def test_processes_start_as_quickly_as_before() -> None:
    code = "import sys; print(*sorted({'dgl', 'numpy', 'torch'} & set(sys.modules)))"
    assert python("-c", code, path=[SITE]).stdout == "\n"


def python(*arguments: str, path: list[Path] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=environment(*(path or [])),
        cwd=SITE.anchor,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done
