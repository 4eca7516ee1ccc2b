"""Node classification data for the demo: digits, citation graphs of DGL, stored files."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .npz import read_npz
from .optional import DemoError, MissingDependency, import_dgl, require

CITATION_GRAPHS = {
    "cora": "CoraGraphDataset",
    "citeseer": "CiteseerGraphDataset",
    "pubmed": "PubmedGraphDataset",
}
DATASETS = ("digits", *CITATION_GRAPHS)


@dataclass(frozen=True)
class NodeData:
    """A graph with features, labels and a split.

    Attributes
    ----------
    name : str
        Name for tables.
    src, dst : Tensor
        Edges ``src[e] -> dst[e]``, int64 of shape (E,), with one self-loop a node.
    feat : Tensor
        Node features, float32 of shape (N, F).
    label : Tensor
        Class of each node, int64 of shape (N,).
    train, val, test : Tensor
        Node ids of the three parts.
    notes : tuple of str
        What was made up because the source does not have it.
    """

    name: str
    src: Tensor
    dst: Tensor
    feat: Tensor
    label: Tensor
    train: Tensor
    val: Tensor
    test: Tensor
    notes: tuple[str, ...] = field(default=())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.feat.shape[0]

    @property
    def num_edges(self) -> int:
        """Number of edges, self-loops included."""
        return self.src.numel()

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return int(self.label.max()) + 1

    def graph(self, library: Any) -> Any:
        """Build the graph with ``dgl`` or with ``dgl_flash``; both have the same constructor."""
        return library.graph((self.src, self.dst), num_nodes=self.num_nodes)


def load_data(
    dataset: str = "digits", *, npz: str | Path | None = None, k: int = 8, seed: int = 0
) -> NodeData:
    """Load the data of the demo.

    Parameters
    ----------
    dataset : {"digits", "cora", "citeseer", "pubmed"}
        Digits come with scikit-learn; the others are downloaded by ``dgl.data``.
    npz : str or Path, optional
        A stored graph to use in place of ``dataset``; see :mod:`dgl_flash.demo.npz`.
    k : int
        Neighbours of each image in the graph of the digits.
    seed : int
        Seed of the split where the data brings none.

    Returns
    -------
    NodeData
        The loaded data.

    Raises
    ------
    DemoError
        If the data set is unknown, or the file does not hold what the demo needs.
    MissingDependency
        If the data set needs a package that is not installed.
    """
    if npz is not None:
        return _from_npz(Path(npz), seed=seed)
    if dataset == "digits":
        return _digits(k=k, seed=seed)
    if dataset in CITATION_GRAPHS:
        return _citation(dataset)
    raise DemoError(f"unknown dataset {dataset!r}; choose one of {', '.join(DATASETS)}, or --npz")


def _digits(*, k: int, seed: int) -> NodeData:
    """Join each of the 1,797 images of handwritten digits to the ``k`` images most like it."""
    purpose = "the digits data set"
    load_digits = require("sklearn.datasets", extra="demo", purpose=purpose).load_digits
    neighbors = require("sklearn.neighbors", extra="demo", purpose=purpose)
    images, label = load_digits(return_X_y=True)
    if not 1 <= k < len(images):
        raise DemoError(f"k must lie between 1 and {len(images) - 1}, got {k}")
    nearest = (
        neighbors.NearestNeighbors(n_neighbors=k).fit(images).kneighbors(return_distance=False)
    )
    dst = np.repeat(np.arange(len(images)), k)
    src, dst = _undirected(nearest.reshape(-1), dst, len(images))
    return _node_data(
        f"digits ({k} nearest neighbours)", src, dst, images / 16, label, _split(label, seed)
    )


def _citation(name: str) -> NodeData:
    dgl, reason = import_dgl()
    if dgl is None:
        raise MissingDependency(
            f'--dataset {name} is read through dgl.data, but {reason}; run: pip install "dgl_flash'
            f'[dgl]", or use --dataset digits or --npz FILE'
        )
    data = require("dgl.data", extra="dgl", purpose=f"--dataset {name}")
    open_dataset: Callable[..., Any] = getattr(data, CITATION_GRAPHS[name])
    try:
        with warnings.catch_warnings():
            # The published files are old pickles, about which NumPy and SciPy have things to say.
            warnings.simplefilter("ignore")
            graph = open_dataset(verbose=False)[0]
    except Exception as error:  # no network, a broken download, an unwritable cache
        raise DemoError(
            f"dgl.data could not provide {name} ({type(error).__name__}: {error}); a file of the "
            f"same data can be given with --npz FILE"
        ) from error
    src, dst = (ends.numpy() for ends in graph.edges())
    parts = tuple(
        np.flatnonzero(graph.ndata[f"{p}_mask"].numpy()) for p in ("train", "val", "test")
    )
    label = graph.ndata["label"].numpy()
    return _node_data(name, src, dst, graph.ndata["feat"].numpy(), label, parts)


def _from_npz(path: Path, *, seed: int) -> NodeData:
    stored = read_npz(path)
    num_nodes = stored["num_nodes"]
    label = stored.get("y")
    if label is None or label.shape != (num_nodes,):
        got = "no labels" if label is None else f"labels of shape {label.shape}"
        raise DemoError(
            f"{path} has {got}; the demo classifies nodes and needs `y` of shape ({num_nodes},)"
        )
    notes = []
    if "x" in stored and stored["x"].shape[0] == num_nodes:
        feat = stored["x"]
        if stored["x_is_sparse"]:  # bags of words: as usual, a row becomes a distribution
            feat = feat / np.maximum(feat.sum(1, keepdims=True), 1e-12)
    else:
        feat = np.random.default_rng(seed).standard_normal((num_nodes, 64), dtype=np.float32)
        notes.append(f"{path.name} has no node features: 64 random numbers a node stand in")
    _, label = np.unique(label, return_inverse=True)
    parts = _stored_split(stored)
    if parts is None:
        parts = _split(label, seed)
        notes.append(f"{path.name} has no split: 20 % train, 20 % validation, 60 % test, by class")
    return _node_data(path.stem, stored["src"], stored["dst"], feat, label, parts, tuple(notes))


def _stored_split(stored: dict[str, Any]) -> tuple[np.ndarray, ...] | None:
    if "split" in stored:
        first = np.atleast_2d(stored["split"])[0]
        return tuple(np.flatnonzero(first == part) for part in (0, 1, 2))
    names = ("train_idx", "val_idx", "test_idx")
    if all(name in stored for name in names):
        return tuple(stored[name] for name in names)
    return None


def _split(label: np.ndarray, seed: int) -> tuple[np.ndarray, ...]:
    """Draw 20 % of each class for training, 20 % for validation; the rest is for testing."""
    generator = np.random.default_rng(seed)
    parts: tuple[list[np.ndarray], ...] = ([], [], [])
    for value in np.unique(label):
        members = generator.permutation(np.flatnonzero(label == value))
        fifth = max(1, round(0.2 * members.size))
        for part, chosen in zip(parts, np.split(members, [fifth, 2 * fifth]), strict=True):
            part.append(chosen)
    return tuple(np.sort(np.concatenate(part)) for part in parts)


def _undirected(src: np.ndarray, dst: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    key = np.unique(np.concatenate([dst * n + src, src * n + dst]))
    return key % n, key // n


def _node_data(
    name: str,
    src: np.ndarray,
    dst: np.ndarray,
    feat: np.ndarray,
    label: np.ndarray,
    parts: tuple[np.ndarray, ...],
    notes: tuple[str, ...] = (),
) -> NodeData:
    # Exactly one self-loop a node: both models need their own features in the sum.
    other = src != dst
    loops = np.arange(len(feat))
    src = np.concatenate([src[other], loops])
    dst = np.concatenate([dst[other], loops])
    train, val, test = (torch.from_numpy(np.asarray(part, dtype=np.int64)) for part in parts)
    return NodeData(
        name=name,
        src=torch.from_numpy(src.astype(np.int64)),
        dst=torch.from_numpy(dst.astype(np.int64)),
        feat=torch.from_numpy(np.ascontiguousarray(feat, dtype=np.float32)),
        label=torch.from_numpy(np.asarray(label, dtype=np.int64)),
        train=train,
        val=val,
        test=test,
        notes=notes,
    )
