"""How the features of nodes and edges are fitted to each other, as NumPy broadcasts shapes."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error


class Fitted(NamedTuple):
    """Two operands with equally many dimensions, and the feature shape of their combination."""

    lhs: Tensor
    rhs: Tensor
    shape: tuple[int, ...]


def fit(op: str, lhs: Tensor, rhs: Tensor) -> Fitted:
    """Give the operand of fewer dimensions more of them, after the first.

    Raises
    ------
    DGLError
        If the shapes do not broadcast, or the last dimensions of a ``dot`` differ.
    """
    dims = max(lhs.dim(), rhs.dim())
    lhs, rhs = (
        side.reshape(side.shape[:1] + (1,) * (dims - side.dim()) + side.shape[1:])
        for side in (lhs, rhs)
    )
    left, right = lhs.shape[1:], rhs.shape[1:]
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise dgl_error(f"Feature shapes {left} and {right} are not valid for broadcasting.")
    if op == "dot" and dims > 1 and left[-1] != right[-1]:
        raise dgl_error(
            "Dot operator is only available for arrays with the same size on last dimension, "
            f"but got {left} and {right}."
        )
    return Fitted(lhs, rhs, tuple(torch.broadcast_shapes(left, right)))


def spread(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Rows in full width; a view where they are so already."""
    return rows.expand(rows.shape[0], *shape)


def as_weight(values: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Values of edges as weights of rows: (E,), (E, H) for the first H parts, or (E, F).

    Only values that repeat in another way than inside the parts of a row are spelled out.
    """
    num_edges, sizes = values.shape[0], tuple(values.shape[1:])
    for dims in range(len(sizes) + 1):
        if sizes[:dims] == shape[:dims] and all(size == 1 for size in sizes[dims:]):
            parts = math.prod(sizes[:dims])
            return values.reshape(num_edges) if parts == 1 else values.reshape(num_edges, parts)
    return spread(values, shape).reshape(num_edges, math.prod(shape))
