"""The benchmark against DGL's ops on a CPU, at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import cpu
from benchmarks.cpu_attention import attention_cases
from benchmarks.graphs import load

import dgl  # isort: skip  # dgl_flash, which makes it importable, comes first

CASES: list[cpu.AnyCase] = [case for width in cpu.WIDTHS for case in cpu.cases_of(width)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("which", cpu.PASSES)
def test_both_libraries_compute_the_same(case: cpu.AnyCase, which: str) -> None:
    # DGL's ops leave extrema of rows without edges infinite; here none is without.
    graph = load("tiny-grid" if case.op.endswith("max") else "tiny", torch.device("cpu"))
    dgl_graph = dgl.graph(graph.struct.edges(), num_nodes=graph.struct.num_dst)
    theirs, ours = cpu.prepare(case, graph, dgl_graph, torch.float64)
    torch.testing.assert_close(ours[which](), theirs[which]())


def test_operands_have_the_rows_of_the_op() -> None:
    graph = load("tiny", torch.device("cpu"))
    nodes, edges = graph.struct.num_dst, graph.struct.num_edges

    def shapes(*case: object) -> list[tuple[int, ...]]:
        drawn = cpu.Case(*case).draw(graph, torch.float32)
        return [tuple(operand.shape) for operand in drawn]

    assert shapes("copy_u_mean", 8) == [(nodes, 8)]
    assert shapes("u_mul_e_sum", 8, "edge") == [(nodes, 8), (edges, 1)]
    assert shapes("u_mul_e_sum", 8, "element") == [(nodes, 8), (edges, 8)]
    assert shapes("copy_e_sum", 8, "element") == [(edges, 8)]
    assert shapes("copy_u_max", 8) == [(nodes, 8)]
    assert shapes("u_mul_e_max", 8, "edge") == [(nodes, 8), (edges, 1)]
    assert shapes("copy_e_max", 8, "element") == [(edges, 8)]
    assert shapes("u_add_v", 8) == [(nodes, 8), (nodes, 8)]


def test_attention_has_heads() -> None:
    graph = load("tiny", torch.device("cpu"))
    nodes, edges = graph.struct.num_dst, graph.struct.num_edges
    shapes = {
        (case.op, case.heads): [tuple(t.shape) for t in case.draw(graph, torch.float32)]
        for case in attention_cases()
    }
    row = nodes, 4, 32
    assert shapes["edge_softmax", 2] == [(edges, 2, 1)]
    assert shapes["gatv2", 2] == [(nodes, 2, 64), (nodes, 2, 64), (2, 64)]
    assert shapes["gat", 4] == [row, (nodes, 4), (nodes, 4)]
    assert shapes["dot_attention", 4] == [row, row, row]


def test_calls_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "REST_SECONDS", 0)
    seen: list[str] = []
    times = cpu.alternate([lambda: seen.append("a"), lambda: seen.append("b")], 3)
    assert "".join(seen) == "ab" + "ba" + "ab" + "ba"  # the first pair warms up
    assert [len(found) for found in times] == [3, 3]


def test_one_row_for_each_case_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "REST_SECONDS", 0)
    out = tmp_path / "results" / "cpu.csv"
    threads = torch.get_num_threads()
    flags = ["--graph=tiny", "--rounds=2", "--widths", "64", "--dtypes", "float32"]
    cpu.main([*flags, f"--threads={threads}", f"--out={out}", "--commit=abc123"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == cpu.COLUMNS
    assert len(rows) == 18 * 2  # cases, passes
    for row in rows:
        ratio = float(row["ms"]) / float(row["dgl_ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=0.01)
        assert row["met"] == ("yes" if ratio <= float(row["must"]) else "no")
        assert float(row["median_ms"]) >= float(row["ms"])
        assert (row["commit"], row["threads"]) == ("abc123", str(threads))
        assert row["cpu"] and row["dgl"] == dgl.__version__
    musts = {(row["op"], row["pass"]): float(row["must"]) for row in rows}
    assert musts["copy_u_sum", "both"] == 1.2
    assert musts["gat", "forward"] == musts["edge_softmax", "both"] == 1
    assert (musts["gatv2", "forward"], musts["gatv2", "both"]) == (0.3333, 0.5)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "[1/18] copy_u_sum W=64 float32"
    assert printed[12] == "[13/18] gatv2 W=128 H=2 float32"
    assert printed[-1] == f"wrote {out}"
    assert len(printed) == 18 + 1 + 36 + 1  # progress, head, rows
