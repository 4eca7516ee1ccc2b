"""What every read-out does with the graphs of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import require_rows
from dgl_flash.structure.members import Members, members_of


def read_members(layer: nn.Module, graph: Any, feat: Any) -> Members:
    """Read what a graph is a batch of, on the device of the features.

    Parameters
    ----------
    layer : nn.Module
        Who asks; errors start with its class.
    graph : DGLGraph, dgl_flash.Graph or GraphStructure
        The graph, on any device.
    feat : Tensor
        (N, ...)

    Returns
    -------
    Members
        Kept with the graph.

    Raises
    ------
    TypeError
        If ``graph`` is no graph, as in ``pool(feat, graph)``, or ``feat`` no tensor.
    DGLError
        If the graph has several sets of nodes, or there is not one row a node, in DGL's words.
    """
    name = type(layer).__name__
    members = members_of(graph, getattr(feat, "device", "cpu"), op=name)
    if not isinstance(feat, Tensor):
        raise TypeError(
            f"{name}: expected a tensor of features, got {type(feat).__name__}; "
            "pass torch.as_tensor(...)"
        )
    require_rows(torch.atleast_1d(feat), members.num_nodes)
    return members


def reduce_members(members: Members, reducer: str, feat: Tensor) -> Tensor:
    """Reduce the rows of each member, (N, ...) to (B, ...); 0 for a member without nodes.

    Parameters
    ----------
    members : Members
        The graphs of a batch.
    reducer : {"sum", "mean", "max"}
        The reducer.
    feat : Tensor
        (N, ...)

    Returns
    -------
    Tensor
        (B, ...)
    """
    alone = members.num_members == 1 and members.num_nodes > 0 and feat.device.type == "cpu"
    if alone and reducer != "max" and feat.is_floating_point():
        # One long row: torch shares it out among its threads.
        return feat.sum(0, keepdim=True) if reducer == "sum" else feat.mean(0, keepdim=True)
    return ops.gspmm(members.struct, "copy_rhs", reducer, None, feat)


def softmax_members(members: Members, score: Tensor) -> Tensor:
    """Softmax over the nodes of each member, of (N, ...).

    Parameters
    ----------
    members : Members
        The graphs of a batch.
    score : Tensor
        (N, ...)

    Returns
    -------
    Tensor
        (N, ...)
    """
    return ops.edge_softmax(members.struct, score)


def weighted_sum(members: Members, feat: Tensor, weight: Tensor) -> Tensor:
    """Sum of ``feat * weight`` over the nodes of each member, without that product.

    Parameters
    ----------
    members : Members
        The graphs of a batch.
    feat : Tensor
        (N, ...)
    weight : Tensor
        (N, ..., 1). Of two dtypes the wider one is computed in, as in a product.

    Returns
    -------
    Tensor
        (B, ...)
    """
    if feat.dtype != weight.dtype:
        wide = torch.promote_types(feat.dtype, weight.dtype)
        feat, weight = feat.to(wide), weight.to(wide)
    # A node is both the source of its edge and the edge.
    return ops.gspmm(members.struct, "mul", "sum", feat, weight)
