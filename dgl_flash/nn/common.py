"""What every convolution does before it computes."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash.errors import dgl_error
from dgl_flash.structure import GraphStructure, structure

# Word for word DGL's, so that whoever matches on it keeps working.
ZERO_IN_DEGREE = (
    "There are 0-in-degree nodes in the graph, output for those nodes will be invalid. "
    "This is harmful for some applications, causing silent performance regression. "
    "Adding self-loop on the input graph by calling `g = dgl.add_self_loop(g)` will resolve "
    "the issue. Setting ``allow_zero_in_degree`` to be `True` when constructing this module will "
    "suppress the check and let the code run."
)


def read_graph(
    layer: nn.Module, graph: Any, feat: Any, allow_zero_in_degree: bool = True
) -> GraphStructure:
    """Read a graph once, on the device of the features.

    Parameters
    ----------
    layer : nn.Module
        Who asks; errors start with its class.
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph, on any device.
    feat : Tensor or pair of Tensor
        Features; the first of a pair decides on the device.
    allow_zero_in_degree : bool
        Accept nodes without in-edges.

    Returns
    -------
    GraphStructure
        On the device of ``feat``, cached with the graph.

    Raises
    ------
    TypeError
        If ``graph`` is no graph, as in ``conv(feat, graph)``, or ``feat`` no tensor.
    DGLError
        If there are nodes without in-edges and they are not allowed.
    """
    first = feat[0] if isinstance(feat, tuple) else feat
    name = type(layer).__name__
    struct = structure(graph, getattr(first, "device", None), op=name)
    if not isinstance(first, Tensor):
        raise TypeError(
            f"{name}: expected a tensor or a tuple of two tensors as features, "
            f"got {type(first).__name__}; pass torch.as_tensor(...)"
        )
    if not allow_zero_in_degree and struct.has_zero_in_degree:
        raise dgl_error(ZERO_IN_DEGREE)
    return struct


def expand_as_pair(value: Any, graph: Any = None) -> tuple[Any, Any]:
    """Split into a source and a destination part, as ``dgl.utils.expand_as_pair`` does.

    Parameters
    ----------
    value : Any
        A pair is returned as it is; anything else stands for both sides.
    graph : DGLGraph, optional
        On a block, whose destinations are its first sources, the second part of a tensor (or of a
        dict of tensors by node type) is cut to the destinations.

    Returns
    -------
    tuple
        Source and destination part.
    """
    if isinstance(value, tuple):
        return value
    if not getattr(graph, "is_block", False):
        return value, value
    if isinstance(value, dict):
        return value, {key: part[: graph.num_dst_nodes(key)] for key, part in value.items()}
    return value, value[: graph.num_dst_nodes()]
