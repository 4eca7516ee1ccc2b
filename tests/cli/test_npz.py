"""The reader of stored graphs: every encoding, and what is wrong with broken files."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dgl_flash.demo import DemoError
from dgl_flash.demo.npz import read_npz
from tests.shared_data import shared_folder


def write(path: Path, **arrays: Any) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def leb128(numbers: list[int]) -> np.ndarray:
    stream = []
    for number in numbers:
        while number >= 0x80:
            stream.append(number & 0x7F | 0x80)
            number >>= 7
        stream.append(number)
    return np.array(stream, np.uint8)


def test_plain_edges_are_sorted_by_destination_and_source(tmp_path: Path) -> None:
    file = write(tmp_path / "g.npz", num_nodes=4, src=[3, 0, 1], dst=[2, 1, 1])
    graph = read_npz(file)
    assert (graph["src"].tolist(), graph["dst"].tolist()) == ([0, 1, 3], [1, 1, 2])
    assert graph["num_nodes"] == 4
    assert "x" not in graph


def test_undirected_edges_go_both_ways_and_self_loops_once(tmp_path: Path) -> None:
    file = write(tmp_path / "g.npz", num_nodes=3, undirected=1, src=[0, 1], dst=[1, 1])
    graph = read_npz(file)
    assert list(zip(graph["src"], graph["dst"], strict=True)) == [(1, 0), (0, 1), (1, 1)]


def test_gaps_of_edges(tmp_path: Path) -> None:
    # Row 0 <- 300 and 301 (zigzag(300) = 600), row 1 empty, row 2 <- 0 (zigzag(-2) = 3).
    gaps = leb128([600, 1, 3])
    count = np.zeros(302, np.uint16)
    count[[0, 2]] = 2, 1
    graph = read_npz(write(tmp_path / "g.npz", num_nodes=302, edge_count=count, edge_gaps=gaps))
    assert (graph["src"].tolist(), graph["dst"].tolist()) == ([300, 301, 0], [0, 0, 2])


def test_no_edges_at_all(tmp_path: Path) -> None:
    none = np.zeros(0, np.uint8)
    file = write(tmp_path / "g.npz", num_nodes=2, edge_count=[0, 0], edge_gaps=none)
    assert read_npz(file)["src"].size == 0


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({"x": [[0.5, 2.0], [1.0, 0.0]]}, [[0.5, 2.0], [1.0, 0.0]]),
        ({"x_bits": np.array([[0b10100000], [0b01000000]], np.uint8), "x_dim": 3},
         [[1, 0, 1], [0, 1, 0]]),
        ({"x_count": [2, 1], "x_gaps": leb128([0, 2, 1]), "x_dim": 3}, [[1, 0, 1], [0, 1, 0]]),
        (
            {
                "x_count": [2, 1],
                "x_gaps": leb128([0, 2, 1]),
                "x_dim": 3,
                "x_codebook": np.array([0.25, 4.0], np.float32),
                "x_code": np.array([1, 0, 1], np.uint8),
            },
            [[4, 0, 0.25], [0, 4, 0]],
        ),
    ],
    ids=["dense", "bits", "sparse ones", "sparse codebook"],
)  # fmt: skip
def test_features(tmp_path: Path, stored: dict[str, Any], expected: list[list[float]]) -> None:
    graph = read_npz(write(tmp_path / "g.npz", num_nodes=2, src=[0], dst=[1], **stored))
    assert graph["x"].dtype == np.float32
    assert graph["x"].tolist() == expected


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"src": [0], "dst": [1]}, "num_nodes"),
        ({"num_nodes": 2, "y": [0, 1]}, "no edges"),
        ({"num_nodes": 2, "src": [0, 1], "dst": [1]}, "2 sources for 1 destinations"),
        ({"num_nodes": 2, "src": [0], "dst": [2]}, "leaves the 2 nodes"),
        ({"num_nodes": 2, "src": [-1], "dst": [0]}, "leaves the 2 nodes"),
        ({"num_nodes": 1, "edge_count": [3], "edge_gaps": leb128([0])}, "1 numbers"),
    ],
)
def test_broken_content_is_named(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    with pytest.raises(DemoError, match=message):
        read_npz(write(tmp_path / "g.npz", **arrays))


def test_files_that_are_no_archive(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a graph")
    np.save(tmp_path / "array.npy", np.zeros(3))
    with pytest.raises(DemoError, match="there is no file"):
        read_npz(tmp_path / "absent.npz")
    with pytest.raises(DemoError, match="directory"):
        read_npz(tmp_path)
    for file in (text, tmp_path / "array.npy"):
        with pytest.raises(DemoError, match=r"not an \.npz archive"):
            read_npz(file)


@pytest.mark.parametrize("name", ["cora", "pubmed", "amazon_photo", "ogbn_arxiv", "tolokers"])
def test_equals_the_reader_that_comes_with_the_files(name: str) -> None:
    folder = shared_folder("data")
    spec = importlib.util.spec_from_file_location("load_graph", folder / "load_graph.py")
    assert spec is not None and spec.loader is not None
    theirs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(theirs)
    expected, got = theirs.load(str(folder / f"{name}.npz")), read_npz(folder / f"{name}.npz")
    order = np.lexsort((expected["src"], expected["dst"]))
    assert np.array_equal(got["src"], expected["src"][order])
    assert np.array_equal(got["dst"], expected["dst"][order])
    assert np.array_equal(got["y"], expected["y"])
    if "x" in got:
        assert np.array_equal(got["x"], theirs.dense_x(expected))
