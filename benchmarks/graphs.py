"""Graphs to measure on, by name.

The shared generators are used where they are found (see ``paths.find_shared``); published figures
of peers were taken on those. Without them, the seeded generators of this file draw graphs with the
same numbers of nodes and edges and a like skew: good for work on kernels, not for comparison with
peers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks.paths import find_shared
from dgl_flash.structure import GraphStructure

Edges = tuple[Tensor, Tensor, int]


@dataclass(frozen=True)
class BenchGraph:
    """A named graph on its device."""

    name: str
    struct: GraphStructure
    source: str  # "shared" or "own"


def power_law(
    nodes: int, edges: int, skew_in: float, skew_out: float, near: float, seed: int = 0
) -> Edges:
    """Draw both ends of an edge by rank, a node of rank r in proportion to ``r ** -skew``.

    A share ``near`` of the edges gets a source whose id is close to the destination's, as in graphs
    whose ids follow a crawl or a catalogue.
    """
    generator = torch.Generator().manual_seed(seed)

    def ends(count: int, skew: float) -> Tensor:
        uniform = torch.rand(count, dtype=torch.float64, generator=generator)
        # Inverse of the integral of r^-skew over 1..nodes.
        if skew == 1:
            rank = nodes**uniform
        else:
            rank = (uniform * (nodes ** (1 - skew) - 1) + 1) ** (1 / (1 - skew))
        shuffled = torch.randperm(nodes, generator=generator)
        return shuffled[(rank.long() - 1).clamp(0, nodes - 1)]

    count = edges + edges // 6  # some pairs come twice
    dst, src = ends(count, skew_in), ends(count, skew_out)
    local = torch.rand(count, generator=generator) < near
    step = torch.randint(-nodes // 500 - 1, nodes // 500 + 2, (count,), generator=generator)
    src = torch.where(local, (dst + step) % nodes, src)
    pair = torch.unique(dst * nodes + src)
    kept = pair[torch.randperm(pair.numel(), generator=generator)[:edges]].sort().values
    return kept % nodes, kept // nodes, nodes


def grid(side: int) -> Edges:
    """Square grid, each node joined to the four beside it: roads."""
    node = torch.arange(side * side).view(side, side)
    across = torch.stack([node[:, :-1], node[:, 1:]]).flatten(1)
    down = torch.stack([node[:-1], node[1:]]).flatten(1)
    one_way = torch.cat([across, down], dim=1)
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    return both[0], both[1], side * side


def clusters(groups: int, size: int, density: float, strays: int, seed: int = 0) -> Edges:
    """Groups that are nearly complete, and ``strays`` edges between any two nodes: proteins."""
    generator = torch.Generator().manual_seed(seed)
    nodes = groups * size
    inside = []
    for first in range(0, nodes, size):
        row, column = (torch.rand(size, size, generator=generator) < density).nonzero().unbind(1)
        inside.append(torch.stack([row + first, column + first]))
    anywhere = torch.randint(nodes, (2, strays), generator=generator)
    edges = torch.cat([*inside, anywhere], dim=1)
    return edges[0], edges[1], nodes


def molecules(count: int, atoms: int, bonds: int, seed: int = 0) -> Edges:
    """A batch of molecules: a chain of ``atoms``, and ``bonds`` more between any two of them."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.arange(count)[:, None] * atoms
    chain = first + torch.arange(atoms - 1)
    extra = first + torch.randint(atoms, (2, count, bonds), generator=generator)
    one_way = torch.stack(
        [
            torch.cat([chain, extra[0]], dim=1).flatten(),
            torch.cat([chain + 1, extra[1]], dim=1).flatten(),
        ]
    )
    both = torch.cat([one_way, one_way.flip(0)], dim=1)
    return both[0], both[1], count * atoms


MOLECULES, ATOMS = 20_000, 23  # the shared generator draws as many

OWN: dict[str, Callable[[], Edges]] = {
    "arxiv": partial(power_law, 169_343, 1_166_243, 0.85, 0.55, 0.3),
    "web": partial(power_law, 1_000_000, 16_000_000, 1.0, 0.8, 0.2),
    "products": partial(power_law, 2_449_029, 61_859_140, 0.6, 0.6, 0.7),
    "proteins": partial(clusters, 207, 640, 0.9, 2_000_000),
    "road": partial(grid, 1_000),
    "tolokers": partial(power_law, 11_758, 1_038_000, 0.6, 0.6, 0.3),
    "pokec": partial(power_law, 1_632_803, 30_622_564, 0.55, 0.55, 0.5),
    "molecules": partial(molecules, MOLECULES, ATOMS, 3),
    "reddit": partial(power_law, 232_965, 114_615_892, 0.5, 0.5, 0.6),
    # For host overhead, and small enough for tests.
    "cora": partial(power_law, 2_708, 10_600, 0.5, 0.5, 0.3),
    "tiny": partial(power_law, 120, 900, 0.7, 0.5, 0.3),
    "tiny-grid": partial(grid, 9),
    "tiny-clusters": partial(clusters, 3, 20, 0.9, 40),
    "tiny-molecules": partial(molecules, 6, 9, 2),
}
# `reddit` has half as many edges again as the largest of these: it is measured when asked for.
SUITE = ("arxiv", "web", "products", "proteins", "road", "tolokers", "pokec", "molecules")


def load(name: str, device: torch.device) -> BenchGraph:
    """Build a graph of the suite, or of the stored graphs that the shared reader knows."""
    small = name in OWN and name not in (*SUITE, "reddit")
    folder = None if small else find_shared("bench")
    if folder is not None:
        spec = importlib.util.spec_from_file_location("shared_graphs", folder / "graphs.py")
        assert spec is not None and spec.loader is not None
        shared = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(shared)
        src, dst, nodes = shared.load(name, device)
    elif name in OWN:
        src, dst, nodes = OWN[name]()
    else:
        raise ValueError(f"unknown graph {name!r}; choose from {', '.join(OWN)}")
    struct = GraphStructure.from_coo(src.to(device), dst.to(device), nodes, nodes)
    return BenchGraph(name, struct, "own" if folder is None else "shared")
