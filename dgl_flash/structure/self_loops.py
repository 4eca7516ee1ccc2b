"""Structures with exactly one self-loop at each node."""

from __future__ import annotations

import torch

from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.traced import is_tracing, outside_trace


def with_self_loops(struct: GraphStructure) -> GraphStructure:
    """Drop the self-loops of a structure and add one to each node, once for a graph.

    Parameters
    ----------
    struct : GraphStructure
        Edges within one set of nodes.

    Returns
    -------
    GraphStructure
        The other edges in their order, then the loops in the order of the nodes, which is what
        ``dgl.add_self_loop(dgl.remove_self_loop(g))`` numbers them by. Cached with ``struct``.
    """
    edges = struct._edges
    if edges.looped is None:
        build = _build_outside if is_tracing() else _build
        build(struct)
    looped = edges.looped
    assert looped is not None
    return looped if struct._dst_side == 0 else looped.reverse()


@torch.inference_mode(False)  # what is kept will be used in training too
def _build(struct: GraphStructure) -> None:
    forward = struct if struct._dst_side == 0 else struct.reverse()
    src, dst = forward.edges()
    kept = torch.nonzero(src != dst).flatten()
    loops = torch.arange(struct.num_dst, device=struct.device)
    src, dst = torch.cat([src[kept], loops]), torch.cat([dst[kept], loops])
    struct._edges.looped = GraphStructure.from_coo(src, dst, struct.num_src, struct.num_dst)


_build_outside = outside_trace(_build)
