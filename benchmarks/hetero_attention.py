"""Time a layer of attention on a heterograph against the same in plain torch, and write a CSV.

    python -m benchmarks.hetero_attention --out benchmarks/results/hetero_attention_h200.csv

Five types of nodes, 40 relations of Zipf's sizes, three million edges. All compute, for each
relation, what its own ``GATv2Conv`` does, and add up over the relations that end in a type:

===========  =====================================================================================
loop         plain torch: gather, softmax and scatter, with the edges on the device, sorted by
             destination
loop, drawn  the same, with the edges as they were drawn, in no order
kept         our ``HeteroGraphConv`` of the layers; the graph stays on the CPU
===========  =====================================================================================

They share the parameters, must agree before they are timed, and take turns in every round.
``ratio`` is to the faster loop: 0.25 is four times as fast. ``host_ms`` is the time until a call
returns. ``--capture`` adds each way as a CUDA graph, which leaves the time of the device alone.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.cases import DTYPES
from benchmarks.environment import describe
from benchmarks.heterograph import SMALL, Sizes, draw_graph
from benchmarks.paths import RESULTS
from benchmarks.timing import WARM_UP
from dgl_flash.demo.memory import peak_memory
from dgl_flash.kernels.timing import FLUSH_BYTES
from dgl_flash.nn import GATv2Conv, HeteroGraphConv

COLUMNS = (
    *("nodes", "edges", "relations", "in", "heads", "head_dim", "dtype", "pass", "path"),
    *("median_ms", "p20_ms", "p80_ms", "host_ms", "ratio", "peak_mb"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
SIZES = Sizes(relations=40)
SHAPES = {"4x16": (4, 16), "8x32": (8, 32)}
PASSES = ("forward", "both")
# Largest difference that is accepted, relative to one more than the norm of what the loop gives.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}
Row = dict[str, Any]
Feats = dict[str, Tensor]


@dataclass(frozen=True)
class Way:
    """A layer with its inputs, and its passes as calls without arguments."""

    layer: Callable[[Feats], Feats]
    feats: Feats
    parameters: tuple[Tensor, ...]
    grads: tuple[Tensor, ...]  # of the results

    def forward(self) -> tuple[Tensor, ...]:
        """Run the layer, ready to be differentiated; results in the order of the types."""
        found = self.layer(self.feats)
        return tuple(found[kind] for kind in self.feats)

    def both(self) -> tuple[Tensor, ...]:
        """Run forward and backward; gradients of features and parameters."""
        inputs = (*self.feats.values(), *self.parameters)
        return torch.autograd.grad(self.forward(), inputs, self.grads)


def attend(
    x: Tensor, y: Tensor, u: Tensor, v: Tensor, attn: Tensor, negative_slope: float
) -> Tensor:
    """GATv2 in plain torch, (N_dst, H * D); ``x`` and ``y`` are the projected rows.

    What can be done in place is, the maximum takes no gradient, and the sum is divided once a
    destination instead of once an edge.
    """
    _, num_heads, head_dim = attn.shape
    values = x.index_select(0, u)
    activated = F.leaky_relu_(y.index_select(0, v).add_(values), negative_slope)
    scores = (activated.view(-1, num_heads, head_dim) * attn).sum(-1)
    with torch.no_grad():
        largest = scores.new_full((len(y), num_heads), -torch.inf)
        largest.scatter_reduce_(0, v.unsqueeze(1).expand_as(scores), scores, "amax")
    weights = (scores - largest.index_select(0, v)).exp_()
    total = torch.zeros_like(largest).index_add_(0, v, weights).clamp(min=1)  # 1 is the largest's
    messages = (values.view(-1, num_heads, head_dim) * weights.unsqueeze(2)).flatten(1)
    sums = torch.zeros_like(y).index_add_(0, v, messages)
    return (sums.view(-1, num_heads, head_dim) / total.unsqueeze(2)).flatten(1)


def loop(graph: Any, layers: Mapping[str, GATv2Conv], order: str) -> Callable[[Feats], Feats]:
    """Plain torch, one relation after the other."""
    relations = []
    for src, name, dst in graph.canonical_etypes:
        layer = layers[name]
        u, v = graph.edges(etype=(src, name, dst))
        by = v.argsort(stable=True) if order == "sorted" else slice(None)
        ends = [end[by].to(layer.attn.device) for end in (u, v)]
        slope = layer.leaky_relu.negative_slope
        relations.append((src, dst, *ends, layer.fc_src, layer.fc_dst, layer.attn, slope))

    def run(feats: Feats) -> Feats:
        sums: Feats = {}
        for src, dst, u, v, fc_src, fc_dst, attn, slope in relations:
            x = F.linear(feats[src], fc_src.weight, fc_src.bias)
            y = F.linear(feats[dst], fc_dst.weight, fc_dst.bias)
            found = attend(x, y, u, v, attn, slope)
            sums[dst] = sums[dst].add_(found) if dst in sums else found
        return {kind: total.view(-1, *attn.shape[1:]) for kind, total in sums.items()}

    return run


def prepare(
    graph: Any, sizes: Sizes, shape: tuple[int, int], dtype: torch.dtype, device: torch.device
) -> dict[str, Way]:
    """All of them, with the same features, parameters and gradients."""
    torch.manual_seed(0)
    heads, head_dim = shape

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape).to(device, dtype)

    layers = {name: GATv2Conv(sizes.width, head_dim, heads) for name in graph.etypes}
    kept = HeteroGraphConv(layers, aggregate="sum").to(device, dtype)
    feats = {kind: draw(sizes.nodes, sizes.width).requires_grad_() for kind in graph.ntypes}
    grads = tuple(draw(sizes.nodes, heads, head_dim) for _ in feats)
    ways: dict[str, Callable[[Feats], Feats]] = {
        "loop": loop(graph, layers, "sorted"),
        "loop, drawn": loop(graph, layers, "drawn"),
        "kept": partial(kept, graph),
    }
    return {path: Way(way, feats, tuple(kept.parameters()), grads) for path, way in ways.items()}


def require_agreement(ways: Mapping[str, Way]) -> None:
    """Raise unless all give the results and the gradients of the first."""
    first, *others = ways
    wanted = _results(ways[first])
    for path in others:
        for number, (one, other) in enumerate(zip(_results(ways[path]), wanted, strict=True)):
            wide = other.double()
            error = float((one.double() - wide).norm() / (1 + wide.norm()))
            if not error <= TOLERANCE[other.dtype]:
                raise AssertionError(f"{path}: result {number} is off by {error:.2g} of {first}")


def _results(way: Way) -> list[Tensor]:
    with torch.no_grad():
        found = way.forward()
    return [*found, *way.both()]


@dataclass
class Times:
    """Milliseconds of one call in each round: of the device, and until it returned."""

    total: list[float] = field(default_factory=list)
    host: list[float] = field(default_factory=list)


def in_turns(
    calls: Mapping[str, Callable[[], object]], device: torch.device, rounds: int
) -> dict[str, Times]:
    """Time calls that take turns, each from an idle device with a flushed cache."""
    times = {path: Times() for path in calls}
    size = FLUSH_BYTES if device.type == "cuda" else 2**20
    flush = torch.empty(size, dtype=torch.int8, device=device)
    for number in range(-WARM_UP, rounds):
        for path, call in calls.items():
            taken = _time(call, flush)
            if number >= 0:
                times[path].total.append(taken[0])
                times[path].host.append(taken[1])
    return times


def _time(call: Callable[[], object], flush: Tensor) -> tuple[float, float]:
    flush.zero_()
    if flush.is_cuda:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
    start = time.perf_counter()
    call()
    host = 1e3 * (time.perf_counter() - start)
    if not flush.is_cuda:
        return host, host
    end.record()
    torch.cuda.synchronize(flush.device)
    return begin.elapsed_time(end), host


def captured(call: Callable[[], object]) -> Callable[[], object]:
    """Replay a call that was captured as a CUDA graph."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def measure(ways: Mapping[str, Way], device: torch.device, rounds: int) -> Iterator[Row]:
    """Yield a row for each pass and way."""
    for which in PASSES:
        calls = {path: getattr(way, which) for path, way in ways.items()}
        yield from _rows(which, calls, device, rounds)


