"""Scripts that know nothing of dgl_flash run on it unchanged, and learn what they learned."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.compat.scripts import environment

LEGACY = Path(__file__).parent / "legacy"

# By script: the classes of dgl.nn that it constructs, and what guessing would score.
LAYERS = {
    "gat": ({"GATConv": 2}, 0.2),
    "gcn": ({"GraphConv": 2}, 0.25),
    "gin_graph_classification": ({"GINConv": 2, "SumPooling": 1}, 0.33),
    "graphsage_sampling": ({"SAGEConv": 2}, 0.17),
    "hgt": ({"HGTConv": 1}, 0.25),
    "link_prediction": ({"SAGEConv": 2}, 0.5),
    "rgcn": ({"GraphConv": 5, "HeteroGraphConv": 1, "RelGraphConv": 2}, 0.33),
    "tree_lstm_udf": ({}, 0.6),
}
SCRIPTS = sorted(LAYERS)
# What these draw on a GPU differs from what they draw on the CPU.
DRAWS = {"graphsage_sampling", "link_prediction"}
SMALL = ("--epochs", "3", "--nodes", "300")

# One process for all scripts: importing torch and DGL takes longer than they do.
PLAIN = """
import runpy, sys
import dgl_flash

def run(script, options):
    sys.argv = [script, *options]
    runpy.run_path(script, run_name="__main__")
    return 0
"""
REDIRECTED = """
from dgl_flash.legacy.program import run_script as run
"""
EACH = """
import contextlib, io, json, sys
results = []
for script, options in json.loads(sys.argv[1]):
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        err = stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        status = run(script, options)
    last = out.getvalue().splitlines()[-1:]
    results.append({"status": status, "last": last, "err": err.getvalue()})
print(json.dumps(results))
"""


Results = dict[str, dict[str, Any]]  # by script


def results(how: str, *many_options: tuple[str, ...], folder: Path = LEGACY) -> list[Results]:
    """For each set of options what the scripts printed last, and on stderr as `err`."""
    runs = [(script, options) for options in many_options for script in SCRIPTS]
    paths = [(str(folder / f"{script}.py"), options) for script, options in runs]
    done = subprocess.run(
        [sys.executable, "-c", how + EACH, json.dumps(paths)],
        # Wherever this process has its DGL from.
        env={**environment(*map(Path, sys.path)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for (script, _), result in zip(runs, found, strict=True):
        assert result["status"] == 0, f"{script}: {result['err']}"
        result.update(json.loads(result["last"][0]))
    return [
        dict(zip(SCRIPTS, found[first : first + len(SCRIPTS)], strict=True))
        for first in range(0, len(found), len(SCRIPTS))
    ]


@pytest.fixture(scope="module")
def plain() -> Results:
    return results(PLAIN, ("--device", "cpu", *SMALL))[0]


@pytest.fixture(scope="module")
def small_and_full() -> list[Results]:
    return results(REDIRECTED, ("--device", "cpu", *SMALL), ("--device", "cpu"))


@pytest.fixture(scope="module")
def redirected(small_and_full: list[Results]) -> Results:
    return small_and_full[0]


@pytest.fixture(scope="module")
def redirected_in_full(small_and_full: list[Results]) -> Results:
    return small_and_full[1]


@pytest.fixture(scope="module")
def on_cuda() -> Results:
    return results(REDIRECTED, ("--device", "cuda", *SMALL))[0]


def test_every_script_is_here() -> None:
    assert [path.stem for path in sorted(LEGACY.glob("*.py"))] == SCRIPTS


@pytest.mark.parametrize("script", SCRIPTS)
def test_knows_nothing_of_dgl_flash(script: str) -> None:
    lines = (LEGACY / f"{script}.py").read_text().splitlines()
    assert not any("flash" in line for line in lines)
    assert len(lines) < 150


@pytest.mark.parametrize("script", SCRIPTS)
def test_trains_as_with_dgl(script: str, plain: Results, redirected: Results) -> None:
    assert len(plain[script]["loss"]) == 3
    assert redirected[script]["loss"] == pytest.approx(plain[script]["loss"], rel=1e-4)
    assert redirected[script]["accuracy"] == pytest.approx(plain[script]["accuracy"], abs=0.02)


@pytest.mark.parametrize("script", SCRIPTS)
def test_report_names_the_classes(script: str, redirected: Results) -> None:
    layers, _ = LAYERS[script]
    text = ", ".join(f"{count} {name}" for name, count in layers.items()) or "no layer"
    report = redirected[script]["err"]
    assert f"dgl-flash run: {text} of dgl.nn from dgl_flash" in report.splitlines()
    assert ("the features are on cpu" in report) == bool(layers)


@pytest.mark.parametrize("script", SCRIPTS)
def test_learns(script: str, redirected_in_full: Results) -> None:
    _, chance = LAYERS[script]
    result = redirected_in_full[script]
    assert result["loss"][-1] < 0.6 * result["loss"][0]
    assert result["accuracy"] > (1 + chance) / 2
    assert result["seconds_per_epoch"] > 0


@pytest.mark.gpu
@pytest.mark.parametrize("script", SCRIPTS)
def test_trains_on_cuda_as_on_the_cpu(script: str, redirected: Results, on_cuda: Results) -> None:
    tolerance = 0.3 if script in DRAWS else 1e-2
    assert on_cuda[script]["loss"] == pytest.approx(redirected[script]["loss"], rel=tolerance)


@pytest.mark.gpu
@pytest.mark.parametrize("script", sorted(set(SCRIPTS) - {"tree_lstm_udf"}))
def test_kernels_run_on_cuda(script: str, on_cuda: Results) -> None:
    report = on_cuda[script]["err"]
    assert " fused " in report
    assert "the features are on cpu" not in report
