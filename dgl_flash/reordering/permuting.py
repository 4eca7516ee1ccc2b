"""The same graph with other numbers for its nodes; edges keep theirs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.structure import Graph, GraphStructure, structure
from dgl_flash.structure.dgl_reader import is_dgl_graph


def read_square(graph: Any, device: torch.device | str | None, op: str) -> GraphStructure:
    """Structure of a graph with one set of nodes.

    Raises
    ------
    TypeError
        `graph` is no graph.
    DGLError
        It has several sets of nodes or types of edges, or is a batch of graphs.
    """
    if is_dgl_graph(graph):
        if len(graph.canonical_etypes) != 1:
            raise dgl_error(
                f"{op}: expected one type of edges, got {len(graph.canonical_etypes)}; take one "
                "relation (graph[etype]), or dgl.to_homogeneous(graph)"
            )
        if graph.batch_size != 1:
            raise dgl_error(
                f"{op}: expected one graph, got a batch of {graph.batch_size}; reorder its members "
                "and batch them afterwards"
            )
    struct = structure(graph, device, op=op)
    if struct.num_src != struct.num_dst or not getattr(graph, "is_homogeneous", True):
        raise dgl_error(
            f"{op}: expected one set of nodes, got {struct.num_src} sources and {struct.num_dst} "
            "destinations; reorder the graph before blocks are sampled from it"
        )
    return struct


def permuted_structure(struct: GraphStructure, places: Tensor) -> GraphStructure:
    """Give node ``v`` the number ``places[v]``; edge ids stay."""
    src, dst = struct.edges()
    return GraphStructure.from_coo(places[src], places[dst], struct.num_src, struct.num_dst)


def permute(graph: Any, struct: GraphStructure, order: Tensor) -> Any:
    """A graph of the same kind with its features, all in another order of nodes.

    Parameters
    ----------
    graph : DGLGraph, dgl_flash.Graph or GraphStructure
        The graph.
    struct : GraphStructure
        The permuted edges.
    order : Tensor
        Shape ``(N,)``: at each new place, the node that comes there.

    Returns
    -------
    DGLGraph, dgl_flash.Graph or GraphStructure
        On the device of `graph`; features of edges are those of `graph` itself.
    """
    if isinstance(graph, GraphStructure):
        return struct.to(graph.device)
    if is_dgl_graph(graph):
        made = _dgl_graph(graph, struct)
    else:
        made = Graph(struct.to(graph.device), "homogeneous", graph.idtype)
    for name, feat in graph.ndata.items():
        made.ndata[name] = feat[order.to(feat.device)]
    for name, feat in graph.edata.items():
        made.edata[name] = feat
    return made


def _dgl_graph(graph: Any, struct: GraphStructure) -> Any:
    import dgl

    (etype,) = graph.canonical_etypes
    ends = tuple(end.to(graph.device, graph.idtype) for end in struct.edges())
    return dgl.heterograph({etype: ends}, {etype[0]: struct.num_src})
