"""The benchmark of reductions over the nodes of each graph, at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import graphs, readout
from benchmarks.timing import Timer, Timing

CPU = torch.device("cpu")


def test_batches_are_as_large_as_they_say() -> None:
    nodes = {name: int(case.lengths().sum()) for name, case in readout.CASES.items()}
    assert nodes == {
        "molecules": 460_000,
        "many": 2_000_000,
        "one": 10_000_000,
        "one among many": 10_000_000,
    }
    among = readout.CASES["one among many"].lengths()
    assert (among.numel(), int(among.max()), int(among.min())) == (250_001, 5_000_000, 20)
    small = [case.small().lengths().tolist() for case in readout.CASES.values()]
    assert small == [[23] * 20, [20] * 100, [10_000], [5_000] + [20] * 250]


def test_molecules_are_those_of_the_graph() -> None:
    _, _, nodes = graphs.OWN["molecules"]()
    assert nodes == int(readout.CASES["molecules"].lengths().sum())


def test_the_unit_is_the_fastest_read(monkeypatch: pytest.MonkeyPatch) -> None:
    feat = torch.ones(5, 3)
    for read in readout.READS.values():
        assert read(feat).numel() <= 3
    taken = iter([3.0, 2.0, 4.0])

    def timed(self: Timer, call: object) -> Timing:
        found = next(taken)
        return Timing(found, found, found)

    monkeypatch.setattr(Timer, "__call__", timed)
    assert readout.fastest_read(feat, Timer(CPU)) == (list(readout.READS)[1], 2.0)


def test_only_reductions_of_molecules_are_bound() -> None:
    row = {"median_ms": 3.0}
    assert readout.judged(row, 2.0, True)["met"] == "yes"
    assert readout.judged(row, 1.9, True)["met"] == "no"
    assert readout.judged(row, 1.9, False) == {
        "median_ms": "3",
        "read_ms": "1.9",
        "ratio": "1.5789",
        "must": "",
        "met": "",
    }


def test_one_row_for_each_op_place_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "readout.csv"
    flags = ["--small", "--repeats=2", "--dtypes=float32", "--cases", "molecules", "one"]
    readout.main([*flags, f"--out={out}", f"--device={device.type}", "--commit=abc123"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == readout.COLUMNS
    places = ["cpu"] if device.type == "cpu" else ["cpu", "cuda"]
    found = [tuple(row[key] for key in ("width", "op", "lengths_on", "pass")) for row in rows]
    assert found == [
        (width, op, place, which)
        for width in ("64", "256", "128")
        for op in readout.OPS
        for place in places
        for which in ("forward", "both")
    ]
    for row in rows:
        ratio = float(row["median_ms"]) / float(row["read_ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=1e-3)
        is_bound = (row["case"], row["pass"]) == ("molecules", "forward")
        assert bool(row["met"]) == (is_bound and row["op"] != "softmax")
        assert (row["waits"] == "") == (device.type == "cpu")
        assert row["read"] in readout.READS
        assert float(row["peak_mb"]) > 0 and row["commit"] == "abc123"
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {out}"


def test_out_of_memory_loses_one_op_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(lengths: torch.Tensor, feat: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no room")

    monkeypatch.setitem(readout.OPS, "softmax", full)
    case = readout.Case("tiny", ((3, 2),), (4,))
    rows = list(readout.measure(case, 4, "float64", Timer(CPU, 1)))
    assert list(dict.fromkeys(row["op"] for row in rows)) == ["sum", "mean", "max", "min"]
    assert "out of memory: softmax of tiny W=4 float64" in capsys.readouterr().out
