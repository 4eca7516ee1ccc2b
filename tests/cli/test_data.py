"""The data of the demo: digits, DGL's citation graphs, stored files."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dgl_flash.demo import DemoError, MissingDependency, NodeData, load_data
from dgl_flash.demo import data as data_module


def check(data: NodeData) -> None:
    """What every source must deliver."""
    n = data.num_nodes
    assert data.src.dtype == data.dst.dtype == data.label.dtype == torch.int64
    assert data.feat.dtype == torch.float32
    assert data.label.shape == (n,)
    loops = data.dst[data.src == data.dst]
    assert torch.equal(loops.sort().values, torch.arange(n))
    parts = torch.cat([data.train, data.val, data.test])
    assert parts.unique().numel() == parts.numel()
    assert min(data.train.numel(), data.val.numel(), data.test.numel()) > 0


def stored(path: Path, **arrays: Any) -> Path:
    src, dst = np.array([0, 1, 2, 3, 4, 5]), np.array([1, 2, 3, 4, 5, 0])
    np.savez(path, num_nodes=6, src=src, dst=dst, **arrays)
    return path


def test_digits() -> None:
    data = load_data("digits", k=5, seed=3)
    check(data)
    assert data.num_nodes == 1797
    assert data.num_classes == 10
    in_degree = torch.bincount(data.dst, minlength=1797)
    assert int(in_degree.min()) >= 6  # five neighbours and the self-loop
    assert torch.bincount(data.label[data.train]).min() > 30  # every class, in proportion
    same, other = load_data("digits", k=5, seed=3), load_data("digits", k=5, seed=4)
    assert torch.equal(data.train, same.train)
    assert not torch.equal(data.train, other.train)


@pytest.mark.parametrize("k", [0, 1797])
def test_digits_refuse_an_impossible_number_of_neighbours(k: int) -> None:
    with pytest.raises(DemoError, match="between 1 and 1796"):
        load_data("digits", k=k)


def test_unknown_dataset() -> None:
    with pytest.raises(DemoError, match="unknown dataset 'letters'; choose one of digits, cora"):
        load_data("letters")


def test_missing_scikit_learn_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)  # what Python calls not installed
    with pytest.raises(MissingDependency, match=r'pip install "dgl_flash\[demo\]"'):
        load_data("digits")


def test_npz_with_its_own_split_and_labels_that_start_at_one(tmp_path: Path) -> None:
    split = np.array([[0, 1, 2, 3, 0, 2], [2, 2, 2, 2, 2, 2]])
    file = stored(tmp_path / "g.npz", y=np.array([1, 2, 1, 2, 1, 2]), split=split, x=np.eye(6))
    data = load_data(npz=file)
    check(data)
    assert data.label.tolist() == [0, 1, 0, 1, 0, 1]
    assert [part.tolist() for part in (data.train, data.val, data.test)] == [[0, 4], [1], [2, 5]]
    assert data.notes == ()


def test_npz_with_index_lists(tmp_path: Path) -> None:
    parts = {"train_idx": np.array([0], np.uint8), "val_idx": [1], "test_idx": [2, 3]}
    data = load_data(npz=stored(tmp_path / "g.npz", y=np.arange(6) % 2, x=np.eye(6), **parts))
    check(data)
    assert data.test.tolist() == [2, 3]


def test_npz_bags_of_words_become_distributions(tmp_path: Path) -> None:
    bits = np.packbits(np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]] * 2, np.uint8), axis=1)
    data = load_data(npz=stored(tmp_path / "g.npz", y=np.arange(6) % 2, x_bits=bits, x_dim=3))
    assert data.feat[:3].tolist() == [[0.5, 0.5, 0], [1, 0, 0], [0, 0, 0]]


def test_npz_without_features_or_split_says_what_it_made_up(tmp_path: Path) -> None:
    data = load_data(npz=stored(tmp_path / "g.npz", y=np.arange(6) % 2))
    check(data)
    assert data.feat.shape == (6, 64)
    assert ["random numbers" in data.notes[0], "no split" in data.notes[1]] == [True, True]


@pytest.mark.parametrize("labels", [{}, {"y": np.zeros(3)}, {"y": np.zeros((6, 2))}])
def test_npz_without_one_label_a_node(tmp_path: Path, labels: dict[str, Any]) -> None:
    with pytest.raises(DemoError, match=r"needs `y` of shape \(6,\)"):
        load_data(npz=stored(tmp_path / "g.npz", **labels))


class FakeGraph:
    """What the demo reads of a graph of dgl.data."""

    def __init__(self) -> None:
        mask = torch.arange(6)
        self.ndata = {
            "feat": torch.eye(6),
            "label": torch.arange(6) % 3,
            "train_mask": mask < 3,
            "val_mask": mask == 3,
            "test_mask": mask > 3,
        }

    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2, 3, 2])


def fake_dgl(monkeypatch: pytest.MonkeyPatch, open_dataset: Any) -> None:
    datasets = SimpleNamespace(CoraGraphDataset=open_dataset)
    monkeypatch.setattr(data_module, "import_dgl", lambda: (SimpleNamespace(), ""))
    monkeypatch.setattr(data_module, "require", lambda name, **_: datasets)


def test_citation_graphs_come_from_dgl_data(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_dataset(verbose: bool) -> list[FakeGraph]:
        warnings.warn("old pickle", DeprecationWarning, stacklevel=1)
        return [FakeGraph()]

    fake_dgl(monkeypatch, open_dataset)
    data = load_data("cora")
    check(data)
    assert data.num_edges == 3 + 6  # the graph's own self-loop is not counted twice
    assert data.val.tolist() == [3]


def test_a_failed_download_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def open_dataset(verbose: bool) -> list[FakeGraph]:
        raise OSError("no route to host")

    fake_dgl(monkeypatch, open_dataset)
    with pytest.raises(DemoError, match=r"no route to host.*--npz FILE"):
        load_data("cora")


def test_citation_graphs_without_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_module, "import_dgl", lambda: (None, "DGL is not installed"))
    with pytest.raises(MissingDependency, match=r"dgl_flash\[dgl\]"):
        load_data("cora")
