"""A value on every edge from its ends and itself, one step after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.reference.rows import accumulation_dtype, gather_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def gsddmm(
    struct: GraphStructure,
    op: str,
    lhs: Tensor | None,
    rhs: Tensor | None,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> Tensor:
    """Combine the values of two of source, destination and edge.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    op : {"add", "sub", "mul", "div", "dot", "copy_lhs", "copy_rhs"}
        How; ``dot`` sums the products over the last dimension, which stays with size 1.
    lhs, rhs : Tensor or None
        (N_src, ...), (N_dst, ...) or (E, ...), whose further dimensions broadcast as in NumPy.
    lhs_target, rhs_target : {"u", "v", "e"}
        What the operands belong to.

    Returns
    -------
    Tensor
        (E, ...) in edge-id order, dtype of the operands.
    """
    src, dst = struct.edges()
    given = lhs if lhs is not None else rhs
    assert given is not None
    dtype = accumulation_dtype(given.dtype)

    def on_edges(values: Tensor | None, target: str) -> Tensor | None:
        if values is None or target == "e":
            return None if values is None else values.to(dtype)
        return gather_rows(values.to(dtype), src if target == "u" else dst)

    return combine(op, on_edges(lhs, lhs_target), on_edges(rhs, rhs_target)).to(given.dtype)


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.div,
}


def combine(op: str, left: Tensor | None, right: Tensor | None) -> Tensor:
    """Apply an operator to values that lie on edges already."""
    if op == "copy_lhs" or right is None:
        assert left is not None
        return left
    if op == "copy_rhs" or left is None:
        return right
    missing = left.dim() - right.dim()
    left, right = (
        side.reshape(side.shape[:1] + (1,) * max(lack, 0) + side.shape[1:])
        for side, lack in ((left, -missing), (right, missing))
    )
    if op == "dot":
        product = left * right
        return product if product.dim() == 1 else product.sum(dim=-1, keepdim=True)
    return _BINARY[op](left, right)
