"""Launches of the kernels that take several statistics in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dgl_flash.kernels.jit import KernelKey, accumulator
from dgl_flash.kernels.launch import get_kernel
from dgl_flash.kernels.layout import make_layout
from dgl_flash.kernels.memory import Scratch, empty, empty_bytes
from dgl_flash.ops.choose_extremum import (
    statistics_backward_layout,
    statistics_layout,
    wants_lists,
)
from dgl_flash.ops.rows import RowKernel
from dgl_flash.ops.winners import put_by_lists

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

KERNEL = RowKernel("statistics.cu", "statistics", statistics_layout)
BACKWARD = RowKernel("statistics.cu", "statistics_backward", statistics_backward_layout)
EDGES = RowKernel("statistics.cu", "statistics_edges", statistics_backward_layout)
PREPARE_THREADS = 256


@dataclass(frozen=True)
class Wanted:
    """What the kernels compute.

    Attributes
    ----------
    mean : bool
        Whether there is a mean, which sum and spread need.
    total : bool
        Whether there is a sum.
    spread, root : bool
        Whether there is a spread, and whether it is the standard deviation and not the variance.
    most, least : bool
        Whether there are extremes.
    exact : bool
        Whether mean and spread are kept in the arithmetic type, where it is not that of the rows.
    """

    mean: bool
    total: bool
    spread: bool
    root: bool
    most: bool
    least: bool
    exact: bool = False

    @classmethod
    def by(cls, names: tuple[str, ...]) -> Wanted:
        """Read the names that people give."""
        return cls(
            mean=not set(names) <= {"max", "min"},
            total="sum" in names,
            spread="var" in names or "std" in names,
            root="std" in names and "var" not in names,
            most="max" in names,
            least="min" in names,
        )

    def flags(self) -> dict[str, int]:
        """Names of the prelude."""
        return {
            "MEAN": int(self.mean),
            "TOTAL": int(self.total),
            "DEVIATION": int(self.spread),
            "ROOT": int(self.root),
            "MOST": int(self.most),
            "LEAST": int(self.least),
        }


class Found(NamedTuple):
    """What the forward kernel writes, (N_dst, F) each, None for what is not wanted."""

    mean: Tensor | None
    total: Tensor | None
    spread: Tensor | None
    exact_mean: Tensor | None
    exact_spread: Tensor | None
    most: Tensor | None
    least: Tensor | None
    most_winners: Tensor | None  # (B, N_dst, F)
    least_winners: Tensor | None


def forward(
    struct: GraphStructure, feat: Tensor, wanted: Wanted, on_edges: bool, num_bytes: int
) -> Found:
    """Run the kernel.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat : Tensor
        (N_src, F) or (E, F), packed.
    wanted : Wanted
        Which statistics.
    on_edges : bool
        Whether the rows belong to edges.
    num_bytes : int
        Bytes of a place that are kept of each winner.

    Returns
    -------
    Found
        What was wanted.
    """
    adj, dtype, device = struct.in_adj, feat.dtype, feat.device
    acc_dtype = accumulator(dtype)
    width, num_dst = feat.shape[1], struct.num_dst

    def made(is_wanted: bool, dtype: torch.dtype = dtype) -> Tensor | None:
        return empty((num_dst, width), dtype, device) if is_wanted else None

    def bytes_of(is_wanted: bool) -> Tensor | None:
        return empty_bytes((num_bytes, num_dst, width), device) if is_wanted else None

    exact = wanted.exact and wanted.spread
    found = Found(
        mean=made(wanted.mean),
        total=made(wanted.total),
        spread=made(wanted.spread),
        exact_mean=made(exact, acc_dtype),
        exact_spread=made(exact, acc_dtype),
        most=made(wanted.most),
        least=made(wanted.least),
        most_winners=bytes_of(wanted.most),
        least_winners=bytes_of(wanted.least),
    )
    if num_dst * width == 0:
        return found
    rows = KERNEL.on(
        adj,
        dtype,
        1,
        width,
        None,
        EDGE_ROWS=on_edges,
        PERMUTED=on_edges and adj.eids is not None,
        WINNER_BYTES=num_bytes,
        **wanted.flags(),
    )
    size = rows.num_chunks * width
    asked = (wanted.mean, wanted.spread, wanted.spread, wanted.most, wanted.least)
    sizes = [size if flag else 0 for flag in (*asked, wanted.most, wanted.least)]
    pieces = Scratch(acc_dtype, device, *sizes)
    part_total, part_mean, part_squares, part_most, part_least, *places = pieces.addresses
    rows((feat, adj.eids), (*found, *pieces.addresses))
    if rows.plan is None:
        return found
    merge = partial(rows.merge, dtype=dtype, source="merge_statistics.cu")
    if wanted.mean:
        spreads = (part_mean, part_squares) if wanted.spread else (0, 0)
        whole = (adj.indptr, rows.plan.chunk_begins, part_total, *spreads, int(wanted.root))
        merge("merge_moments", inputs=whole, outputs=found[:5])
    for entry, part, place, out, winners in (
        ("merge_largest", part_most, places[0], found.most, found.most_winners),
        ("merge_smallest", part_least, places[1], found.least, found.least_winners),
    ):
        if out is not None:
            inputs = (part, place, num_dst, num_bytes)
            merge(entry, inputs=inputs, outputs=(out, winners))
    return found


class Grads(NamedTuple):
    """Gradients of the results, None for zeros."""

    mean: Tensor | None
    total: Tensor | None
    spread: Tensor | None
    most: Tensor | None
    least: Tensor | None


class Saved(NamedTuple):
    """What the backward needs beside the rows."""

    mean: Tensor | None  # in the arithmetic type
    spread: Tensor | None
    most_winners: Tensor | None
    least_winners: Tensor | None


def _line(
    struct: GraphStructure, dtype: torch.dtype, grads: Grads, saved: Saved, wanted: Wanted
) -> tuple[Tensor | None, Tensor | None]:
    """The gradient of mean, sum and spread as a line in x for each row and number."""
    given = [grad for grad in grads[:3] if grad is not None]
    if not given or given[0].numel() == 0:
        return None, None
    num_dst, width = given[0].shape
    acc_dtype, device = accumulator(dtype), given[0].device
    has_slope = grads.spread is not None
    straight = empty((num_dst, width), acc_dtype, device)
    sloped = empty((num_dst, width), acc_dtype, device) if has_slope else None
    layout = make_layout(1, width, dtype.itemsize, vectors=1, row_slots=1, unroll=1)
    indptr = struct.in_adj.indptr
    flags = {"WINNER_BYTES": 0, "DEVIATION": int(has_slope), "ROOT": int(wanted.root)}
    constants = (*layout.constants(1, width), *flags.items())
    key = KernelKey("statistics.cu", "statistics_prepare", dtype, indptr.dtype, constants)
    kernel = get_kernel(key, indptr.device.index)
    blocks = -(-num_dst * width // PREPARE_THREADS)
    operands = (grads.mean, grads.spread, grads.total, saved.mean, saved.spread)
    kernel((blocks, 1), PREPARE_THREADS, *operands, indptr, num_dst, straight, sloped)
    return straight, sloped


def backward(
    struct: GraphStructure, feat: Tensor, grads: Grads, saved: Saved, wanted: Wanted, on_edges: bool
) -> Tensor:
    """Gradient to the rows, from those of the results.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat : Tensor
        (N_src, F) or (E, F), packed.
    grads : Grads
        (N_dst, F) each, packed.
    saved : Saved
        What the forward has kept.
    wanted : Wanted
        What it has computed.
    on_edges : bool
        Whether the rows belong to edges.

    Returns
    -------
    Tensor
        Shape and dtype of ``feat``.
    """
    dtype, width = feat.dtype, feat.shape[1]
    if feat.numel() == 0 or struct.num_edges == 0:
        return torch.zeros_like(feat)
    straight, sloped = _line(struct, dtype, grads, saved, wanted)
    lists = not on_edges and wants_lists(struct.in_adj)
    most, least = (None, None) if lists else (grads.most, grads.least)
    winners = (saved.most_winners, saved.least_winners)
    flags = {
        "WINNER_BYTES": max((won.shape[0] for won in winners if won is not None), default=0),
        "MEAN": int(straight is not None),
        "DEVIATION": int(sloped is not None),
        "MOST": int(most is not None),
        "LEAST": int(least is not None),
    }
    arrays = (feat, straight, sloped, most, least, *winners)
    grad_feat = None
    if on_edges:
        adj = struct.in_adj
        grad_feat = empty(tuple(feat.shape), dtype, feat.device)
        rows = EDGES.on(adj, dtype, 1, width, None, PERMUTED=adj.eids is not None, **flags)
        rows((*arrays, adj.eids), (grad_feat,))
    elif straight is not None or most is not None or least is not None:
        grad_feat = empty(tuple(feat.shape), dtype, feat.device)
        rows = BACKWARD.on(struct.out_adj, dtype, 1, width, None, **flags)
        pieces = Scratch(accumulator(dtype), feat.device, rows.num_chunks * width)
        (part_sum,) = pieces.addresses
        places = struct.out_places() if most is not None or least is not None else None
        rows((*arrays, places, struct.num_dst), (grad_feat, part_sum))
        rows.merge("merge_sum", dtype, inputs=(part_sum,), outputs=(grad_feat,))
    if lists:
        given = zip(winners, (grads.most, grads.least), strict=True)
        prizes = [(won, grad) for won, grad in given if won is not None and grad is not None]
        if prizes:
            grad_feat = put_by_lists(struct, prizes, grad_feat)
    return torch.zeros_like(feat) if grad_feat is None else grad_feat
