"""What people pass to `dgl_flash.graph` is checked here, before anything is allocated."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor


def as_ids(values: Any, name: str) -> Tensor:
    """Turn ids into a 1-D integer tensor, without a copy where possible.

    Parameters
    ----------
    values : Tensor, array or sequence of int
        The ids.
    name : str
        Name of the argument, for the error.

    Returns
    -------
    Tensor
        1-D, int32 or int64, on the device of `values`.
    """
    if isinstance(values, Tensor):
        ids = values
    else:
        ids = _from_sequence(values, name)
    if ids.dim() != 1:
        raise ValueError(
            f"graph: expected `{name}` of shape (E,), got {tuple(ids.shape)}; "
            "pass one flat list of ids"
        )
    if ids.numel() == 0 and not isinstance(values, Tensor):
        return ids.long()  # an empty list has no integer type of its own
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise TypeError(
            f"graph: expected `{name}` of an integer dtype, got {ids.dtype}; pass {name}.long()"
        )
    return ids if ids.dtype in (torch.int32, torch.int64) else ids.long()


def _from_sequence(values: Any, name: str) -> Tensor:
    import numpy as np

    text = f"graph: expected `{name}` as integers, got {type(values).__name__} {values!r:.60}"
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths
        raise TypeError(text) from None
    if array.dtype.kind == "u":  # torch has no arithmetic for most unsigned types
        array = array.astype(np.int64)
    if array.dtype.kind not in "ifb":
        raise TypeError(text)
    # torch takes neither negative steps nor memory that it may not write to.
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def as_count(value: Any, name: str) -> int | None:
    """Check a number of nodes; None stays None."""
    if value is None:
        return None
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(
            f"graph: expected `{name}` as an int, got {type(value).__name__} {value!r}"
        ) from None
    if count < 0:
        raise ValueError(f"graph: expected `{name}` >= 0, got {count}")
    return count


def check_same_length(src: Tensor, dst: Tensor) -> None:
    """Refuse sources and destinations that do not pair up on one device."""
    if src.numel() != dst.numel():
        raise ValueError(
            f"graph: expected `src` and `dst` of one length, got {src.numel()} and {dst.numel()}"
        )
    if src.device != dst.device:
        raise ValueError(
            f"graph: expected `src` and `dst` on one device, got {src.device} and {dst.device}"
        )


def id_range(ids: Tensor) -> tuple[int, int]:
    """Smallest and largest id in one read of the device; (0, -1) when there is none."""
    if ids.numel() == 0:
        return 0, -1
    smallest, largest = torch.stack(torch.aminmax(ids)).tolist()
    return smallest, largest


def check_ids(ids: Tensor, name: str, count: int, found: tuple[int, int], remedy: str) -> None:
    """Refuse ids outside ``[0, count)``.

    Parameters
    ----------
    ids : Tensor
        Shape ``(E,)``, integer.
    name : str
        Name of the argument.
    count : int
        Number of nodes on that side.
    found : tuple of int
        `id_range` of `ids`.
    remedy : str
        Name of the argument that would make room.

    Raises
    ------
    ValueError
        The first id out of range, and its position.
    """
    smallest, largest = found
    if smallest >= 0 and largest < count:
        return
    position = int(torch.nonzero((ids < 0) | (ids >= count))[0])
    value = int(ids[position])
    hint = "node ids start at 0" if value < 0 else f"pass {remedy}={largest + 1} or mend the ids"
    raise ValueError(
        f"graph: expected `{name}` ids in [0, {count}), got {value} at position {position}; {hint}"
    )


def check_indptr(indptr: Tensor, num_edges: int, num_rows: int | None, count_name: str) -> None:
    """Refuse row pointers that do not describe `num_edges` edges.

    Raises
    ------
    ValueError
        Wrong length, first entry not 0, last entry not the number of edges, or decreasing.
    """
    if indptr.numel() == 0:
        raise ValueError("graph: expected `indptr` of shape (rows + 1,), got an empty one")
    if num_rows is not None and indptr.numel() != num_rows + 1:
        raise ValueError(
            f"graph: expected `indptr` of shape ({count_name} + 1,) = ({num_rows + 1},), "
            f"got ({indptr.numel()},)"
        )
    first, last = indptr[[0, -1]].tolist()
    if first != 0:
        raise ValueError(f"graph: expected `indptr` to start with 0, got {first}")
    if last != num_edges:
        raise ValueError(
            f"graph: expected `indptr` to end with the number of edges {num_edges}, got {last}"
        )
    drops = torch.nonzero(indptr.diff() < 0)
    if drops.numel():
        position = int(drops[0]) + 1
        raise ValueError(
            f"graph: expected `indptr` to never decrease, got {int(indptr[position - 1])} then "
            f"{int(indptr[position])} at position {position}"
        )


def check_eids(eids: Tensor, num_edges: int) -> None:
    """Refuse edge ids that are no permutation of ``0 .. num_edges - 1``."""
    if eids.numel() != num_edges:
        raise ValueError(
            f"graph: expected `eids` of shape (E,) = ({num_edges},) or empty, got ({eids.numel()},)"
        )
    smallest, largest = id_range(eids)
    if smallest < 0 or largest >= num_edges:
        raise ValueError(
            f"graph: expected `eids` in [0, {num_edges}), got values in [{smallest}, {largest}]"
        )
    if num_edges and int(torch.bincount(eids, minlength=num_edges).max()) > 1:
        twice = int(torch.bincount(eids, minlength=num_edges).argmax())
        raise ValueError(f"graph: expected each edge id once in `eids`, got {twice} twice")
