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

import pandas as pd
import torch

from benchmarks.graphs import load
from benchmarks.timing import Timer
from benchmarks.yardstick import yardstick_ms
from dgl_flash.kernels.jit import KernelKey, compile_function
from dgl_flash.kernels.layout import Layout
from dgl_flash.ops.candidates import SHORT, candidates
from dgl_flash.structure import GraphStructure

# The functions of the same name hide these modules from an import statement.
gatv2, spmm = (importlib.import_module(f"dgl_flash.ops.{name}") for name in ("gatv2", "spmm"))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS_PER_SLOT = (4, 8)
ENTRIES = {
    "gatv2": ("gatv2_forward", "gatv2_backward_dst", "gatv2_backward_src"),
    "spmm": ("spmm",),
}


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
            "forward": lambda layout: spmm._launch(struct, feat, None, none, layout=layout),
            "backward": lambda layout: spmm._launch(
                struct.reverse(), grad, None, none, layout=layout
            ),
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


def compile_key(key: KernelKey) -> None:
    """Compile in a process of its own, for the disk cache."""
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
            ("EDGE_ROWS", False),
            ("PERMUTED", False),
            ("SRC_SCALE", False),
            ("DST_SCALE", False),
            ("MEAN", False),
        )
        if op == "spmm"
        else ()
    )
    layouts = candidates(op, heads, width, dtype.itemsize)
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
        list(pool.map(compile_key, wanted, chunksize=4))

    results = []
    for graph in options.graphs.split(","):
        struct = load(graph, torch.device("cuda")).struct
        unit = yardstick_ms(struct, options.heads * options.width, timer)
        for name in names:
            todo = passes(options.op, struct, options.heads, options.width, DTYPES[name])
            for what, run in todo.items():
                for layout in candidates(
                    options.op,
                    options.heads,
                    options.width,
                    DTYPES[name].itemsize,
                    rows_per_slot=ROWS_PER_SLOT,
                    chunks=chunks,
                ):
                    ms = timer(functools.partial(run, layout)).median_ms
                    figures = {"ms": ms, "ratio": ms / unit}
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
