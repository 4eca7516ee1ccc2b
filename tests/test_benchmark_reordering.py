"""The benchmark of orders at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import torch

from benchmarks import reordering


def test_one_row_for_each_order_and_op(tmp_path: Path, device: torch.device) -> None:
    out = tmp_path / "reordering.csv"
    given = ["--graphs", "tiny-clusters", "--ops", "sum", "gatv2", "--width", "8"]
    reordering.main([*given, "--device", device.type, "--out", str(out)])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["op"]) for row in rows] == [
        (method, op) for method in reordering.METHODS for op in ("sum", "gatv2")
    ]
    for row in rows:
        assert row["taken"] in ("stored", *reordering.METHODS)
        assert float(row["given_ms"]) > 0 and float(row["reordered_ms"]) > 0
        assert int(row["gathered_rows"]) <= int(row["edges"])
    assert all(float(row["predicted"]) <= 1 for row in rows if row["method"] == "auto")
