"""Time a heterograph of thousands of relations: as slices, as one graph, in plain torch.

    python -m benchmarks.heterograph --out benchmarks/results/heterograph_h200.csv

All add up, over the relations, the mean of the neighbours times a matrix of the relation:

==========  ======================================================================================
loop        plain torch: for each relation gather, multiply, add; its edges lie on the device
slices      ``dgl.nn.HeteroGraphConv`` with a ``GraphConv`` of ours for each relation
kept        our ``HeteroGraphConv`` with the same layers
one graph   our ``RelGraphConv`` on all relations at once
==========  ======================================================================================

The graphs of the last three stay on the CPU, the features are on the device. ``ratio`` is to the
loop, ``host_ms`` the time until a call returns. Passes ``slice`` and ``read`` are what a forward of
``slices`` and ``kept`` spends on taking its relations out of the graph, and on reading them too.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import dgl_flash.nn
from benchmarks.cases import DTYPES, Call
from benchmarks.environment import describe
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer
from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn import GraphConv, RelGraphConv
from dgl_flash.structure import structure
from dgl_flash.structure.relation_slices import relation_slices

import dgl  # isort: skip  # dgl_flash, which makes it importable, comes first

COLUMNS = (
    *("nodes", "edges", "relations", "in", "out", "dtype", "pass", "path"),
    *("median_ms", "p20_ms", "p80_ms", "host_ms", "ratio", "peak_mb"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
NUM_TYPES = 5
PASSES = ("forward", "both")
Row = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """A graph of five types of nodes, and the width of its features."""

    nodes: int = 20_000  # of each type
    edges: int = 3_000_000
    relations: int = 2_000
    width: int = 64


SMALL = Sizes(nodes=20, edges=3_000, relations=40)


def draw_graph(sizes: Sizes) -> dgl.DGLGraph:
    """Relations of Zipf's sizes, each between any two of the types."""
    generator = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(1, sizes.relations + 1)
    counts = (share / share.sum() * sizes.edges).long().clamp(min=1).tolist()
    types = torch.randint(NUM_TYPES, (sizes.relations, 2), generator=generator).tolist()
    edges = {
        (f"n{src}", f"r{relation}", f"n{dst}"): tuple(
            torch.randint(sizes.nodes, (2, count), generator=generator)
        )
        for relation, ((src, dst), count) in enumerate(zip(types, counts, strict=True))
    }
    return dgl.heterograph(edges, {f"n{kind}": sizes.nodes for kind in range(NUM_TYPES)})


def loop(graph: dgl.DGLGraph, feat: Tensor, weight: Tensor) -> Call:
    """Plain torch, one relation after the other."""
    weight = weight.clone().requires_grad_()
    relations = []
    for relation in graph.canonical_etypes:
        ends = [end.to(feat.device) for end in graph.edges(etype=relation)]
        degrees = graph.in_degrees(etype=relation).clamp(min=1).to(feat.device, feat.dtype)
        src, dst = (graph.ntypes.index(kind) for kind in relation[::2])
        relations.append((src, dst, *ends, degrees.unsqueeze(1)))

    def forward() -> Tensor:
        parts = feat.chunk(NUM_TYPES)
        sums = [torch.zeros_like(part) for part in parts]
        for (src, dst, u, v, degrees), matrix in zip(relations, weight.unbind(), strict=True):
            messages = parts[src].index_select(0, u) @ matrix
            sums[dst] += torch.zeros_like(sums[dst]).index_add_(0, v, messages) / degrees
        return torch.cat(sums)

    return Call(forward, (feat, weight))


def slices(graph: dgl.DGLGraph, feat: Tensor, weight: Tensor, library: ModuleType = dgl.nn) -> Call:
    """A container of our layers: DGL's, unless another library is given."""
    _, num_in, num_out = weight.shape
    layers = {name: GraphConv(num_in, num_out, norm="right", bias=False) for name in graph.etypes}
    for layer, matrix in zip(layers.values(), weight.unbind(), strict=True):
        layer.load_state_dict({"weight": matrix})
    container = library.HeteroGraphConv(layers, aggregate="sum").to(feat.device, feat.dtype)

    def forward() -> Tensor:
        found = container(graph, dict(zip(graph.ntypes, feat.chunk(NUM_TYPES), strict=True)))
        return torch.cat([found[kind] for kind in graph.ntypes])

    return Call(forward, (feat, *container.parameters()))


