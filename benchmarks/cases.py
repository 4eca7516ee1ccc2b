"""What is measured: an op at one shape and dtype, ready to run forward and backward on a graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks import targets
from dgl_flash import ops
from dgl_flash.structure import GraphStructure

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
PASSES = ("forward", "backward", "both")


# Ops, and the shapes of their operands from N_src, N_dst, H and D.
ATTENTION: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "dot_attention": (ops.dot_attention, lambda n, m, h, d: ((m, h, d), (n, h, d), (n, h, d))),
    "gat": (ops.gat, lambda n, m, h, d: ((n, h, d), (n, h), (m, h))),
    "gatv2": (ops.gatv2, lambda n, m, h, d: ((n, h, d), (m, h, d), (h, d))),
}
EXTREMA = {"copy_u_min": ops.copy_u_min, "copy_u_max": ops.copy_u_max}
FOUR = "mean max min std"  # those of PNA


@dataclass(frozen=True)
class Case:
    """One op at one shape.

    Attributes
    ----------
    op : str
        ``"gatv2"``, ``"gat"``, ``"dot_attention"``, ``"spmm"``, ``"copy_u_min"``, ``"copy_u_max"``
        or ``"statistics"``.
    heads, head_dim : int
        Features are (N, heads, head_dim).
    reduce : str
        What ``spmm`` computes: ``"sum"``, ``"mean"``, ``"both"`` (a sum with the normalisation of a
        GCN on both sides) or ``"weighted sum"`` (with a weight an edge that takes a gradient); and
        the names that ``statistics`` is asked for.
    drop : float
        Dropout of attention.
    """

    op: str
    heads: int
    head_dim: int
    reduce: str = "sum"
    drop: float = 0.0

    @property
    def rows_an_edge(self) -> int:
        """Rows that a forward gathers: the yardstick gathers one."""
        return 2 if self.op == "dot_attention" else 1

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.heads * self.head_dim

    @property
    def shape(self) -> str:
        """Shape as it stands in tables."""
        if self.op in EXTREMA:
            return f"W={self.width}"
        if self.op in ("spmm", "statistics"):
            return f"{self.reduce} W={self.width}"
        dropout = f" dropout {self.drop}" if self.drop else ""
        return f"H={self.heads} D={self.head_dim}{dropout}"

    def held_against(self, which: str) -> tuple[Case, float] | None:
        """Find the case whose time is the measure of this one's, and the share of it allowed."""
        if self.drop:
            return dataclasses.replace(self, drop=0.0), targets.DROPOUT_SHARE
        if self.op == "gat":
            return dataclasses.replace(self, op="gatv2"), targets.GAT_SHARE
        if self.op == "copy_u_max":
            return dataclasses.replace(self, op="copy_u_min"), targets.MAX_SHARE
        if self.op == "spmm" and self.reduce in ("mean", "both"):
            return dataclasses.replace(self, reduce="sum"), targets.FACTORS_SHARE
        # What a pass over the neighbours costs shows where the pass is made: not in a backward
        # alone, to which each output brings a gradient of its own.
        if self.op == "statistics" and self.reduce != "max" and which != "backward":
            return dataclasses.replace(self, reduce="max"), targets.STATISTICS_SHARE
        return None

    def prepare(self, struct: GraphStructure, dtype: torch.dtype) -> Call:
        """Draw seeded inputs on the graph's device."""
        generator = torch.Generator(struct.device).manual_seed(0)

        def draw(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, device=struct.device, generator=generator)
            return drawn.to(dtype).requires_grad_()

        if self.op in ATTENTION:
            op, shapes = ATTENTION[self.op]
            feats = tuple(
                draw(*shape)
                for shape in shapes(struct.num_src, struct.num_dst, self.heads, self.head_dim)
            )
            return Call(lambda: op(struct, *feats, attn_drop=self.drop), feats)
        feat = draw(struct.num_src, self.width)
        if self.op in EXTREMA:
            extremum = EXTREMA[self.op]
            return Call(lambda: extremum(struct, feat), (feat,))
        if self.op == "statistics":
            names = self.reduce.split()
            return Call(lambda: ops.statistics(struct, feat, names), (feat,))
        if self.reduce == "weighted sum":
            weight = draw(struct.num_edges)
            return Call(lambda: ops.spmm(struct, feat, weight), (feat, weight))
        if self.reduce == "both":
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            src, dst = (struct.degree_scale(side, -0.5, wide) for side in ("src", "dst"))
            return Call(lambda: ops.spmm(struct, feat, src_scale=src, dst_scale=dst), (feat,))
        return Call(lambda: ops.spmm(struct, feat, reduce=self.reduce), (feat,))


class Call:
    """An op with its inputs, and its three passes as calls without arguments.

    Parameters
    ----------
    forward : callable
        Runs the op, which returns a tensor or a tuple of them.
    inputs : sequence of Tensor
        What it is differentiated by.
    """

    def __init__(
        self, forward: Callable[[], Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor]
    ) -> None:
        self.forward = forward
        self._inputs = tuple(inputs)
        self._outs = _as_tuple(forward())
        generator = torch.Generator(self._outs[0].device).manual_seed(1)
        self._grads = tuple(
            torch.randn(out.shape, device=out.device, generator=generator).to(out.dtype)
            for out in self._outs
        )

    def backward(self) -> tuple[Tensor, ...]:
        """Differentiate what was computed at the start."""
        return torch.autograd.grad(self._outs, self._inputs, self._grads, retain_graph=True)

    def both(self) -> tuple[Tensor, ...]:
        """Run forward and backward."""
        return torch.autograd.grad(_as_tuple(self.forward()), self._inputs, self._grads)


def _as_tuple(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


DROP = 0.5
STANDARD = {
    "gatv2": (Case("gatv2", 2, 64), Case("gatv2", 2, 64, drop=DROP)),
    "gat": (Case("gat", 2, 64), Case("gat", 2, 64, drop=DROP)),
    "dot_attention": (Case("dot_attention", 4, 128), Case("dot_attention", 4, 128, drop=DROP)),
    "spmm": tuple(
        Case("spmm", 1, 256, reduce) for reduce in ("sum", "mean", "both", "weighted sum")
    ),
    **{op: tuple(Case(op, 1, width) for width in (512, 128, 64)) for op in EXTREMA},
    "statistics": tuple(Case("statistics", 1, 128, reduce) for reduce in ("max", FOUR)),
}


def _every_width(op: str) -> tuple[Case, ...]:
    """Rows of 64 to 512 numbers in heads of 8 to 128, and those of classes and hidden units."""
    shapes = [
        (width // head_dim, head_dim)
        for width in (64, 128, 256, 512)
        for head_dim in (8, 32, 64, 128)
        if head_dim <= width
    ]
    cases = (Case(op, heads, head_dim) for heads, head_dim in (*shapes, (1, 7), (1, 512)))
    return tuple(dict.fromkeys((*STANDARD[op], *cases)))


ALL = {
    **{op: _every_width(op) for op in ATTENTION},
    "spmm": (
        *STANDARD["spmm"],
        *(Case("spmm", 1, width) for width in (16, 40, 64, 128, 512)),
    ),
    **{op: (*STANDARD[op], *(Case(op, 1, width) for width in (16, 40, 256))) for op in EXTREMA},
    "statistics": (
        *STANDARD["statistics"],
        *(Case("statistics", 1, 512, reduce) for reduce in ("max", FOUR)),
    ),
}
