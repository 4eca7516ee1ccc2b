"""Time a heterograph of many relations: DGL's container with our layers on a CPU graph.

    python -m benchmarks.heterograph --out benchmarks/results/heterograph_h200.csv

The graph is a ``DGLGraph`` on the CPU, the features are on the device. Each relation has a layer of
its own (``GraphConv``) in ``dgl.nn.HeteroGraphConv``, which adds up their results. Beside it the
same in plain torch: gather, multiply, add.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import dgl_flash

# isort: split
import dgl
import torch
from torch import Tensor

from benchmarks.environment import describe
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer
from dgl_flash.demo.memory import peak_memory

WIDTH = 64
COLUMNS = ("what", "relations", "edges", "pass", "median_ms", "p20_ms", "p80_ms", "peak_mb")
Features = dict[str, Tensor]


def draw_graph(num_relations: int, num_edges: int, num_nodes: int) -> dgl.DGLGraph:
    """Five types of nodes, relations of Zipf's sizes between any two of them."""
    generator = torch.Generator().manual_seed(0)
    share = 1 / torch.arange(1, num_relations + 1)
    sizes = (share / share.sum() * num_edges).long().clamp(min=1)
    types = torch.randint(5, (num_relations, 2), generator=generator).tolist()
    edges = {
        (f"n{src}", f"r{relation}", f"n{dst}"): tuple(
            torch.randint(num_nodes, (2, int(size)), generator=generator)
        )
        for relation, ((src, dst), size) in enumerate(zip(types, sizes, strict=True))
    }
    return dgl.heterograph(edges, num_nodes_dict={f"n{kind}": num_nodes for kind in range(5)})


def ours(graph: dgl.DGLGraph, device: torch.device) -> Callable[[Features], Features]:
    """A layer of ours for each relation, in DGL's container."""
    layers = {
        relation: dgl_flash.nn.GraphConv(WIDTH, WIDTH, norm="right", bias=False)
        for relation in graph.etypes
    }
    return partial(dgl.nn.HeteroGraphConv(layers, aggregate="sum").to(device), graph)


def plain(graph: dgl.DGLGraph, device: torch.device) -> Callable[[Features], Features]:
    """The same in plain torch, its edges on the device."""
    weights = torch.randn(len(graph.etypes), WIDTH, WIDTH, device=device).requires_grad_()
    relations = []
    for src, relation, dst in graph.canonical_etypes:
        ends = (end.to(device) for end in graph.edges(etype=relation))
        degrees = graph.in_degrees(etype=relation).clamp(min=1).float().to(device)
        relations.append((src, dst, *ends, degrees.reciprocal().unsqueeze(1)))

    def run(feats: Features) -> Features:
        sums: Features = {}
        for (src, dst, u, v, scale), weight in zip(relations, weights.unbind(), strict=True):
            messages = (feats[src] @ weight).index_select(0, u)
            out = feats[dst].new_zeros(feats[dst].shape[0], WIDTH).index_add_(0, v, messages)
            sums[dst] = sums.get(dst, 0) + out * scale
        return sums

    return run


def _loss(layer: Callable[[Features], Features], feats: Features) -> Tensor:
    return torch.stack([out.square().sum() for out in layer(feats).values()]).sum()


def _gradients(forward: Callable[[], Tensor], feats: Features) -> tuple[Tensor, ...]:
    return torch.autograd.grad(forward(), list(feats.values()))


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time a heterograph of many relations.")
    parser.add_argument("--relations", type=int, default=2_000)
    parser.add_argument("--edges", type=int, default=3_000_000)
    parser.add_argument("--nodes", type=int, default=20_000, help="of each of five types")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "heterograph_h200.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    graph = draw_graph(options.relations, options.edges, options.nodes)
    feats = {
        kind: torch.randn(options.nodes, WIDTH, device=device).requires_grad_()
        for kind in graph.ntypes
    }
    timer, environment = Timer(device, options.repeats), describe(device, options.commit)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, *environment])
        for what, make in (("ours in dgl.nn.HeteroGraphConv", ours), ("plain torch", plain)):
            forward = partial(_loss, make(graph, device), feats)
            both = partial(_gradients, forward, feats)
            start = time.perf_counter()
            both()
            print(f"{what}: first call {time.perf_counter() - start:.1f} s")
            for which, run in (("forward", forward), ("both", both)):
                timing = timer(run)
                peak = peak_memory(run, device) / 2**20
                figures = (timing.median_ms, timing.p20_ms, timing.p80_ms, peak)
                shown = [f"{figure:.5g}" for figure in figures]
                sizes = (options.relations, graph.num_edges())
                writer.writerow([what, *sizes, which, *shown, *environment.values()])
                print(f"{what} {which}: {shown[0]} ms, {shown[3]} MB")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
