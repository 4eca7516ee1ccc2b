"""Reader of graphs stored as one compressed ``.npz`` file each.

Edges lie in the file sorted by (destination, source), in one of two forms:

- ``src``, ``dst``: plain arrays;
- ``edge_count``, ``edge_gaps``: the number of in-edges of each node, and a stream of LEB128
  numbers. The first number of a row is ``zigzag(source - destination)``, each later one the
  distance to the source before it.

With ``undirected = 1`` each pair is stored once. Features are ``x`` (dense), ``x_bits`` (one bit
an entry) or ``x_count`` and ``x_gaps`` (row lengths and LEB128 column gaps) with values
``x_codebook[x_code]`` or 1.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .optional import DemoError


def read_npz(path: str | Path) -> dict[str, Any]:
    """Read a stored graph.

    Parameters
    ----------
    path : str or Path
        The ``.npz`` file.

    Returns
    -------
    dict
        ``src``, ``dst`` (int64, both directions of an undirected graph, sorted by (dst, src)),
        ``num_nodes``, ``x`` (float32 of shape (N, F)) where the file has features,
        ``x_is_sparse``, and every other array of the file as it is.

    Raises
    ------
    DemoError
        If the file is missing, is not an ``.npz`` archive or lacks the edges.
    """
    arrays = _read_arrays(Path(path))
    try:
        num_nodes = int(arrays.pop("num_nodes"))
        src, dst = _edges(arrays, num_nodes)
        if int(arrays.pop("undirected", 0)):
            src, dst = _both_directions(src, dst)
        features = _features(arrays)
    except (KeyError, ValueError, IndexError) as error:
        raise DemoError(f"{path} is not a graph file: {error}") from error
    order = np.lexsort((src, dst))
    return {"src": src[order], "dst": dst[order], "num_nodes": num_nodes, **features, **arrays}


def _read_arrays(path: Path) -> dict[str, Any]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except FileNotFoundError as error:
        raise DemoError(f"there is no file {path}") from error
    except IsADirectoryError as error:
        raise DemoError(f"{path} is a directory; --npz wants one .npz file") from error
    # A plain .npy file loads too, but as an array, which is no context manager.
    except (ValueError, OSError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise DemoError(f"{path} is not an .npz archive (or holds pickles)") from error


def _edges(arrays: dict[str, Any], num_nodes: int) -> tuple[np.ndarray, np.ndarray]:
    if "edge_gaps" in arrays:
        count = arrays.pop("edge_count").astype(np.int64)
        numbers = _leb128(arrays.pop("edge_gaps"))
        dst = np.repeat(np.arange(num_nodes), count)
        src = _undo_gaps(count, numbers, row_origin=np.arange(num_nodes))
    else:
        missing = {"src", "dst"} - arrays.keys()
        if missing:
            raise ValueError(
                f"no edges in it (neither src and dst nor edge_gaps); {sorted(arrays)}"
            )
        src = arrays.pop("src").astype(np.int64)
        dst = arrays.pop("dst").astype(np.int64)
    if src.shape != dst.shape:
        raise ValueError(f"{src.size} sources for {dst.size} destinations")
    if src.size and not (min(src.min(), dst.min()) >= 0 and max(src.max(), dst.max()) < num_nodes):
        raise ValueError(f"an edge leaves the {num_nodes} nodes")
    return src, dst


def _both_directions(src: np.ndarray, dst: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    other = src != dst  # a self-loop is its own reverse
    return np.concatenate([src, dst[other]]), np.concatenate([dst, src[other]])


def _features(arrays: dict[str, Any]) -> dict[str, Any]:
    """Take the feature arrays out of ``arrays`` and make one dense matrix of them."""
    width = int(arrays.pop("x_dim", 0))
    if "x_bits" in arrays:
        bits = np.unpackbits(arrays.pop("x_bits"), axis=1, count=width)
        return {"x": bits.astype(np.float32), "x_is_sparse": True}
    if "x_gaps" in arrays:
        count = arrays.pop("x_count").astype(np.int64)
        columns = _undo_gaps(count, _leb128(arrays.pop("x_gaps")))
        dense = np.zeros((count.size, width), np.float32)
        values = np.float32(1)
        if "x_codebook" in arrays:
            values = arrays.pop("x_codebook")[arrays.pop("x_code")]
        dense[np.repeat(np.arange(count.size), count), columns] = values
        return {"x": dense, "x_is_sparse": True}
    if "x" in arrays:
        return {"x": arrays.pop("x").astype(np.float32), "x_is_sparse": False}
    return {}


def _leb128(stream: np.ndarray) -> np.ndarray:
    """Decode unsigned LEB128: seven bits a byte, lowest first; the top bit says "more follows"."""
    last_byte = np.flatnonzero(stream < 0x80)
    if last_byte.size == 0:
        return np.zeros(0, np.int64)
    first_byte = np.concatenate([[0], last_byte[:-1] + 1])
    position = np.arange(last_byte[-1] + 1)
    place = position - np.repeat(first_byte, last_byte - first_byte + 1)
    parts = (stream[: position.size] & 0x7F).astype(np.int64) << (7 * place)
    return np.add.reduceat(parts, first_byte)


def _undo_gaps(
    count: np.ndarray, numbers: np.ndarray, row_origin: np.ndarray | None = None
) -> np.ndarray:
    """Turn per-row distances back into ids.

    The first number of a row is absolute or, given ``row_origin``, a zigzag distance to it.
    """
    if numbers.size != count.sum():
        raise ValueError(f"{numbers.size} numbers for rows of {count.sum()} entries")
    filled = np.flatnonzero(count)
    first = (np.cumsum(count) - count)[filled]
    steps = numbers.copy()
    if row_origin is not None:
        zigzag = steps[first]
        steps[first] = ((zigzag >> 1) ^ -(zigzag & 1)) + row_origin[filled]
    total = np.cumsum(steps)
    before_row = total[first] - steps[first]
    return total - np.repeat(before_row, count[filled])
