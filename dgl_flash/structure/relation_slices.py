"""The relations of a heterograph, each as a graph of its own, taken out of it once."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from dgl_flash.structure.dgl_reader import (
    is_dgl_graph,
    kept_with,
    known_structures,
    relation_ends,
)
from dgl_flash.structure.traced import is_tracing, outside_trace

EdgeTriple = tuple[str, str, str]


def relation_slices(graph: Any, *, op: str = "relation_slices") -> list[tuple[EdgeTriple, Any]]:
    """All relations of a DGL graph with ``graph[etype]`` for each, at less cost.

    Slices are kept with the graph's index object, as structures are, but without features: those
    are the ones that the graph has now. What is cached with a slice, as its structure, is there
    again in the slices of the next call, until the graph changes.

    Parameters
    ----------
    graph : DGLGraph or DGLBlock
        Any DGL graph.
    op : str, optional
        Name that starts the text of an error.

    Returns
    -------
    list of (triple of str, DGLGraph or DGLBlock)
        In the order of ``graph.canonical_etypes``.

    Raises
    ------
    TypeError
        `graph` is not a graph of DGL.
    """
    if is_tracing():
        return _known(graph) or _outside(graph, op=op)
    if not is_dgl_graph(graph):
        raise TypeError(_not_of_dgl(graph, op))
    known = _known(graph)
    if known is None:
        ends, names = tuple(relation_ends(graph)), tuple(graph.canonical_etypes)
        bare = tuple(_take_out(graph, etype_id) for etype_id in range(len(names)))
        kept_with(graph)[_key(graph)] = _Kept(names, ends, bare, tuple(map(_fields, bare)))
        known = _known(graph)
        assert known is not None
    return known


_outside = outside_trace(relation_slices)


class _Kept(NamedTuple):
    names: tuple[EdgeTriple, ...]
    ends: tuple[tuple[int, int], ...]
    slices: tuple[Any, ...]  # without features
    fields: tuple[tuple[str, ...], ...]  # names of their attributes, which no trace can list


def _fields(part: Any) -> tuple[str, ...]:
    return tuple(vars(part))


def _key(graph: Any) -> tuple[str, str]:
    return "slices", type(graph).__name__


def _known(graph: Any) -> list[tuple[EdgeTriple, Any]] | None:
    """What :func:`relation_slices` has kept, read in a way that ``torch.compile`` follows."""
    if not is_dgl_graph(graph):
        return None
    kept = kept_with(graph).get(_key(graph))
    # Two graphs of one index may differ in their names, as a block and dgl.block_to_graph of it.
    if kept is None or kept.names != tuple(graph.canonical_etypes):
        return None
    found = []
    for etype_id, bare in enumerate(kept.slices):
        part = object.__new__(type(bare))
        for name in kept.fields[etype_id]:
            setattr(part, name, getattr(bare, name))
        ntypes = dict.fromkeys(kept.ends[etype_id])
        part._node_frames = [graph._node_frames[ntype] for ntype in ntypes]
        part._edge_frames = [graph._edge_frames[etype_id]]
        found.append((kept.names[etype_id], part))
    return found


def _take_out(graph: Any, etype_id: int) -> Any:
    """``graph[etype]`` without a search for `etype`, and without features to keep alive."""
    src, dst = relation_ends(graph)[etype_id]
    src_name, name, dst_name = graph.canonical_etypes[etype_id]
    ntypes = [src_name] if src == dst else ([src_name], [dst_name])
    index = graph._graph.get_relation_graph(etype_id)
    part = type(graph)(index, ntypes, [name], [], [])
    kept_with(part)["structures", 0] = known_structures(graph, etype_id)
    return part


def _not_of_dgl(graph: Any, op: str) -> str:
    text = f"{op}: expected a DGLGraph or DGLBlock, got {type(graph).__name__}; "
    if isinstance(graph, (Tensor, dict, tuple)):
        return text + "did you swap `g` and `inputs`? The graph comes first"
    return text + "a graph of one relation needs no more than the layer for it, layer(graph, feat)"
