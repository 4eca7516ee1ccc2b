"""The benchmark of the choice between our kernel and cuSPARSE at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import spmm_choice
from dgl_flash.ops.search_spmm import Measured, TunedPass


def test_one_row_a_width_dtype_and_direction(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "tiny.csv"
    flags = ["--graphs=tiny,tiny-grid", "--widths=3,16", "--dtypes=float32,bfloat16"]
    spmm_choice.main(
        [*flags, "--repeats=2", f"--out={out}", f"--device={device.type}", "--commit=abc123"]
    )
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 2 * 2 * 2 * 2  # graphs, widths, dtypes, directions
    assert tuple(rows[0]) == spmm_choice.COLUMNS
    for row in rows:
        times = [float(row[name]) for name in spmm_choice.COLUMNS if name.endswith("_ms")]
        assert len(times) == 4 and min(times) > 0
        ratio = float(row["chosen_ms"]) / float(row["best_ms"])
        assert float(row["ratio"]) == pytest.approx(ratio, rel=1e-3)
        assert (row["chosen"], row["commit"]) == ("kernel", "abc123")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == f"wrote {out}"
    assert any(line.startswith("sum W=16 bfloat16 backward") for line in printed)
    assert any("of 16 choices are over 1.05 × the best" in line for line in printed)


def test_the_table_tells_what_was_not_the_best() -> None:
    good = TunedPass("forward", (Measured("rule", 1.0), Measured("cusparse", 2.0)), tried=9)
    bad = TunedPass("backward", (Measured("cusparse", 1.0), Measured("rule", 1.5)), tried=9)
    shared = {"graph": "road", "shape": "sum W=16", "dtype": "float32"}
    rows = [
        {**shared, **spmm_choice._row(found, "kernel", found.find("rule").ms)}
        for found in (good, bad)
    ]
    assert [row["met"] for row in rows] == ["yes", "no"]
    head, *lines = spmm_choice.table(rows).splitlines()
    assert head.split()[-1] == "road"
    assert [line.split()[-1] for line in lines[:2]] == ["2.00", "0.67!"]
    assert lines[2] == "1 of 2 choices are over 1.05 × the best"
    assert lines[3].strip() == (
        "road sum W=16 float32 backward: kernel 1.5 ms, 1.50 × cusparse (1 ms)"
    )
    assert len(lines) == 4


def test_unknown_dtypes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        spmm_choice.main(["--dtypes=int8"])
    assert "choose from" in capsys.readouterr().err
