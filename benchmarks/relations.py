"""Time a relational layer against a loop over its relations in plain torch, and write a CSV.

    python -m benchmarks.relations --out benchmarks/results/relations_h200.csv

The loop is what one writes without this package: for each relation gather the sources, multiply,
add to the destinations. It is given its edges sorted. ``ratio`` is our time over that of the loop.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import DTYPES, Call
from benchmarks.environment import describe
from benchmarks.paths import RESULTS
from benchmarks.timing import Timer
from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn import RelGraphConv
from dgl_flash.structure import GraphStructure

COLUMNS = (
    *("case", "nodes", "edges", "relations", "in", "out", "dtype", "pass", "path"),
    *("median_ms", "p20_ms", "p80_ms", "ratio", "peak_mb"),
    *("gpu", "torch", "cupy", "driver", "commit", "date"),
)
PASSES = ("forward", "both")
Row = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A random graph whose relations have sizes after Zipf, and the widths of a layer on it."""

    name: str
    nodes: int
    edges: int
    relations: int
    num_in: int = 64
    num_out: int = 64

    def small(self) -> Case:
        """As many relations of a thousandth of the size, to try the script."""
        nodes, edges = self.nodes // 1000, self.edges // 1000
        return Case(self.name, nodes, edges, self.relations, self.num_in, self.num_out)

    def draw(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Source, destination and relation of each edge, in no order."""
        generator = torch.Generator(device).manual_seed(0)
        size = (2, self.edges)
        ends = torch.randint(self.nodes, size, generator=generator, device=device)
        share = 1 / torch.arange(1, self.relations + 1, device=device)
        bounds = share.cumsum(0) / share.sum()
        drawn = torch.rand(self.edges, generator=generator, device=device)
        types = torch.searchsorted(bounds, drawn).clamp_(max=self.relations - 1)
        return ends[0], ends[1], types


CASES = {
    "few": Case("few", 500_000, 5_000_000, 90),
    "many": Case("many", 500_000, 3_000_000, 2_000),
}


def loop(
    src: Tensor, dst: Tensor, lengths: Sequence[int], num_nodes: int
) -> Callable[[Tensor, Tensor], Tensor]:
    """Sum over the edges, sorted by relation, one relation after the other."""
    runs = list(zip(src.split(list(lengths)), dst.split(list(lengths)), strict=True))

    def run(feat: Tensor, weight: Tensor) -> Tensor:
        out = feat.new_zeros(num_nodes, weight.shape[-1])
        for (sources, destinations), matrix in zip(runs, weight.unbind(0), strict=True):
            out.index_add_(0, destinations, feat.index_select(0, sources) @ matrix)
        return out

    return run


def prepare(case: Case, dtype: torch.dtype, device: torch.device) -> dict[str, Call]:
    """Both ways, on the same graph with the same weights."""
    src, dst, types = case.draw(device)
    struct = GraphStructure.from_coo(src, dst, case.nodes, case.nodes)
    torch.manual_seed(0)
    sizes = case.num_in, case.num_out, case.relations
    layer = RelGraphConv(*sizes, bias=False, self_loop=False).to(device, dtype)
    weight = layer.linear_r.W
    feat = torch.randn(case.nodes, case.num_in, device=device).to(dtype).requires_grad_()
    order = types.argsort(stable=True)
    lengths = types.bincount(minlength=case.relations).tolist()
    naive = loop(src[order], dst[order], lengths, case.nodes)
    return {
        "loop": Call(lambda: naive(feat, weight), (feat, weight)),
        "fused": Call(lambda: layer(struct, feat, types), (feat, weight)),
    }


def measure(case: Case, dtype: str, timer: Timer) -> Iterator[Row]:
    """Yield a row for each pass and way; the loop comes first."""
    calls = prepare(case, DTYPES[dtype], timer.device)
    for which in PASSES:
        unit = 0.0
        for path, call in calls.items():
            run = getattr(call, which)
            timing = timer(run)
            unit = unit or timing.median_ms
            yield {
                "case": case.name,
                "nodes": case.nodes,
                "edges": case.edges,
                "relations": case.relations,
                "in": case.num_in,
                "out": case.num_out,
                "dtype": dtype,
                "pass": which,
                "path": path,
                "median_ms": f"{timing.median_ms:.5g}",
                "p20_ms": f"{timing.p20_ms:.5g}",
                "p80_ms": f"{timing.p80_ms:.5g}",
                "ratio": f"{timing.median_ms / unit:.3g}",
                "peak_mb": f"{peak_memory(run, timer.device) / 2**20:.5g}",
            }


def main(argv: Sequence[str] | None = None) -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="Time a relational layer against a loop.")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=["float32", "bfloat16"])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="a thousandth of nodes and edges")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--commit", help="what to record where git cannot tell")
    parser.add_argument("--out", type=Path, default=RESULTS / "relations.csv")
    options = parser.parse_args(argv)
    device = torch.device(options.device)
    environment = describe(device, options.commit)
    timer = Timer(device, options.repeats)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with options.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for name in options.cases:
            case = CASES[name].small() if options.small else CASES[name]
            for dtype in options.dtypes:
                for row in measure(case, dtype, timer):
                    writer.writerow(row | environment)
                    file.flush()
                    print(
                        f"{name} {dtype} {row['pass']} {row['path']}: {row['median_ms']} ms, "
                        f"{row['ratio']} x loop, {row['peak_mb']} MB"
                    )
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