def kept(graph: dgl.DGLGraph, feat: Tensor, weight: Tensor) -> Call:
    """Our container of our layers."""
    return slices(graph, feat, weight, dgl_flash.nn)


def one_graph(graph: dgl.DGLGraph, feat: Tensor, weight: Tensor) -> Call:
    """Our layer on all relations at once."""
    merged = dgl.to_homogeneous(graph)
    types = merged.edata[dgl.ETYPE]
    pair = types * merged.num_nodes() + merged.edges()[1]
    _, which, counts = pair.unique(return_inverse=True, return_counts=True)
    norm = counts[which].reciprocal().to(feat.device, feat.dtype)
    types = types.to(feat.device)
    num_relations, num_in, num_out = weight.shape
    layer = RelGraphConv(num_in, num_out, num_relations, bias=False, self_loop=False)
    layer.to(feat.device, feat.dtype).linear_r.W.data.copy_(weight)
    return Call(lambda: layer(merged, feat, types, norm), (feat, layer.linear_r.W))


WAYS = {"loop": loop, "slices": slices, "kept": kept, "one graph": one_graph}


def prepare(
    graph: dgl.DGLGraph, sizes: Sizes, dtype: torch.dtype, device: torch.device
) -> Iterator[tuple[str, Call]]:
    """All of them, with the same weights; yields them one after the other, for their memory."""
    generator = torch.Generator().manual_seed(0)
    feat = torch.randn(NUM_TYPES * sizes.nodes, sizes.width, generator=generator)
    feat = feat.to(device, dtype).requires_grad_()
    weight = torch.randn(sizes.relations, sizes.width, sizes.width, generator=generator)
    weight = (weight / sizes.width**0.5).to(device, dtype)
    for path, make in WAYS.items():
        yield path, make(graph, feat, weight)


def reading(
    path: str, graph: dgl.DGLGraph, device: torch.device
) -> dict[str, Callable[[], object]]:
    """What a forward of a container does to the graph before it computes; nothing else reads it."""

    def take() -> list[dgl.DGLGraph]:
        if path == "kept":
            return [part for _, part in relation_slices(graph)]
        return [graph[relation] for relation in graph.canonical_etypes]

    if path not in ("slices", "kept"):
        return {}
    return {"slice": take, "read": lambda: [structure(part, device) for part in take()]}


def host_ms(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Median time until the call returns, whatever the device still has to do."""
    times = []
    for _ in range(repeats):
        _synchronize(device)
        start = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - start))
    _synchronize(device)
    return statistics.median(times)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(graph: dgl.DGLGraph, sizes: Sizes, dtype: str, timer: Timer) -> Iterator[Row]:
    """Yield a row for each way and pass; the loop comes first."""
    units: dict[str, float] = {}
    for path, call in prepare(graph, sizes, DTYPES[dtype], timer.device):
        passes = {which: getattr(call, which) for which in PASSES}
        passes |= reading(path, graph, timer.device)
        for which, run in passes.items():
            timing = timer(run)
            unit = units.setdefault(which, timing.median_ms)
            yield {
                "nodes": graph.num_nodes(),
                "edges": graph.num_edges(),
                "relations": sizes.relations,
                "in": sizes.width,
                "out": sizes.width,
                "dtype": dtype,
                "pass": which,
                "path": path,
                "median_ms": f"{timing.median_ms:.5g}",
                "p20_ms": f"{timing.p20_ms:.5g}",
                "p80_ms": f"{timing.p80_ms:.5g}",
                "host_ms": f"{host_ms(run, timer.device, timer.repeats):.5g}",
                "ratio": f"{timing.median_ms / unit:.3g}" if which in PASSES else "",
                "peak_mb": f"{peak_memory(run, timer.device) / 2**20:.5g}",
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time a heterograph of thousands of relations.")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32"])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--small", action="store_true", help="forty relations of few edges")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "heterograph.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    timer = Timer(device, options.repeats)
    sizes = SMALL if options.small else Sizes()
    graph = draw_graph(sizes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for dtype in options.dtypes:
            for row in measure(graph, sizes, dtype, timer):
                writer.writerow(row | environment)
                file.flush()
                print(
                    f"{dtype} {row['pass']} {row['path']}: {row['median_ms']} ms "
                    f"(host {row['host_ms']} ms), {row['ratio'] or '-'} x loop, "
                    f"{row['peak_mb']} MB",
                    flush=True,
                )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
