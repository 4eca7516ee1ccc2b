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
from dgl_flash.ops import attention_kernels
from dgl_flash.ops.candidates import SHORT, candidates
from dgl_flash.ops.dot_attention import KERNELS as DOT_ATTENTION
from dgl_flash.ops.edge_terms import NO_TERMS
from dgl_flash.ops.gat import KERNELS as GAT
from dgl_flash.ops.gatv2 import KERNELS as GATV2
from dgl_flash.structure import GraphStructure

spmm = importlib.import_module("dgl_flash.ops.spmm")  # the function of that name hides it
KINDS = {kind.name: kind for kind in (DOT_ATTENTION, GAT, GATV2)}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
ROWS_PER_SLOT = (4, 8)


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
    kind = KINDS[op]
    src, dst = draw(struct.num_src, heads, width), draw(struct.num_dst, heads, width)
    operands = {
        "dot_attention": (dst, src, draw(struct.num_src, heads, width)),
        "gat": (src, draw(struct.num_src, heads), draw(struct.num_dst, heads)),
        "gatv2": (src, dst, draw(heads, width)),
    }[op]
    given = kind, struct, operands, 0.2, NO_TERMS
    _, lse = attention_kernels.forward(*given)
    after = lse, draw(struct.num_dst, heads, width), None
    every = False, False, True, True, True
    by_dst = tuple(at == 2 + kind.dst for at in range(5))
    back = functools.partial(attention_kernels.backward, *given, *after)
    return {
        "forward": lambda layout: attention_kernels.forward(*given, layout),
        "backward_dst": lambda layout: back(by_dst, (layout, None)),
        # Includes the pass by destination with its own layout, without which it cannot run.
        "backward": lambda layout: back(every, (None, layout)),
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
    layouts = candidates(op, heads, width, dtype.itemsize)
    if op == "spmm":
        of_sum = ("WEIGHT", "EDGE_ROWS", "PERMUTED", "SRC_SCALE", "DST_SCALE", "MEAN")
        entries = {("spmm.cu", "spmm"): dict.fromkeys(of_sum, 0)}
    else:
        kind = KINDS[op]
        names = ("EDGE_BIAS", "EDGE_WEIGHT", "DROPOUT", "MULTIPLY", "PERMUTED")
        terms = dict.fromkeys(names, 0)
        same = {"dot_attention": {"SAME_ROWS": 0}, "gatv2": {"BY_BLOCK": 0}}.get(op, {})
        by_dst = {**terms, "GRAD_ATTENTION": 0}
        by_src = {**by_dst, "GRAD_BIAS": 0, "GRAD_WEIGHT": 0}
        passes = {kind.forward: terms, kind.backward_dst: by_dst, kind.backward_src: by_src}
        entries = {(k.file, k.entry): {**names, **same} for k, names in passes.items()}
    for layout, ((file, entry), flags) in itertools.product(layouts, entries.items()):
        constants = layout.constants(heads, width) + tuple(flags.items())
        yield KernelKey(file, entry, dtype, index_dtype, constants)


def main() -> None:
    """Run the sweep and print the best layouts of each pass."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--op", choices=("spmm", *KINDS), required=True)
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
