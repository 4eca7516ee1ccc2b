"""The graph zoo: every shape of graph that a kernel or a layer can meet, as DGL graphs.

Each entry is a builder that takes the idtype. ``zoo()`` has all of them, ``small_zoo()`` leaves
out those whose edges are too many for a test that walks them in Python or in float64 gradcheck.
"""

from __future__ import annotations

from collections.abc import Callable

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl
import torch
from torch import Tensor

Builder = Callable[[torch.dtype], dgl.DGLGraph]

HUB_IN_EDGES = 100_003  # odd, and above 10^5: no multiple of any chunk
_BIG = {"hub", "power_law"}


def _from_edges(src: Tensor, dst: Tensor, num_nodes: int, idtype: torch.dtype) -> dgl.DGLGraph:
    return dgl.graph((src.to(idtype), dst.to(idtype)), num_nodes=num_nodes)


def _bipartite(
    src: Tensor, dst: Tensor, num_src: int, num_dst: int, idtype: torch.dtype
) -> dgl.DGLGraph:
    return dgl.heterograph(
        {("left", "to", "right"): (src.to(idtype), dst.to(idtype))},
        num_nodes_dict={"left": num_src, "right": num_dst},
    )


def random_graph(
    num_nodes: int, num_edges: int, seed: int = 0, idtype: torch.dtype = torch.int64
) -> dgl.DGLGraph:
    """Ends drawn uniformly: multi-edges, self-loops and isolated nodes occur."""
    generator = torch.Generator().manual_seed(seed)
    ends = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return _from_edges(ends[0], ends[1], num_nodes, idtype)


def random_bipartite(
    num_src: int, num_dst: int, num_edges: int, seed: int = 0, idtype: torch.dtype = torch.int64
) -> dgl.DGLGraph:
    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(num_src, (num_edges,), generator=generator)
    dst = torch.randint(num_dst, (num_edges,), generator=generator)
    return _bipartite(src, dst, num_src, num_dst, idtype)


