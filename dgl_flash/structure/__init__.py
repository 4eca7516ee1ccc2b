"""Graph structure: compressed edges, degree facts and work plans, read from any graph."""

from __future__ import annotations

from typing import Any

import torch

from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.build import graph
from dgl_flash.structure.container import Graph
from dgl_flash.structure.dgl_reader import (
    EdgeType,
    dgl_structure,
    duck_structure,
    is_dgl_graph,
    known_dgl_structure,
)
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.plan import RowPlan
from dgl_flash.structure.traced import is_tracing, outside_trace

__all__ = ["Adjacency", "Graph", "GraphStructure", "RowPlan", "graph", "structure"]

_DUCK_METHODS = ("edges", "num_src_nodes", "num_dst_nodes")


def structure(
    graph: Any,
    device: torch.device | str | None = None,
    etype: EdgeType | None = None,
    *,
    op: str = "structure",
) -> GraphStructure:
    """Read the edges of a graph in the form that the ops use, once per graph and device.

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph, GraphStructure or graph-like
        The graph. An object with DGL's reading methods (``edges(order="eid")``,
        ``num_src_nodes()``, ``num_dst_nodes()``) is accepted too, but read anew on each call.
    device : torch.device or str, optional
        Where the structure is wanted, usually the device of the features; default: the graph's.
        A CPU graph is copied to each device once.
    etype : str or triple of str, optional
        Relation of a heterograph, in either of DGL's spellings.
    op : str, optional
        Name that starts the text of an error.

    Returns
    -------
    GraphStructure
        Cached with the graph: right after every mutation, never keeping the graph alive.

    Raises
    ------
    TypeError
        `graph` is not a graph.
    dgl.DGLError
        `etype` is missing, ambiguous or unknown (raised by DGL itself).
    """
    if is_tracing():
        return _known(graph, device, etype) or _outside(graph, device, etype, op=op)
    if isinstance(graph, GraphStructure):
        found = graph
    elif is_dgl_graph(graph):
        return dgl_structure(graph, device, etype)
    elif isinstance(graph, Graph):
        graph.get_etype_id(etype)
        found = graph._structure
    elif all(callable(getattr(graph, name, None)) for name in _DUCK_METHODS):
        found = duck_structure(graph)
    else:
        raise TypeError(_not_a_graph(graph, op))
    return found if device is None else found.to(device)


_outside = outside_trace(structure)


def _known(
    graph: Any, device: torch.device | str | None, etype: EdgeType | None
) -> GraphStructure | None:
    """What :func:`structure` has answered before, read in a way that ``torch.compile`` follows."""
    found = None
    if isinstance(graph, GraphStructure):
        found = graph
    elif isinstance(graph, Graph):
        graph.get_etype_id(etype)
        found = graph._structure
    elif is_dgl_graph(graph):
        return known_dgl_structure(graph, device, etype)
    return found if found is None or device is None else found.known_copy(device)


def _not_a_graph(graph: Any, op: str) -> str:
    text = (
        f"{op}: expected a graph (DGLGraph, DGLBlock or dgl_flash.Graph), "
        f"got {type(graph).__name__}; "
    )
    if isinstance(graph, torch.Tensor):
        return text + "did you swap `graph` and `feat`? The graph comes first"
    return text + "dgl_flash.graph(...) builds one from edge lists, SciPy or networkx"
