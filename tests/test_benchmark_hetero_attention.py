"""The benchmark of attention on a heterograph at tiny size."""

from __future__ import annotations

import csv
import dataclasses
from pathlib import Path

import pytest
import torch

from benchmarks import hetero_attention
from dgl_flash.reference import gatv2
from dgl_flash.structure import GraphStructure

SIZES = hetero_attention.Sizes(nodes=6, edges=300, relations=30, width=4)
PATHS = ["loop", "loop, drawn", "kept"]


def prepare(dtype: torch.dtype, device: torch.device) -> dict[str, hetero_attention.Way]:
    graph = hetero_attention.draw_graph(SIZES)
    return hetero_attention.prepare(graph, SIZES, (2, 3), dtype, device)


def test_plain_torch_attends_as_the_formula_does(device: torch.device) -> None:
    u = torch.tensor([0, 2, 2, 1, 0], device=device)
    v = torch.tensor([1, 1, 3, 1, 3], device=device)  # no edge ends in 0 and 2
    struct = GraphStructure.from_coo(u, v, 3, 4)
    x, y = (torch.randn(rows, 6, dtype=torch.float64, device=device) for rows in (3, 4))
    attn = torch.randn(1, 2, 3, dtype=torch.float64, device=device)
    found = hetero_attention.attend(x.clone(), y.clone(), u, v, attn, 0.1)
    wanted = gatv2(struct, x.view(3, 2, 3), y.view(4, 2, 3), attn[0], 0.1)
    torch.testing.assert_close(found, wanted.flatten(1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_all_ways_compute_the_same(dtype: torch.dtype, device: torch.device) -> None:
    ways = prepare(dtype, device)
    assert list(ways) == PATHS
    hetero_attention.require_agreement(ways)
    results = [(*way.forward(), *way.both()) for way in ways.values()]
    assert len(results[0]) == 5 + 5 + 30 * 5  # results, gradients of features and of parameters
    for found in results[1:]:
        torch.testing.assert_close(found, results[0])


@pytest.mark.parametrize("spoil", ["result", "gradient"])
def test_ways_that_differ_are_not_timed(spoil: str, device: torch.device) -> None:
    ways = prepare(torch.float64, device)
    way = ways["kept"]

    def layer(feats: hetero_attention.Feats) -> hetero_attention.Feats:
        found = way.layer(feats)
        total = found["n1"]
        wrong = 1.001 * total if spoil == "result" else total + 0.01 * (total - total.detach())
        return found | {"n1": wrong}

    spoilt = ways | {"kept": dataclasses.replace(way, layer=layer)}
    with pytest.raises(AssertionError, match=r"kept: result .* is off by .* of loop"):
        hetero_attention.require_agreement(spoilt)


def test_calls_take_turns(device: torch.device) -> None:
    seen: list[str] = []
    calls = {name: lambda name=name: seen.append(name) for name in "ab"}
    times = hetero_attention.in_turns(calls, device, rounds=4)
    assert seen == ["a", "b"] * (4 + hetero_attention.WARM_UP)
    assert all(len(found.total) == len(found.host) == 4 for found in times.values())


def test_one_row_for_each_way_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "hetero_attention.csv"
    flags = ["--small", "--rounds=2", f"--out={out}", f"--device={device.type}", "--commit=abc123"]
    suffixes = ["", ", captured"] if device.type == "cuda" else [""]
    flags += ["--capture"] if device.type == "cuda" else []
    hetero_attention.main([*flags, "--shapes=4x16", "--dtypes=float32"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == hetero_attention.COLUMNS
    assert [(row["pass"], row["path"]) for row in rows] == [
        (which, path + suffix)
        for suffix in suffixes
        for which in ("forward", "both")
        for path in PATHS
    ]
    for start in range(0, len(rows), 3):
        unit = min(float(row["median_ms"]) for row in rows[start : start + 2])
        for row in rows[start : start + 3]:
            assert float(row["ratio"]) == pytest.approx(float(row["median_ms"]) / unit, rel=0.01)
    for row in rows:
        assert 0 < float(row["p20_ms"]) <= float(row["median_ms"]) <= float(row["p80_ms"])
        assert float(row["host_ms"]) > 0
        assert "captured" in row["path"] or float(row["peak_mb"]) > 0
        assert (row["heads"], row["head_dim"], row["dtype"]) == ("4", "16", "float32")
        assert (row["nodes"], row["relations"], row["commit"]) == ("100", "40", "abc123")
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {out}"