def measure_captured(ways: Mapping[str, Way], device: torch.device, rounds: int) -> Iterator[Row]:
    """Yield a row for each pass and way, as CUDA graphs; one pass is held at a time."""
    for which in PASSES:
        calls = {f"{path}, captured": captured(getattr(way, which)) for path, way in ways.items()}
        yield from (row | {"peak_mb": ""} for row in _rows(which, calls, device, rounds))


def _rows(
    which: str, calls: Mapping[str, Callable[[], object]], device: torch.device, rounds: int
) -> Iterator[Row]:
    times = in_turns(calls, device, rounds)
    medians = {path: float(np.median(found.total)) for path, found in times.items()}
    unit = min(median for path, median in medians.items() if path.startswith("loop"))
    for path, call in calls.items():
        p20, p80 = np.percentile(times[path].total, [20, 80])
        yield {
            "pass": which,
            "path": path,
            "median_ms": f"{medians[path]:.5g}",
            "p20_ms": f"{p20:.5g}",
            "p80_ms": f"{p80:.5g}",
            "host_ms": f"{np.median(times[path].host):.5g}",
            "ratio": f"{medians[path] / unit:.3g}",
            "peak_mb": f"{peak_memory(call, device) / 2**20:.5g}",
        }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time attention on a heterograph.")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="few nodes and edges")
    parser.add_argument("--capture", action="store_true", help="on a GPU: CUDA graphs too")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "hetero_attention.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    sizes = SMALL if options.small else SIZES
    graph = draw_graph(sizes)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for shape, dtype in (
            (shape, dtype) for shape in options.shapes for dtype in options.dtypes
        ):
            heads, head_dim = SHAPES[shape]
            about = {
                "nodes": graph.num_nodes(),
                "edges": graph.num_edges(),
                "relations": sizes.relations,
                "in": sizes.width,
                "heads": heads,
                "head_dim": head_dim,
                "dtype": dtype,
            }
            ways = prepare(graph, sizes, SHAPES[shape], DTYPES[dtype], device)
            require_agreement(ways)
            for timed in (measure, measure_captured) if options.capture else (measure,):
                for row in timed(ways, device, options.rounds):
                    writer.writerow(about | row | environment)
                    file.flush()
                    print(
                        f"{shape} {dtype} {row['pass']} {row['path']}: {row['median_ms']} ms "
                        f"({row['p20_ms']} to {row['p80_ms']}, host {row['host_ms']} ms), "
                        f"{row['ratio']} x loop, {row['peak_mb'] or '-'} MB",
                        flush=True,
                    )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
