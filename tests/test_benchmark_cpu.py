"""The benchmark against DGL's ops on a CPU, at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import cpu
from benchmarks.graphs import load

import dgl  # isort: skip  # dgl_flash, which makes it importable, comes first

CASES = [case for width in cpu.WIDTHS for case in cpu.cases_of(width)]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("which", cpu.PASSES)
def test_both_libraries_compute_the_same(case: cpu.Case, which: str) -> None:
    graph = load("tiny", torch.device("cpu"))
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
    assert shapes("u_add_v", 8) == [(nodes, 8), (nodes, 8)]


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
    assert len(rows) == 7 * 2  # cases, passes
    for row in rows:
        ratio = float(row["ms"]) / float(row["dgl_ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=0.01)
        assert row["met"] == ("yes" if ratio <= cpu.MUST else "no")
        assert float(row["median_ms"]) >= float(row["ms"])
        assert (row["commit"], row["threads"]) == ("abc123", str(threads))
        assert row["cpu"] and row["dgl"] == dgl.__version__
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "[1/7] copy_u_sum W=64  float32"
    assert printed[-1] == f"wrote {out}"
    assert len(printed) == 7 + 1 + 14 + 1  # progress, head, rows
