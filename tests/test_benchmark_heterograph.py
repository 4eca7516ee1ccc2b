"""The benchmark of a heterograph of many relations at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch

from benchmarks import heterograph
from dgl_flash.structure import GraphStructure

SIZES = heterograph.Sizes(nodes=6, edges=300, relations=30, width=4)


def test_sizes_of_the_relations_fall_like_zipfs() -> None:
    sizes = heterograph.Sizes(nodes=6, edges=10_000, relations=30)
    graph = heterograph.draw_graph(sizes)
    assert (len(graph.ntypes), len(graph.etypes)) == (5, 30)
    assert [graph.num_nodes(kind) for kind in graph.ntypes] == [6] * 5
    assert graph.num_edges() == pytest.approx(10_000, rel=0.01)
    largest, smallest = graph.num_edges("r0"), graph.num_edges("r29")
    assert largest / smallest == pytest.approx(30, rel=0.05)
    assert len({kind for _, _, kind in graph.canonical_etypes}) == 5


def test_all_ways_compute_the_same(device: torch.device) -> None:
    graph = heterograph.draw_graph(SIZES)
    results = {}
    for path, call in heterograph.prepare(graph, SIZES, torch.float64, device):
        grad_feat, *grad_weights = call.both()
        grad_weight = torch.stack(grad_weights) if len(grad_weights) > 1 else grad_weights[0]
        results[path] = call.forward(), grad_feat, grad_weight
    assert list(results) == ["loop", "slices", "kept", "one graph"]
    for path in ("slices", "kept", "one graph"):
        torch.testing.assert_close(results[path], results["loop"])


@pytest.mark.parametrize("path", ["slices", "kept"])
def test_reading_takes_every_relation_out(path: str, device: torch.device) -> None:
    graph = heterograph.draw_graph(SIZES)
    passes = heterograph.reading(path, graph, device)
    assert heterograph.reading("loop", graph, device) == {}
    assert [part.num_edges() for part in passes["slice"]()] == [
        graph.num_edges(relation) for relation in graph.canonical_etypes
    ]
    found = passes["read"]()
    assert all(isinstance(struct, GraphStructure) for struct in found)
    assert {struct.device.type for struct in found} == {device.type}


def test_one_row_for_each_way_and_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], device: torch.device
) -> None:
    out = tmp_path / "results" / "heterograph.csv"
    flags = ["--small", "--repeats=2", f"--out={out}", f"--device={device.type}"]
    heterograph.main([*flags, "--commit=abc123"])
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == heterograph.COLUMNS
    both = ["forward", "both"]
    expected = [("loop", which) for which in both]
    for path in ("slices", "kept"):
        expected += [(path, which) for which in (*both, "slice", "read")]
    expected += [("one graph", which) for which in both]
    assert [(row["path"], row["pass"]) for row in rows] == expected
    units = {row["pass"]: float(row["median_ms"]) for row in rows[:2]}
    for row in rows:
        assert float(row["median_ms"]) > 0 and float(row["host_ms"]) > 0
        assert row["commit"] == "abc123"
        if row["pass"] in units:
            ratio = float(row["median_ms"]) / units[row["pass"]]
            assert float(row["ratio"]) == pytest.approx(ratio, rel=0.01)
            assert float(row["peak_mb"]) > 0
    assert capsys.readouterr().out.splitlines()[-1] == f"wrote {out}"
