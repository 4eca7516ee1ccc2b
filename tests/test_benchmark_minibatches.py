"""The benchmark of training on sampled blocks at tiny size."""

from __future__ import annotations

import csv
from pathlib import Path

import dgl.nn
import pytest
import torch

import dgl_flash.nn
from benchmarks import minibatches


def test_writes_every_part_of_both_libraries(tmp_path: Path) -> None:
    out = tmp_path / "minibatches.csv"
    given = ["--small", "--steps", "4", "--hidden", "8", "--device", "cpu", "--out", str(out)]
    minibatches.main(given)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    parts = ["sample", "fetch", "forward", "backward", "step"]
    assert [row["part"] for row in rows if row["path"] == "dgl"] == parts
    assert [row["part"] for row in rows if row["path"] == "features"] == [
        *parts[:2],
        "read",
        *parts[2:],
    ]
    assert all(float(row["median_ms"]) > 0 and row["steps"] == "3" for row in rows)


def test_a_step_trains_on_a_graph_on_a_device(home) -> None:
    graph = minibatches.draw_graph(50, 400)
    ways = dict(minibatches.trainings(graph, home, hidden=8, batch=10))
    assert set(ways) == {"dgl", "features", "graph"}
    training = ways["graph"]
    found = dict(minibatches.measure(training, 4, reads=True))
    assert {len(times) for times in found.values()} == {3}
    assert training.sample(0)[0].device == home


@pytest.mark.parametrize("library", [dgl.nn, dgl_flash.nn], ids=["dgl", "dgl_flash"])
def test_a_step_trains(library, device) -> None:
    place = device if library is dgl_flash.nn else torch.device("cpu")
    graph = minibatches.draw_graph(50, 400)
    training = minibatches.Training(graph, library, place, hidden=8, batch=10)
    before = [parameter.clone() for parameter in training.layers.parameters()]
    blocks = training.sample(0)
    rows, labels = training.fetch(blocks)
    scores = training.forward(blocks, rows)
    assert scores.shape == (10, minibatches.CLASSES)
    training.backward(scores, labels)
    after = training.layers.parameters()
    assert any(not torch.equal(a, b) for a, b in zip(after, before, strict=True))
