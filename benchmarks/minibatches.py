"""Time the parts of a training step on sampled blocks, each of which is a new graph; write a CSV.

    python -m benchmarks.minibatches --out benchmarks/results/minibatches_h200.csv

``dgl`` trains on the CPU with DGL's layers. ``features`` samples from a graph on the host and moves
the features of its blocks to the device; with ``graph`` the graph itself is there
(``enable_cuda``). Each part is timed by the host's clock and ends when the device is done, so that
their sum is more than ``step``, in which nothing waits before the end.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import dgl_flash
import dgl_flash.nn
from benchmarks.environment import describe
from benchmarks.paths import RESULTS
from dgl_flash.structure import structure

# isort: split
import dgl
import dgl.nn

COLUMNS = (
    *("nodes", "edges", "batch", "hidden", "path", "part", "median_ms", "p20_ms", "p80_ms"),
    *("steps", "cpu_threads", "gpu", "torch", "cupy", "driver", "commit", "date"),
)
FANOUTS = [5, 10]
IN_FEATS, CLASSES = 64, 16
Blocks = list[Any]


class Training:
    """A GraphSAGE of two layers that trains on sampled blocks, part by part.

    Parameters
    ----------
    graph : DGLGraph
        Where to sample from, with features "feat" and labels "label".
    library : module
        ``dgl.nn`` or ``dgl_flash.nn``.
    device : torch.device
        Of the layers.
    hidden, batch : int
        Width, and seeds a step.
    """

    def __init__(
        self, graph: Any, library: Any, device: torch.device, hidden: int, batch: int
    ) -> None:
        torch.manual_seed(0)
        self.graph, self.device, self.batch = graph, device, batch
        sizes = [(IN_FEATS, hidden), (hidden, CLASSES)]
        layers = [library.SAGEConv(*size, "mean") for size in sizes]
        self.layers = nn.ModuleList(layers).to(device)
        self.optimizer = torch.optim.Adam(self.layers.parameters())
        self.sampler = dgl.dataloading.NeighborSampler(FANOUTS)

    def sample(self, step: int) -> Blocks:
        """Blocks of other seeds in each step."""
        first = step * self.batch % (self.graph.num_nodes() - self.batch)
        ids = torch.arange(first, first + self.batch, device=self.graph.device)
        blocks: Blocks = self.sampler.sample(self.graph, ids)[2]
        return blocks

    def fetch(self, blocks: Blocks) -> tuple[Tensor, Tensor]:
        """Features of the first block's sources, labels of the last one's destinations."""
        rows, labels = blocks[0].srcdata["feat"], blocks[-1].dstdata["label"]
        return rows.to(self.device), labels.to(self.device)

    def read(self, blocks: Blocks) -> None:
        """What our ops read of a graph that is new to them."""
        for block in blocks:
            structure(block, self.device)

    def forward(self, blocks: Blocks, rows: Tensor) -> Tensor:
        """Scores of the classes."""
        for layer, block in zip(self.layers, blocks, strict=True):
            rows = layer(block, rows).relu()
        return rows

    def backward(self, scores: Tensor, labels: Tensor) -> None:
        """Gradients, and a step of the optimizer."""
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(scores, labels).backward()
        self.optimizer.step()


def measure(training: Training, steps: int, reads: bool) -> Iterator[tuple[str, list[float]]]:
    """Yield milliseconds of all steps for each part."""
    parts: dict[str, list[float]] = {}

    def timed(name: str, call: Callable[..., Any], *given: Any) -> Any:
        begin = time.perf_counter()
        result = call(*given)
        if training.device.type == "cuda":
            torch.cuda.synchronize()
        parts.setdefault(name, []).append(1000 * (time.perf_counter() - begin))
        return result

    def whole(step: int) -> None:
        blocks = training.sample(step)
        rows, labels = training.fetch(blocks)
        training.backward(training.forward(blocks, rows), labels)

    for step in range(steps):
        blocks = timed("sample", training.sample, step)
        rows, labels = timed("fetch", training.fetch, blocks)
        if reads:
            timed("read", training.read, blocks)
        scores = timed("forward", training.forward, blocks, rows)
        timed("backward", training.backward, scores, labels)
        timed("step", whole, step + steps)
    yield from ((name, times[steps // 4 :]) for name, times in parts.items())  # once warm


def draw_graph(nodes: int, edges: int) -> Any:
    """Ends drawn alike, features and labels."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, nodes, (2, edges), generator=generator)
    graph = dgl.graph((ends[0], ends[1]), num_nodes=nodes)
    graph.ndata["feat"] = torch.randn(nodes, IN_FEATS, generator=generator)
    graph.ndata["label"] = torch.randint(0, CLASSES, (nodes,), generator=generator)
    return graph


def trainings(graph: Any, device: torch.device, hidden: int, batch: int) -> Iterator[Any]:
    """Each way to train, by name."""
    yield "dgl", Training(graph, dgl.nn, torch.device("cpu"), hidden, batch)
    yield "features", Training(graph, dgl_flash.nn, device, hidden, batch)
    if device.type != "cpu":
        there = graph.to(device)
        for name in graph.ndata:
            there.ndata[name]  # DGL copies features when they are first read
        yield "graph", Training(there, dgl_flash.nn, device, hidden, batch)


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time training steps on sampled blocks.")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--small", action="store_true", help="few nodes and edges")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "minibatches.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    graph = draw_graph(*((300, 2_000) if options.small else (200_000, 2_000_000)))
    batch = 20 if options.small else options.batch
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file, dgl_flash.enable_cuda():
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for path, training in trainings(graph, device, options.hidden, batch):
            for part, times in measure(training, options.steps, path != "dgl"):
                p20, median, p80 = np.percentile(times, [20, 50, 80])
                writer.writerow(
                    {
                        "nodes": graph.num_nodes(),
                        "edges": graph.num_edges(),
                        "batch": batch,
                        "hidden": options.hidden,
                        "path": path,
                        "part": part,
                        "median_ms": f"{median:.4g}",
                        "p20_ms": f"{p20:.4g}",
                        "p80_ms": f"{p80:.4g}",
                        "steps": len(times),
                        "cpu_threads": torch.get_num_threads(),
                    }
                    | environment
                )
                file.flush()
                print(f"{path} {part}: {median:.4g} ms ({p20:.4g} to {p80:.4g})", flush=True)
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
