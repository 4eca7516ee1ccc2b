"""Time every candidate layout of every pass: the evidence behind ``dgl_flash/ops/choose.py``.

    python -m benchmarks.sweep --op gatv2 --graphs arxiv,road --out sweep.csv

Kernels are compiled by all cores first; times are medians with the L2 cache flushed, and ratios are
to the yardstick of the op's width.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from typing import NamedTuple

import pandas as pd
import torch

from benchmarks.graphs import load
from benchmarks.timing import Timer
from benchmarks.yardstick import yardstick_ms
from dgl_flash.kernels.jit import KernelKey, compile_function
from dgl_flash.kernels.layout import Layout, make_layout
from dgl_flash.ops import rows
from dgl_flash.structure import GraphStructure

# The functions of the same name hide these modules from an import statement.
gatv2, spmm = (importlib.import_module(f"dgl_flash.ops.{name}") for name in ("gatv2", "spmm"))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
SHORT = {
    **{"vector": "V", "head_lanes": "P", "heads": "HPW", "vectors": "K", "edge_slots": "S"},
    **{"row_slots": "R", "unroll": "U", "slices": "slices", "warps": "warps"},
    **{"min_blocks": "blocks", "ahead": "ahead"},
}
ENTRIES = {
    "gatv2": ("gatv2_forward", "gatv2_backward_dst", "gatv2_backward_src"),
    "spmm": ("spmm",),
}


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
    shapes = ((4, 1), (4, 8), (2, 1), (2, 10), (2, 12), (2, 14), (2, 16))
    aheads = (False, True) if op == "gatv2" else (False,)
    loads = (16,) if itemsize > 2 else (8, 16)
    choices = (1, 2), (1, 2), (2, 4, 8), shapes, (4, 8), loads, aheads, chunks
    for choice in itertools.product(*choices):
        vectors, row_slots, unroll, (warps, blocks), per_slot, vector_bytes, ahead, chunk = choice
        layout = make_layout(
            heads,
            width,
            itemsize,
            vectors=vectors,
            row_slots=row_slots,
            unroll=unroll,
            vector_bytes=vector_bytes,
            max_slices=2**16 if op == "spmm" else 1,
            warps=warps,
            min_blocks=blocks,
            ahead=ahead,
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
        feat, grad = draw(struct.num_src, heads * width), draw(struct.num_dst, heads * width)
        none = spmm.Scaling()
        return {
            "forward": lambda layout: spmm._forward(struct, feat, None, none, layout),
            "backward": lambda layout: spmm._forward(struct.reverse(), grad, None, none, layout),
        }
    src, dst = draw(struct.num_src, heads, width), draw(struct.num_dst, heads, width)
    attn, grad = draw(heads, width), draw(struct.num_dst, heads, width)
    _, lse = gatv2._forward(struct, src, dst, attn, 0.2)
    operands = struct, src, dst, attn, lse, grad, 0.2
    by_dst_only = False, True, False
    return {
        "forward": lambda layout: gatv2._forward(struct, src, dst, attn, 0.2, layout),
        "backward_dst": lambda layout: gatv2._backward(*operands, by_dst_only, (layout, None)),
        # Includes the pass by destination with its own layout, without which it cannot run.
        "backward": lambda layout: gatv2._backward(*operands, layouts=(None, layout)),
    }


def _compile(key: KernelKey) -> None:
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    compile_function(key)


def keys(
    op: str, heads: int, width: int, dtype: torch.dtype, index_dtype: torch.dtype
) -> Iterator[KernelKey]:
    """Every kernel that the sweep will need."""
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
    for layout, entry in itertools.product(layouts, ENTRIES[op]):
        constants = layout.constants(heads, width) + flags
        yield KernelKey(f"{op}.cu", entry, dtype, index_dtype, constants)


def main() -> None:
    """Run the sweep and print the best layouts of each pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=sorted(ENTRIES), required=True)
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

    timer = Timer(torch.device("cuda"), options.repeats)
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
        struct = load(graph, torch.device("cuda")).struct
        unit = yardstick_ms(struct, options.heads * options.width, timer)
        for name in names:
            todo = passes(options.op, struct, options.heads, options.width, DTYPES[name])
            for what, run in todo.items():
                for layout, per_slot, chunk in candidates(
                    options.op, options.heads, options.width, DTYPES[name].itemsize, chunks
                ):
                    rows.choose_rows_per_slot = lambda *_, n=per_slot: n
                    rows.choose_chunk = lambda *_, n=chunk: n
                    struct.in_adj.launches.clear()  # they hold the sizes chosen before
                    struct.out_adj.launches.clear()
                    ms = timer(functools.partial(run, layout)).median_ms
                    figures = {"ms": ms, "ratio": ms / unit, "per_slot": per_slot, "chunk": chunk}
                    shape = {SHORT[k]: v for k, v in asdict(layout).items() if k in SHORT}
                    results.append(
                        {"graph": graph, "dtype": name, "pass": what, **figures, **shape}
                    )
        torch.cuda.empty_cache()
    table = pd.DataFrame(results)
    table.to_csv(options.out, index=False)
    for key, group in table.groupby(["graph", "dtype", "pass"], sort=False):
        best = group.sort_values("ratio").head(options.best)
        print(*key)
        print(best.drop(columns=["graph", "dtype", "pass"]).round(3).to_string(index=False))


if __name__ == "__main__":
    main()
