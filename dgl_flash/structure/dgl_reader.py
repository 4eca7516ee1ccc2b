"""The only reader of DGL's objects; duck-typed, so that DGL is never imported from here."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, NamedTuple

import torch

from dgl_flash.structure.adjacency import Adjacency
from dgl_flash.structure.graph_structure import GraphStructure, resolve_device
from dgl_flash.structure.homes import home_of, on_host

_CACHE_KEY = "dgl_flash"
EdgeType = str | tuple[str, str, str]


def is_dgl_graph(graph: Any) -> bool:
    """Whether `graph` is a ``DGLGraph`` or ``DGLBlock``: it has an index object with a cache."""
    return isinstance(getattr(getattr(graph, "_graph", None), "_cache", None), dict)


def dgl_structure(
    graph: Any, device: torch.device | str | None, etype: EdgeType | None
) -> GraphStructure:
    """Structure of a relation of a DGL graph, cached on the graph's index object.

    DGL shares that object between local scopes and replaces it on every mutation; it neither
    pickles nor copies its cache. A cache entry holds tensors only, never the graph.

    Parameters
    ----------
    graph : DGLGraph or DGLBlock
        Any DGL graph.
    device : torch.device, str or None
        Where the structure is wanted; None is the graph's own device.
    etype : str, triple of str or None
        Relation; None when there is only one.

    Returns
    -------
    GraphStructure
        On `device`.
    """
    if etype is None and len(graph.canonical_etypes) == 1:
        etype_id = 0  # what DGL would answer, without four calls into its library
    else:
        etype_id = graph.get_etype_id(etype)
    known = known_structures(graph, etype_id)
    if device is None:
        device = home_of(graph._graph)
    key = None if device is None else resolve_device(device)  # None: where DGL has the graph
    found = known.get(key)
    if found is None:
        # The copy where DGL has it is kept only if asked for: the host needs no second set of
        # indices when all the work is on a GPU.
        own = known.get(None) or _read(graph, etype_id)
        found = own if key is None else own.to(key)
        known[key] = found
        if found is own:
            known[None] = found
    return found


def known_dgl_structure(
    graph: Any, device: torch.device | str | None, etype: EdgeType | None
) -> GraphStructure | None:
    """What :func:`dgl_structure` has cached for the only relation, without a call into DGL."""
    cache = graph._graph._cache.get(_CACHE_KEY)
    if cache is None or etype is not None or len(graph.canonical_etypes) != 1:
        return None
    known = cache.get(("structures", 0))
    if known is None:
        return None
    if device is None:
        device = home_of(graph._graph)
    return known.get(None if device is None else resolve_device(device))


def kept_with(graph: Any) -> dict[Any, Any]:
    """What is cached on the index object of a DGL graph; see :func:`dgl_structure`."""
    return graph._graph._cache.setdefault(_CACHE_KEY, {})


def known_structures(graph: Any, etype_id: int) -> dict[torch.device | None, GraphStructure]:
    """The structures of a relation by device; the graph and its slices share them."""
    return kept_with(graph).setdefault(("structures", etype_id), {})


def has_many_relations(graph: Any) -> bool:
    """Whether `graph` is DGL's, with edges of several types."""
    return is_dgl_graph(graph) and len(graph.canonical_etypes) > 1


def relation_ends(graph: Any) -> list[tuple[int, int]]:
    """Type ids of source and destination of each relation of a DGL graph, kept with it."""
    cache = kept_with(graph)
    if "ends" not in cache:
        find = graph._graph.metagraph.find_edge
        cache["ends"] = [tuple(map(int, find(i))) for i in range(len(graph.canonical_etypes))]
    return cache["ends"]


class Union(NamedTuple):
    """Several relations as one graph: its nodes and edges are theirs, type after type.

    Attributes
    ----------
    struct : GraphStructure
        The graph.
    num_src, num_dst, num_edges : dict of int to int
        Number of nodes of each type that is a source, of nodes of each type that is a destination,
        and of edges of each type, by type id and in the order that the graph has them in.
    """

    struct: GraphStructure
    num_src: dict[int, int]
    num_dst: dict[int, int]
    num_edges: dict[int, int]


