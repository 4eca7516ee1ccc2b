"""What the ops of ``torch.compile`` share: how they are declared and receive the edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.structure.traced import EDGE_SCHEMA, OUTSIDE_CUDA_GRAPHS, EdgeTensors

NUM_EDGE_ARGUMENTS = len(EdgeTensors._fields)
NO_EDGE_GRADIENTS = (None,) * NUM_EDGE_ARGUMENTS


def declare(name: str, schema: str) -> Any:
    """Make an op of a function that takes the edges, then what ``schema`` lists."""
    return torch.library.custom_op(
        f"dgl_flash::{name}",
        mutates_args=(),
        schema=f"({EDGE_SCHEMA}, {schema}",
        **OUTSIDE_CUDA_GRAPHS,
    )


def split(arguments: tuple[Any, ...]) -> tuple[EdgeTensors, tuple[Any, ...]]:
    """Tell the edges from the operands."""
    return EdgeTensors(*arguments[:NUM_EDGE_ARGUMENTS]), arguments[NUM_EDGE_ARGUMENTS:]


def save(ctx: Any, edges: EdgeTensors, *tensors: Tensor | None) -> None:
    """Keep edges and tensors for the backward pass."""
    ctx.save_for_backward(edges.indptr, edges.indices, edges.eids, *tensors)
    ctx.num_cols, ctx.by_dst = edges.num_cols, edges.by_dst


def saved(ctx: Any) -> tuple[EdgeTensors, tuple[Any, ...]]:
    """Give back what :func:`save` kept."""
    indptr, indices, eids, *tensors = ctx.saved_tensors
    return EdgeTensors(indptr, indices, eids, ctx.num_cols, ctx.by_dst), tuple(tensors)