def empty(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Four nodes, no edge."""
    none = torch.zeros(0, dtype=torch.int64)
    return _from_edges(none, none, 4, idtype)


def no_nodes(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    none = torch.zeros(0, dtype=torch.int64)
    return _from_edges(none, none, 0, idtype)


def single_node(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """One node with a self-loop."""
    zero = torch.zeros(1, dtype=torch.int64)
    return _from_edges(zero, zero, 1, idtype)


def isolated_rows(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """First, last and inner destinations without in-edges; an isolated last node."""
    src = torch.tensor([0, 1, 2, 5, 3, 0])
    dst = torch.tensor([1, 3, 3, 6, 6, 6])
    return _from_edges(src, dst, 9, idtype)


def self_loops(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return dgl.add_self_loop(random_graph(12, 30, seed=1, idtype=idtype))


def multi_edges(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """The same pair up to seven times, edge ids interleaved."""
    src = torch.tensor([0, 1, 0, 2, 0, 1, 0, 3, 0, 0, 0, 1])
    dst = torch.tensor([1, 2, 1, 1, 1, 2, 1, 0, 1, 1, 1, 2])
    return _from_edges(src, dst, 4, idtype)


def sorted_edges(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Edges listed by destination: edge ids are the positions in CSC."""
    dst = torch.tensor([0, 0, 1, 2, 2, 2, 4])
    src = torch.tensor([1, 4, 0, 0, 2, 3, 4])
    return _from_edges(src, dst, 5, idtype)


def permuted_edges(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Given as CSC with edge ids in no order at all, not even within a row."""
    generator = torch.Generator().manual_seed(2)
    indptr = torch.tensor([0, 3, 3, 8, 10, 17, 20])
    indices = torch.randint(6, (20,), generator=generator)
    eids = torch.randperm(20, generator=generator)
    arrays = tuple(part.to(idtype) for part in (indptr, indices, eids))
    return dgl.graph(("csc", arrays), num_nodes=6)


def path(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """0 -> 1 -> 2."""
    return _from_edges(torch.tensor([0, 1]), torch.tensor([1, 2]), 3, idtype)


def regular(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Every destination has three in-edges; none is without one."""
    nodes = torch.arange(10)
    src = torch.cat([(nodes + step) % 10 for step in (1, 2, 5)])
    return _from_edges(src, nodes.repeat(3), 10, idtype)


def bipartite_up(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """3 sources, 5 destinations, the last id of both used, one destination without edges."""
    src, dst = torch.tensor([0, 2, 1, 2, 0, 2]), torch.tensor([4, 4, 0, 1, 2, 2])
    return _bipartite(src, dst, 3, 5, idtype)


def bipartite_down(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """5 sources, 3 destinations, the last id of both used, one destination without edges."""
    src, dst = torch.tensor([4, 0, 4, 2, 3, 1]), torch.tensor([2, 0, 0, 2, 2, 2])
    return _bipartite(src, dst, 5, 3, idtype)


def block(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """A message-flow block of three seeds; the destinations are the first sources."""
    seeds = torch.tensor([1, 2, 7], dtype=idtype)
    return dgl.to_block(dgl.in_subgraph(random_graph(20, 90, seed=3, idtype=idtype), seeds), seeds)


def csc_only(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return random_graph(15, 40, seed=4, idtype=idtype).formats("csc")


def csr_only(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return random_graph(15, 40, seed=5, idtype=idtype).formats("csr")


def coo_only(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    return random_graph(15, 40, seed=6, idtype=idtype).formats("coo")


def batched(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """Four graphs of different sizes as one, an empty one among them."""
    parts = [random_graph(n, 3 * n, seed=n, idtype=idtype) for n in (5, 9, 2)]
    return dgl.batch([parts[0], empty(idtype), *parts[1:]])


def two_relations(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """A heterograph: users rate items, users follow users. Not in the zoo itself."""

    def ends(*ids: list[int]) -> tuple[Tensor, ...]:
        return tuple(torch.tensor(part, dtype=idtype) for part in ids)

    return dgl.heterograph(
        {
            ("user", "follows", "user"): ends([0, 1, 3, 3], [1, 2, 0, 2]),
            ("user", "rates", "item"): ends([0, 1, 1, 2, 3, 0], [4, 0, 4, 2, 2, 2]),
        },
        num_nodes_dict={"user": 4, "item": 6},
    )


def relation_slice(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """One relation of the heterograph, 4 users -> 6 items."""
    return two_relations(idtype)["rates"]


def hub(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """One destination with more than 10^5 in-edges among rows of about two."""
    generator = torch.Generator().manual_seed(7)
    num_nodes = 300
    src = torch.randint(num_nodes, (HUB_IN_EDGES + 2 * num_nodes,), generator=generator)
    dst = torch.randint(num_nodes, src.shape, generator=generator)
    dst[:HUB_IN_EDGES] = 123
    order = torch.randperm(src.numel(), generator=generator)
    return _from_edges(src[order], dst[order], num_nodes, idtype)


def power_law(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    """2,000 nodes whose in- and out-degrees fall off like a power of the rank."""
    generator = torch.Generator().manual_seed(8)
    num_nodes, num_edges = 2000, 24_000
    weight = torch.arange(1, num_nodes + 1, dtype=torch.float64) ** -0.9
    src, dst = (
        torch.multinomial(
            weight[torch.randperm(num_nodes, generator=generator)],
            num_edges,
            replacement=True,
            generator=generator,
        )
        for _ in range(2)
    )
    return _from_edges(src, dst, num_nodes, idtype)


def zoo() -> dict[str, Builder]:
    """All graphs; each has exactly one relation."""
    builders = (
        empty,
        no_nodes,
        single_node,
        isolated_rows,
        self_loops,
        multi_edges,
        sorted_edges,
        permuted_edges,
        path,
        regular,
        bipartite_up,
        bipartite_down,
        block,
        csc_only,
        csr_only,
        coo_only,
        batched,
        relation_slice,
        hub,
        power_law,
    )
    return {builder.__name__: builder for builder in builders}


def small_zoo() -> dict[str, Builder]:
    """The zoo without its two graphs of many edges."""
    return {name: builder for name, builder in zoo().items() if name not in _BIG}
