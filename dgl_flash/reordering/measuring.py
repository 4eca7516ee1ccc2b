"""What an order of nodes is worth to an op: times before and after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dgl_flash import ops
from dgl_flash.kernels.timing import Timer, Timing
from dgl_flash.structure import GraphStructure

HEADS = 4
_ROUNDS = 4  # in which the two take turns


@dataclass(frozen=True)
class MeasuredChange:
    """Milliseconds of an op on a graph as it was given, and reordered.

    Attributes
    ----------
    op : str
        What was run.
    before, after : Timing
        Median, 20th and 80th percentile.

    Notes
    -----
    **Fused path.** There is none: nothing is computed.
    """

    op: str
    before: Timing
    after: Timing

    @property
    def ratio(self) -> float:
        """Time after over time before."""
        return self.after.median_ms / self.before.median_ms

    def __str__(self) -> str:
        return (
            f"{self.op}: {self.before.median_ms:.4g} ms ({self.before.p20_ms:.4g} to "
            f"{self.before.p80_ms:.4g}) as given, {self.after.median_ms:.4g} ms "
            f"({self.after.p20_ms:.4g} to {self.after.p80_ms:.4g}) reordered, x {self.ratio:.2f}"
        )


def _sum(struct: GraphStructure, feat: Tensor) -> object:
    return ops.gspmm(struct, "copy_lhs", "sum", feat, None)


def _gatv2(struct: GraphStructure, feat: Tensor) -> object:
    rows = feat.view(feat.shape[0], HEADS, -1)
    return ops.gatv2(struct, rows, rows, torch.ones_like(rows[0]), negative_slope=0.2)


def _dot_attention(struct: GraphStructure, feat: Tensor) -> object:
    rows = feat.view(feat.shape[0], HEADS, -1)
    return ops.dot_attention(struct, rows, rows, rows)


OPS: dict[str, Callable[[GraphStructure, Tensor], object]] = {
    "sum": _sum,
    "gatv2": _gatv2,
    "dot_attention": _dot_attention,
}


def measure_change(
    given: GraphStructure,
    reordered: GraphStructure,
    op: str,
    width: int,
    dtype: torch.dtype,
    repeats: int,
) -> MeasuredChange:
    """Time an op on two structures, which take turns; arguments as of ``Reordering.measure``."""
    if op not in OPS:
        raise ValueError(f"measure: expected `op` to be one of {', '.join(OPS)}, got {op!r}")
    if width < 1 or repeats < 1 or (op != "sum" and width % HEADS):
        raise ValueError(
            f"measure: expected `repeats` and `width` of at least 1, `width` a multiple of {HEADS} "
            f"for attention, got {repeats} and {width}"
        )
    generator = torch.Generator().manual_seed(0)
    feat = torch.randn(given.num_src, width, generator=generator).to(given.device, dtype)
    timer = Timer(given.device, -(-repeats // _ROUNDS))
    rounds: dict[str, list[Timing]] = {"before": [], "after": []}
    with torch.no_grad():
        for _ in range(_ROUNDS):
            for name, struct in (("before", given), ("after", reordered)):
                rounds[name].append(timer(partial(OPS[op], struct, feat)))
    return MeasuredChange(op, *(_middle(timings) for timings in rounds.values()))


def _middle(timings: list[Timing]) -> Timing:
    """The medians of the figures of all rounds."""
    figures = [(one.median_ms, one.p20_ms, one.p80_ms) for one in timings]
    return Timing(*torch.tensor(figures, dtype=torch.float64).quantile(0.5, dim=0).tolist())
