"""The benchmark of old scripts at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks import legacy


def test_writes_a_row_a_script_and_device(tmp_path: Path) -> None:
    out = tmp_path / "legacy.csv"
    times = ["--epochs", "2", "--repeats", "3", "--rounds", "1"]
    legacy.main(["--small", *times, "--scripts", "gcn", "--out", str(out)])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["device"] == "cpu"
    assert (rows[0]["script"], rows[0]["nodes"], rows[0]["ratio"]) == ("gcn", "300", "1")
    assert 0 < float(rows[0]["p20_ms"]) <= float(rows[0]["median_ms"]) <= float(rows[0]["p80_ms"])
    assert rows[0]["runs"] == "3"
    assert float(rows[0]["loss_difference"]) == 0


def test_every_script_has_a_size() -> None:
    folder = legacy.ROOT / "tests" / "legacy"
    assert {path.stem for path in folder.glob("*.py")} == set(legacy.SIZES)
    assert set(legacy.FULL_GRAPH) <= set(legacy.SIZES)


def test_a_script_that_fails_is_quoted() -> None:
    with pytest.raises(RuntimeError, match="unrecognized arguments"):
        legacy.train(str(legacy.ROOT / "tests" / "legacy" / "gcn.py"), ["--wrong"], legacy.PLAIN, 1)