def union(graph: Any, etype_ids: tuple[int, ...]) -> Union:
    """Relations of a DGL graph as one graph on its device, cached on the graph's index object."""
    cache = kept_with(graph)
    key = ("union", etype_ids)
    if key not in cache:
        cache[key] = _unite(graph, etype_ids)
    return cache[key]


@torch.inference_mode(False)
def _unite(graph: Any, etype_ids: tuple[int, ...]) -> Union:
    all_ends, num_nodes = relation_ends(graph), graph._graph.num_nodes
    ends = [all_ends[etype_id] for etype_id in etype_ids]
    edges = [_read(graph, etype_id).edges() for etype_id in etype_ids]

    def join(side: int) -> tuple[torch.Tensor, dict[int, int]]:
        ntypes = [types[side] for types in ends]
        sizes = {ntype: num_nodes(ntype) for ntype in sorted(set(ntypes))}
        first = dict(zip(sizes, accumulate(sizes.values(), initial=0), strict=False))
        shifted = [ids[side] + first[ntype] for ids, ntype in zip(edges, ntypes, strict=True)]
        return torch.cat(shifted), sizes

    (src, num_src), (dst, num_dst) = join(0), join(1)
    struct = GraphStructure.from_coo(src, dst, sum(num_src.values()), sum(num_dst.values()))
    home = home_of(graph._graph)
    struct = struct if home is None else struct.to(home)
    num_edges = dict(zip(etype_ids, (ids.numel() for ids, _ in edges), strict=True))
    return Union(struct, num_src, num_dst, num_edges)


@torch.inference_mode(False)  # what is kept will be used in training too
def _read(graph: Any, etype_id: int) -> GraphStructure:
    """Build the structure where DGL has the graph, from a format that the graph allows.

    A graph that is only said to be on a device is read on the host, which then knows the degrees.
    """
    index = on_host(graph._graph)
    etype = graph.canonical_etypes[etype_id]
    num_src, num_dst = graph.num_src_nodes(etype[0]), graph.num_dst_nodes(etype[2])
    try:
        indptr, indices, eids = _tensors(index, "csc", etype_id)
        return GraphStructure.from_adjacency(_adjacency(indptr, indices, eids, num_src))
    except Exception:
        allowed = {fmt for formats in graph.formats().values() for fmt in formats}
        if "csc" in allowed:
            raise
    if "csr" in allowed:
        indptr, indices, eids = _tensors(index, "csr", etype_id)
        out_adj = _adjacency(indptr, indices, eids, num_dst)
        # Transposed here and now: the host then knows the in-degrees of a CPU graph.
        return GraphStructure.from_adjacency(out_adj.transpose(), out_adj)
    src, dst = _tensors(index, "coo", etype_id)
    return GraphStructure.from_coo(src, dst, num_src, num_dst)


def _tensors(index: Any, fmt: str, etype_id: int) -> tuple[torch.Tensor, ...]:
    """What ``graph.adj_tensors`` gives (``adj_sparse`` in DGL 1.x)."""
    transposed = {"csr": ("csr", False), "csc": ("csr", True), "coo": ("coo", False)}
    read, transpose = transposed[fmt]
    tensors: tuple[torch.Tensor, ...] = index.adjacency_matrix_tensors(etype_id, transpose, read)
    return tensors[2:]


def _adjacency(
    indptr: torch.Tensor, indices: torch.Tensor, eids: torch.Tensor, num_cols: int
) -> Adjacency:
    # DGL writes consecutive edge ids as an empty tensor.
    return Adjacency(indptr, indices, eids if eids.numel() else None, num_cols)


def duck_structure(graph: Any) -> GraphStructure:
    """Structure of any object with DGL's reading methods.

    Built on each call, as nothing tells whether such an object has changed.
    """
    src, dst = graph.edges(order="eid")
    return GraphStructure.from_coo(src, dst, graph.num_src_nodes(), graph.num_dst_nodes())
