"""Time every candidate layout of every pass: the evidence behind ``dgl_flash/ops/choose.py``.

    python -m benchmarks.sweep --op gatv2 --graphs arxiv,road --out sweep.csv

Kernels are compiled by all cores first; times are medians with the L2 cache flushed, and ratios are
to the yardstick of the op's width.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import statistics
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import pandas as pd
import torch

from benchmarks.paths import find_shared
from dgl_flash.kernels.jit import KernelKey, compile_function
from dgl_flash.kernels.layout import Layout, make_layout
from dgl_flash.ops import rows
from dgl_flash.structure import GraphStructure

# The functions of the same name hide these modules from an import statement.
gatv2, spmm = (importlib.import_module(f"dgl_flash.ops.{name}") for name in ("gatv2", "spmm"))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PASSES = {"gatv2": ("forward", "backward_dst", "backward_src"), "spmm": ("forward", "backward")}


class Candidate(NamedTuple):
    """A layout and the run-time sizes that go with it."""

    layout: Layout
    per_slot: int
    chunk: int


def candidates(
    op: str, heads: int, width: int, itemsize: int, chunks: list[int]
) -> list[Candidate]:
    """Layouts worth a try."""
    found: dict[Candidate, None] = {}
    shapes = ((4, 1), (4, 8), (2, 1), (2, 12), (2, 16))
    for vectors, row_slots, unroll, (warps, blocks), per_slot, bytes_, chunk in itertools.product(
        (1, 2), (1, 2), (2, 4, 8), shapes, (4, 8), (16,) if itemsize > 2 else (8, 16), chunks
    ):
        layout = make_layout(
            heads,
            width,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            vector_bytes=bytes_,
            max_slices=2**16 if op == "spmm" else 1,
            warps=warps,
            min_blocks=blocks,
        )
        if layout.vectors * layout.vector * unroll <= 32:  # more would not fit the registers
            found[Candidate(layout, per_slot, chunk)] = None
    return list(found)


def passes(
    op: str, struct: GraphStructure, heads: int, width: int, dtype: torch.dtype
) -> dict[str, Callable[[Layout], object]]:
    """Each pass as a function of its layout, on random operands."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device="cuda").to(dtype)

    if op == "spmm":
        feat, grad = draw(struct.num_src, heads, width), draw(struct.num_dst, heads, width)
        none = spmm.Scaling()
        return {
            "forward": lambda layout: spmm._forward(struct, feat, None, none, layout),
            "backward": lambda layout: spmm._forward(struct.reverse(), grad, None, none, layout),
        }
    src, dst = draw(struct.num_src, heads, width), draw(struct.num_dst, heads, width)
    attn, grad = draw(heads, width), draw(struct.num_dst, heads, width)
    _, lse = gatv2._forward(struct, src, dst, attn, 0.2)
    state = gatv2._backward_dst(struct, src, dst, attn, lse, grad, 0.2)[1]
    return {
        "forward": lambda layout: gatv2._forward(struct, src, dst, attn, 0.2, layout),
        "backward_dst": lambda layout: gatv2._backward_dst(
            struct, src, dst, attn, lse, grad, 0.2, layout
        ),
        "backward_src": lambda layout: gatv2._backward_src(
            struct, src, dst, attn, state, grad, 0.2, layout
        ),
    }


def _compile(key: KernelKey) -> None:
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    compile_function(key)


def keys(
    op: str, heads: int, width: int, dtype: torch.dtype, index_dtype: torch.dtype
) -> Iterator[KernelKey]:
    """Every kernel that the sweep will need."""
    entries = ["spmm"] if op == "spmm" else [f"gatv2_{name}" for name in PASSES["gatv2"]]
    flags = (
        (
            ("WEIGHT", 0),
            ("PERMUTED", False),
            ("SRC_SCALE", False),
            ("DST_SCALE", False),
            ("MEAN", False),
        )
        if op == "spmm"
        else ()
    )
    layouts = {found.layout for found in candidates(op, heads, width, dtype.itemsize, [1])}
    for layout, entry in itertools.product(layouts, entries):
        constants = layout.constants(heads, width) + flags
        yield KernelKey(f"{op}.cu", entry, dtype, index_dtype, constants)


def load_graph(name: str):
    spec = importlib.util.spec_from_file_location(
        "shared_graphs", find_shared("bench") / "graphs.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load(name, "cuda")


def median_ms(run: Callable[[], object], repeats: int, flush: torch.Tensor) -> float:
    """Median of event times with a cold L2."""
    run()
    times = []
    for _ in range(repeats):
        flush.zero_()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def yardstick(struct: GraphStructure, width: int, flush: torch.Tensor) -> float:
    """Time of torch.sparse.mm over ``width`` numbers a row."""
    adj = struct.in_adj
    values = torch.ones(adj.num_edges, device="cuda")
    matrix = torch.sparse_csr_tensor(adj.indptr, adj.indices, values, (adj.num_rows, adj.num_cols))
    feat = torch.randn(adj.num_cols, width, device="cuda")
    return median_ms(lambda: torch.sparse.mm(matrix, feat), 11, flush)


def main() -> None:
    """Run the sweep and print the best layouts of each pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=sorted(PASSES), required=True)
    parser.add_argument("--graphs", default="arxiv,road,web,products")
    parser.add_argument("--dtypes", default="float32")
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--width", type=int, default=64, help="numbers a head")
    parser.add_argument("--chunks", default="256", help="edges in a piece of a long row")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--best", type=int, default=4, help="rows to print a pass")
    parser.add_argument("--out", default="sweep.csv")
    options = parser.parse_args()
    chunks = [int(size) for size in options.chunks.split(",")]
    warnings.filterwarnings("ignore", message=".*parse")

    flush = torch.empty(256 * 2**20, dtype=torch.int8, device="cuda")
    names = options.dtypes.split(",")
    wanted = [
        key
        for name in names
        for key in keys(options.op, options.heads, options.width, DTYPES[name], torch.int32)
    ]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        list(pool.map(_compile, wanted, chunksize=4))

    results = []
    for graph in options.graphs.split(","):
        src, dst, count = load_graph(graph)
        struct = GraphStructure.from_coo(src, dst, count, count)
        del src, dst
        unit = yardstick(struct, options.heads * options.width, flush)
        for name in names:
            todo = passes(options.op, struct, options.heads, options.width, DTYPES[name])
            for what, run in todo.items():
                for layout, per_slot, chunk in candidates(
                    options.op, options.heads, options.width, DTYPES[name].itemsize, chunks
                ):
                    rows.choose_rows_per_slot = lambda *_, n=per_slot: n
                    rows.choose_chunk = lambda *_, n=chunk: n
                    ms = median_ms(lambda: run(layout), options.repeats, flush)  # noqa: B023
                    results.append(
                        {
                            "graph": graph, "dtype": name, "pass": what, "ms": ms, "ratio": ms / unit,
                            "V": layout.vector, "P": layout.head_lanes, "K": layout.vectors, "S": layout.edge_slots,
                            "R": layout.row_slots, "U": layout.unroll, "warps": layout.warps,
                            "blocks": layout.min_blocks, "slices": layout.slices,
                            "per_slot": per_slot, "chunk": chunk,
                        }
                    )  # fmt: skip
        torch.cuda.empty_cache()
    table = pd.DataFrame(results)
    table.to_csv(options.out, index=False)
    for key, group in table.groupby(["graph", "dtype", "pass"], sort=False):
        best = group.sort_values("ratio").head(options.best)
        print(*key)
        print(best.drop(columns=["graph", "dtype", "pass"]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
