"""``dgl_flash.tune``: what it says on a CPU, and what it changes on a GPU."""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dgl_flash
from dgl_flash import ops, tuning
from dgl_flash.kernels import cusparse, tuned
from dgl_flash.kernels.timing import Timing
from dgl_flash.ops.candidates import candidates
from dgl_flash.ops.rows import tuned_key
from dgl_flash.ops.search_spmm import Measured, Pass, TunedPass
from dgl_flash.structure import structure
from tests.compat.scripts import run
from tests.ops.common import draw, skewed_graph

RING = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DGL_FLASH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuned, "_loaded", {})
    return tmp_path


@pytest.mark.parametrize("given", [16, torch.zeros(3, 2, 8, dtype=torch.float64)])
def test_there_is_nothing_to_tune_on_a_cpu(given: Any, folder: Path) -> None:
    found = dgl_flash.tune(RING, given, device="cpu")
    assert isinstance(found, dgl_flash.TuneResult)
    assert found.passes == ()
    dtype = "float32" if isinstance(given, int) else "float64"
    assert repr(found) == (
        f"sum of 16 {dtype} numbers over 3 edges: nothing to tune, no kernel runs here: "
        f"device cpu is no CUDA device"
    )
    assert found._repr_html_() == f"<p>{html.escape(repr(found))}</p>"
    assert list(folder.iterdir()) == []


