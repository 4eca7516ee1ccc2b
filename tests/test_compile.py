"""Every kernel compiles for every dtype and architecture, without a GPU, and does not spill."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch

from dgl_flash.kernels.jit import KernelKey, _signatures
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.source import source_root
from dgl_flash.ops import choose, choose_attention, choose_extremum

pytest.importorskip("cupy", reason="needs CuPy with NVRTC: pip install 'dgl_flash[nvrtc]'")

from tests.kernels.nvrtc import compile_for

ARCHITECTURES = (75, 80, 90, 100, 120)
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
MERGES = (
    *("merge_sum", "merge_softmax", "merge_totals"),
    *("merge_centered", "merge_gatv2_dst", "merge_shares"),
    *("merge_largest", "merge_smallest", "merge_moments"),
)
ATTENTION = {
    "dot_attention": choose_attention.dot_attention_layout,
    "gat": choose_attention.gat_layout,
    "gatv2": choose_attention.gatv2_layout,
}
PASSES = ("forward", "attention", "backward_dst", "backward_src")


@dataclass(frozen=True)
class Facts:
    num_rows: int
    num_edges: int
    max_degree: int


SKEWED = Facts(169_343, 1_166_243, 13_155)
POKEC = Facts(1_632_803, 30_622_564, 3_000)
DENSE = Facts(10_000, 1_000_000, 5_000)
HEAVY = Facts(10_000, 5_000_000, 600)
ROAD = Facts(1_000_000, 3_996_000, 4)


def attention_pass(entry: str) -> tuple[str, str] | None:
    """Kind and pass of a kernel of attention."""
    for kind in ATTENTION:
        for which in PASSES:
            if entry == f"{kind}_{which}":
                return kind, which
    return None


def attention_flags(kind: str, which: str, every: bool) -> tuple[tuple[str, int], ...]:
    on = int(every)
    found = {"EDGE_BIAS": 2 * on, "EDGE_WEIGHT": on, "DROPOUT": on, "PERMUTED": on}
    found["MULTIPLY"] = on if kind == "dot_attention" else 0
    if kind == "dot_attention":
        found["SAME_ROWS"] = 0
    if kind == "gatv2":
        found["BY_BLOCK"] = on
    if which.startswith("backward"):
        found["GRAD_ATTENTION"] = on
    if which == "backward_src":
        found |= {"GRAD_BIAS": on, "GRAD_WEIGHT": on}
    return tuple(found.items())


def collect_layout(facts: Facts, heads: int, width: int, itemsize: int) -> Layout:
    return choose_extremum.collect_layout(facts, facts, width, itemsize)


# Maxima, minima and statistics, and the rule that lays each of them out.
EXTREMES = {
    "extremum": choose_extremum.extremum_layout,
    "extremum_backward": choose_extremum.backward_layout,
    "extremum_edges": choose_extremum.edges_layout,
    "extremum_pick": choose_extremum.extremum_layout,
    "extremum_sort": choose_extremum.lists_layout,
    "extremum_collect": collect_layout,
    "statistics": choose_extremum.statistics_layout,
    "statistics_prepare": choose_extremum.statistics_layout,
    "statistics_backward": choose_extremum.statistics_backward_layout,
    "statistics_edges": choose_extremum.statistics_backward_layout,
}


def extreme_flags(entry: str, every: bool) -> tuple[tuple[str, int], ...]:
    on = int(every)
    found = {"WINNER_BYTES": 2 + on, "PERMUTED": on, "EDGE_ROWS": 0}
    if entry == "extremum_sort":
        found["MOST_PLACES"] = 2 * choose_extremum.LIST_CHUNK
    if entry in ("extremum_sort", "extremum_collect"):
        found["CONTESTS"] = 1 + on
    if entry.startswith("statistics"):
        found |= {"MEAN": 1, "TOTAL": on, "DEVIATION": 1, "ROOT": 1, "MOST": 1, "LEAST": 1}
    elif entry == "extremum":
        found |= {"MOST": 1 - on, "MESSAGE": 0, "WEIGHT": 0}
    else:
        found["WEIGHT"] = 2
    return tuple(found.items())


def flags(entry: str, every: bool) -> tuple[tuple[str, int], ...]:
    attention = attention_pass(entry)
    if attention is not None:
        return attention_flags(*attention, every)
    if entry in EXTREMES:
        return extreme_flags(entry, every)
    names = {
        "spmm": ("PERMUTED", "SRC_SCALE", "DST_SCALE", "MEAN"),
        "sddmm": ("PERMUTED", "SRC_SCALE", "DST_SCALE", "MEAN"),
        "edge_map": ("PERMUTED", "SRC_SCALE", "DST_SCALE", "MEAN"),
    }.get(entry, ("PERMUTED",) if entry.startswith("edge_softmax") else ())
    found = tuple((name, int(every)) for name in names)
    if entry == "spmm":
        found += (("WEIGHT", 2 * every), ("EDGE_ROWS", 0))
    elif entry == "sddmm":
        found += (("EDGE_ROWS", 0),)
    elif entry == "edge_map":
        found += (("MAP_OP", 2), ("OPERAND", 3), ("EDGE_ROWS", 0))
    return found


def layout_of(entry: str, facts: Facts, heads: int, width: int, itemsize: int) -> Layout | None:
    attention = attention_pass(entry)
    if attention is not None:
        kind, which = attention
        which = "forward" if which == "attention" else which
        return ATTENTION[kind](which, facts, heads, width, itemsize)
    if entry.startswith("edge_softmax"):
        return choose.edge_softmax_layout(facts, heads, width, itemsize)
    if entry in EXTREMES:
        return EXTREMES[entry](facts, heads, width, itemsize)
    if entry in MERGES or entry == "dropout_mask":
        return None
    return {
        "spmm": choose.spmm_layout,
        "sddmm": choose.sddmm_layout,
        "edge_map": choose.edge_map_layout,
    }[entry](facts, heads, width, itemsize)


def make_key(
    file: str,
    entry: str,
    dtype: torch.dtype,
    *,
    heads: int = 2,
    width: int = 64,
    facts: Facts = SKEWED,
    index_dtype: torch.dtype = torch.int32,
    every: bool = False,
) -> KernelKey:
    width = 1 if entry.startswith("edge_softmax") or entry == "merge_totals" else width
    if entry in ("extremum_sort", "extremum_collect"):
        heads, width = 1, heads * width
    layout = layout_of(entry, facts, heads, width, dtype.itemsize)
    constants = (("H", heads), ("D", width)) if layout is None else layout.constants(heads, width)
    return KernelKey(file, entry, dtype, index_dtype, constants + flags(entry, every))


def entries() -> Iterator[tuple[str, str]]:
    for path in sorted(source_root().glob("*.cu")):
        for entry in _signatures(path.name):
            yield path.name, entry


every_entry = pytest.mark.parametrize(("file", "entry"), list(entries()))


def test_all_entry_points_are_found():
    names = [entry for _, entry in entries()]
    assert len(names) == len(set(names)) == 39
    assert set(MERGES) < set(names)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@every_entry
def test_every_dtype_on_every_architecture(file, entry, dtype, architecture):
    compile_for(make_key(file, entry, dtype), architecture)


@every_entry
def test_every_option_with_64_bit_indices(file, entry):
    key = make_key(file, entry, torch.float32, index_dtype=torch.int64, every=True)
    compile_for(key, 90)


@pytest.mark.parametrize(("heads", "width"), [(1, 1), (3, 7), (5, 33), (1, 100), (8, 8), (1, 512)])
@every_entry
def test_every_kind_of_width(file, entry, heads, width):
    compile_for(make_key(file, entry, torch.float32, heads=heads, width=width, every=True), 90)


# How the products of a graph read rows of edges: rows, weights and factors of every kind.
EDGE_FLAGS = {
    "spmm": [
        {
            **{"WEIGHT": weight, "EDGE_ROWS": rows, "PERMUTED": 1},
            **{"SRC_SCALE": 0, "DST_SCALE": 1, "MEAN": 1},
        }
        for weight in (0, 1, 2, 3)
        for rows in (0, 1)
    ],
    "sddmm": [{"EDGE_ROWS": 1, "PERMUTED": 1, "SRC_SCALE": 0, "DST_SCALE": 1, "MEAN": 1}],
    "edge_map": [
        {
            **{"MAP_OP": op, "OPERAND": operand, "EDGE_ROWS": rows, "PERMUTED": 1},
            **{"SRC_SCALE": 0, "DST_SCALE": 1, "MEAN": 1},
        }
        for op, operand, rows in (
            *((0, 0, 0), (1, 1, 1), (1, 2, 1), (1, 3, 1), (1, 3, 0)),
            *((2, 1, 1), (2, 2, 1), (2, 3, 1), (2, 3, 0)),
        )
    ],
}


def edge_keys() -> list[KernelKey]:
    keys = []
    for entry, choices in EDGE_FLAGS.items():
        for given in choices:
            elementwise = 3 in (given.get("WEIGHT"), given.get("OPERAND"))
            heads, width = (1, 128) if elementwise else (2, 64)
            for dtype in (torch.float32, torch.bfloat16):
                plain = make_key(f"{entry}.cu", entry, dtype, heads=heads, width=width)
                names = [(n, v) for n, v in plain.constants if n not in given]
                if given.get("WEIGHT"):
                    fit = choose.elementwise_layout if elementwise else choose.weighted_layout
                    layout = fit(SKEWED, heads, width, dtype.itemsize)
                    names = list(layout.constants(heads, width))
                constants = (*names, *given.items())
                keys.append(dataclasses.replace(plain, constants=constants))
    return keys


@pytest.mark.parametrize(
    "key", [pytest.param(key, id=f"{key.entry}-{str(key.dtype)[6:]}") for key in edge_keys()]
)
def test_rows_of_edges_do_not_spill(key):
    assert compile_for(key, 90).spill_bytes == 0


def common_keys() -> list[KernelKey]:
    """What most people run, each distinct kernel once: no float64, which is there for gradcheck."""
    shapes = ((1, 16), (1, 64), (1, 128), (2, 64), (4, 32), (8, 8), (8, 64), (1, 256))
    keys = {
        make_key(file, entry, dtype, heads=heads, width=width, facts=facts): None
        for file, entry in entries()
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for heads, width in shapes
        for facts in (SKEWED, POKEC, DENSE, HEAVY, ROAD)
    }
    return list(keys)


@pytest.mark.parametrize(
    "key", [pytest.param(key, id=f"{key.entry}-{str(key.dtype)[6:]}") for key in common_keys()]
)
def test_common_widths_do_not_spill(key):
    assert compile_for(key, 90).spill_bytes == 0


@pytest.mark.parametrize("which", PASSES)
@pytest.mark.parametrize("kind", sorted(ATTENTION))
def test_dropout_that_lanes_share(kind, which):
    file = f"{kind}_backward.cu" if which.startswith("backward") else f"{kind}.cu"
    for dtype in (torch.float32, torch.bfloat16):
        plain = make_key(file, f"{kind}_{which}", dtype, facts=DENSE, every=True)
        constants = tuple((name, 2 if name == "DROPOUT" else v) for name, v in plain.constants)
        compile_for(dataclasses.replace(plain, constants=constants), 90)
