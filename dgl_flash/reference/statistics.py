"""Several statistics of the neighbours, one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.reference.gspmm import gspmm
from dgl_flash.reference.rows import accumulation_dtype, gather_rows, sum_to_rows

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def statistics(
    struct: GraphStructure, feat: Tensor, names: tuple[str, ...], on_edges: bool = False
) -> tuple[Tensor, ...]:
    """Reduce rows to one statistic after the other.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    feat : Tensor
        (N_src, *) or with ``on_edges`` (E, *).
    names : tuple of str
        Of ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, ``"var"`` and ``"std"``.
    on_edges : bool
        Whether the rows belong to edges.

    Returns
    -------
    tuple of Tensor
        (N_dst, *) each, dtype of ``feat``.
    """
    rows = feat.to(accumulation_dtype(feat.dtype))

    def reduce(name: str, values: Tensor) -> Tensor:
        if on_edges:
            return gspmm(struct, "copy_rhs", name, None, values)
        return gspmm(struct, "copy_lhs", name, values, None)

    found: dict[str, Tensor] = {}
    for name in names:
        if name in ("var", "std"):
            variance = _variance(struct, rows, on_edges)
            found[name] = variance if name == "var" else root(variance)
        else:
            found[name] = reduce(name, rows)
    return tuple(found[name].to(feat.dtype) for name in names)


def _variance(struct: GraphStructure, rows: Tensor, on_edges: bool) -> Tensor:
    """Spread about the mean, both taken from the row's first edge on: 0 where all are equal."""
    src, dst = struct.edges()
    messages = rows if on_edges else gather_rows(rows, src)
    if struct.num_edges == 0:
        return sum_to_rows(messages, dst, struct.num_dst)
    adj = struct.in_adj
    first = adj.indptr[:-1].long().clamp(max=struct.num_edges - 1)
    first = first if adj.eids is None else adj.eids.long()[first]
    shifted = messages - gather_rows(gather_rows(messages, first), dst)
    mean = gspmm(struct, "copy_rhs", "mean", None, shifted)
    deviations = shifted - gather_rows(mean, dst)
    return gspmm(struct, "copy_rhs", "mean", None, deviations * deviations)


def root(values: Tensor) -> Tensor:
    """Take the square root; at 0, where it has no derivative, the derivative is 0."""
    is_zero = values == 0
    return values.masked_fill(is_zero, 1).sqrt().masked_fill(is_zero, 0)
