"""The benchmark of relational layers at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import relations

CPU = torch.device("cpu")


def test_sizes_of_the_relations_fall_like_zipfs() -> None:
    case = relations.Case("tiny", 50, 20_000, 10)
    src, dst, types = case.draw(CPU)
    assert int(torch.stack([src, dst]).max()) < 50
    counts = types.bincount(minlength=10)
    assert counts.sum() == 20_000
    assert counts[0] / counts[9] == pytest.approx(10, rel=0.2)
    assert torch.equal(case.draw(CPU)[2], types)


@pytest.mark.parametrize("num_relations", [3, 60])
def test_both_ways_compute_the_same(num_relations: int, device: torch.device) -> None:
    case = relations.Case("tiny", 30, 200, num_relations, 5, 4)
    calls = relations.prepare(case, torch.float64, device)
    results = [(call.forward(), *call.both()) for call in calls.values()]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_one_row_for_each_pass_and_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "relations.csv"
    flags = ["--small", "--repeats=2", "--dtypes=float32", "--cases=few"]
    relations.main([*flags, f"--out={out}", f"--device={device.type}", "--commit=abc123"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == relations.COLUMNS
    assert len(rows) == 2 * 2  # passes, ways
    assert [row["path"] for row in rows] == ["loop", "fused"] * 2
    for loop, fused in zip(rows[::2], rows[1::2], strict=True):
        ratio = float(fused["median_ms"]) / float(loop["median_ms"])
        assert float(fused["ratio"]) == pytest.approx(ratio, rel=0.01)
        assert loop["ratio"] == "1"
    assert all(float(row["peak_mb"]) > 0 and row["commit"] == "abc123" for row in rows)
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {out}"