def test_weights_are_told() -> None:
    options = {"reduce": "mean", "edge_weight_heads": 4, "dtype": torch.bfloat16}
    found = dgl_flash.tune(RING, 16, device="cpu", **options)
    assert found.subject == "mean of 16 bfloat16 numbers over 3 edges, 4 weights an edge"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"reduce": "max"}, "expected `reduce` to be 'sum' or 'mean', got 'max'"),
        ({"edge_weight_heads": 3}, "divides the width 16, got 3"),
        ({"edge_weight_heads": -1}, "divides the width 16, got -1"),
    ],
)
def test_errors(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        dgl_flash.tune(RING, 16, **arguments)
    with pytest.raises(TypeError, match="tune"):
        dgl_flash.tune(object(), 16)


def test_the_name_is_a_function_whatever_is_imported_first() -> None:
    run(
        "import dgl_flash.tuning, dgl_flash\n"
        "assert callable(dgl_flash.tune) and 'tune' in dir(dgl_flash)\n"
    )


RESULT = tuning.TuneResult(
    "sum of 16 float32 numbers",
    (
        TunedPass("forward", (Measured("V4 P4", 0.5), Measured("rule", 1.0)), tried=40),
        TunedPass("backward", (Measured("cusparse", 0.25), Measured("rule", 1.0)), tried=41),
    ),
)


def test_a_result_is_a_table() -> None:
    lines = [" ".join(line.split()) for line in repr(RESULT).splitlines()]
    assert lines == [
        "sum of 16 float32 numbers",
        "pass chosen ms ms by rule ms by cuSPARSE tried",
        "forward V4 P4 0.5000 1.0000 – 40",
        "backward cusparse 0.2500 1.0000 0.2500 41",
    ]
    page = RESULT._repr_html_()
    assert page.count("<tr>") == page.count("</tr>") == 3
    assert "<td>cusparse</td>" in page


def test_a_mean_leaves_alone_who_is_faster_at_a_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = torch.float32, torch.int32
    key = tuned.Key("card", "spmm", 1, 16, *kinds, tuned.Profile(1, 1, 1, 1))
    forward, backward = RESULT.passes
    tuning._store(key, backward, may_be_library=True)
    assert tuned.find(key) == tuned.Tuned(None, "cusparse")
    tuning._store(key, forward, may_be_library=False)
    assert tuned.find(key) == tuned.Tuned(None, "cusparse")
    tuning._store(key, forward, may_be_library=True)
    assert tuned.find(key) == tuned.Tuned(None, "kernel")


@pytest.mark.parametrize("repeatable", [True, False])
def test_cusparse_takes_part_only_where_bits_may_differ(
    monkeypatch: pytest.MonkeyPatch, repeatable: bool
) -> None:
    shown: list[float] = []

    class Clock:
        def __init__(self, *given: object) -> None:
            pass

        def __call__(self, call: Callable[[], object], repeats: int) -> Timing:
            call()
            return Timing(shown[-1], 0.0, 0.0)

    kinds = torch.float32, torch.int32
    key = tuned.Key("card", "spmm", 1, 16, *kinds, tuned.Profile(1, 1, 1, 1))
    rule, *_ = candidates("spmm", 1, 16, 4)
    todo = Pass("forward", key, rule, lambda _: shown.append(1.0), lambda: shown.append(0.5))
    monkeypatch.setattr(tuning, "Timer", Clock)
    monkeypatch.setattr(tuning.search_spmm, "compile_all", lambda *given: None)
    tuned.store(key, tuned.Tuned(None, "cusparse" if repeatable else "kernel"))
    (found,) = tuning._tune(torch.device("cpu"), [todo, todo], repeatable, 3, False)
    assert (found.find("cusparse") is None) == repeatable
    assert tuned.find(key) == tuned.Tuned(None, "kernel" if repeatable else "cusparse")


@pytest.mark.gpu
@pytest.mark.parametrize("repeatable", [True, False])
def test_what_was_measured_is_used(
    folder: Path, capsys: pytest.CaptureFixture[str], repeatable: bool
) -> None:
    graph = skewed_graph()
    kind = {"dtype": torch.float32, "device": torch.device("cuda")}
    feat = draw(300, 48, seed=1, **kind).requires_grad_()
    before = ops.spmm(graph, feat)
    result = dgl_flash.tune(graph, feat, repeats=3, progress=False, repeatable=repeatable)
    assert [found.name for found in result.passes] in (
        ["forward", "backward"],
        ["forward, backward"],
    )
    assert capsys.readouterr().out == ""
    assert torch.cuda.get_device_name() in result.subject
    entries = json.loads((folder / "tuned.json").read_text())["entries"]
    assert len(entries) == len(result.passes)
    for found in result.passes:
        assert (found.find("cusparse") is None) == repeatable
    out = ops.spmm(graph, feat)
    torch.testing.assert_close(out, before, rtol=1e-5, atol=1e-4)
    if repeatable:
        assert {entry["backend"] for entry in entries.values()} == {"kernel"}
        assert torch.equal(out, ops.spmm(graph, feat))
        (grad,) = torch.autograd.grad(out.square().sum(), feat)
        again = torch.autograd.grad(ops.spmm(graph, feat).square().sum(), feat)
        assert torch.equal(grad, again[0])


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_by_cusparse_goes_through_the_op(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    products: list[torch.Size] = []
    real = cusparse.csr_product

    def spy(*operands: torch.Tensor) -> None:
        products.append(operands[-1].shape)
        real(*operands)

    monkeypatch.setattr(cusparse, "csr_product", spy)
    graph = skewed_graph()
    struct = structure(graph, "cuda")
    for adjacency in (struct.in_adj, struct.out_adj):
        for flags in ({}, {"WEIGHT": 1}):
            key = tuned_key("spmm", adjacency, dtype, 1, 48, flags)
            tuned.store(key, tuned.Tuned(None, "cusparse"))
    kind = {"dtype": dtype, "device": torch.device("cuda")}
    feat = draw(300, 48, seed=1, **kind).requires_grad_()
    weight = draw(2500, seed=2, **kind).requires_grad_()
    for given in (None, weight):
        products.clear()
        out = ops.spmm(struct, feat, given)
        grads = torch.autograd.grad(out.sum(), [feat] if given is None else [feat, given])
        assert products == [(300, 48), (300, 48)]  # forward, backward
        src, dst = struct.edges()
        message = feat.double()[src] * (1 if given is None else given.double()[:, None])
        exact = torch.zeros_like(out, dtype=torch.float64).index_add(0, dst, message)
        limit = {torch.float32: 1e-5, torch.bfloat16: 4e-2}[dtype]
        torch.testing.assert_close(out.double(), exact, rtol=limit, atol=20 * limit)
        ones = torch.ones_like(exact)
        expected = torch.autograd.grad(exact, [feat] if given is None else [feat, given], ones)
        for found, wanted in zip(grads, expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=limit, atol=40 * limit)
