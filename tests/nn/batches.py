"""Batches for the tests of read-outs: they differ in how many nodes their members have."""

from __future__ import annotations

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl
import pytest
import torch

from tests.graphs import no_nodes, random_graph


def batch_of(*sizes: int, idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Graphs of some numbers of nodes as one."""

    def member(size: int) -> dgl.DGLGraph:
        return random_graph(size, 2 * size, size, idtype) if size else no_nodes(idtype)

    return dgl.batch([member(size) for size in sizes])


def lone(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """No batch at all."""
    return random_graph(7, 20, idtype=idtype)


def one_each(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return batch_of(1, 1, 1, idtype=idtype)


def alike(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return batch_of(4, 4, 4, idtype=idtype)


def mixed(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Sizes on both sides of powers of two, in no order."""
    return batch_of(5, 1, 17, 2, 4, 8, 3, 9, 16, idtype=idtype)


def uneven(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """A large member among small ones."""
    return batch_of(2, 300, 3, idtype=idtype)


# Batches whose members all have nodes, which DGL can read out without exception.
FULL = {builder.__name__: builder for builder in (lone, one_each, alike, mixed, uneven)}
# Members without nodes: first, in between twice, last; and nothing else.
GAPS = {
    "gaps": (0, 3, 0, 0, 6, 1, 0),
    "trailing": (2, 0),
    "leading": (0, 2),
    "nothing": (0, 0),
}
every_batch = pytest.mark.parametrize("name", sorted(FULL))
every_gap = pytest.mark.parametrize("name", sorted(GAPS))


def gaps(name: str, idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return batch_of(*GAPS[name], idtype=idtype)


def empty_graphs() -> dict[str, dgl.DGLGraph]:
    """A graph without nodes, alone and in a batch of its own."""
    return {"alone": no_nodes(), "batch of one": dgl.batch([no_nodes()])}


def members(graph: dgl.DGLGraph, feat: torch.Tensor) -> list[tuple[dgl.DGLGraph, torch.Tensor]]:
    """Each member by itself, with its rows."""
    sizes = graph.batch_num_nodes().tolist()
    return list(zip(dgl.unbatch(graph), feat.split(sizes), strict=True))
