"""What DGL's cuGraph layers ask of pylibcugraphops 23.04, in plain torch.

The package runs on old Pythons and on GPUs only. With these in its place DGL's own classes can be
built and called anywhere: everything around the aggregation is theirs, the aggregation is written
from its formula. It takes (N, D) and returns a row for each row of the graph.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Rows:
    """Compressed rows, which are destinations; the relation of each entry where there are any."""

    offsets: Tensor
    indices: Tensor
    types: Tensor | None = None
    num_types: int = 0

    @property
    def count(self) -> int:
        return len(self.offsets) - 1

    @property
    def owner(self) -> Tensor:
        """Row of each entry."""
        return torch.arange(self.count).repeat_interleave(self.offsets.diff().long())


def sampled(offsets, indices, max_in_degree, num_src):
    assert int(offsets.diff().max()) <= max_in_degree
    return Rows(offsets, indices.long())


def static(offsets, indices):
    return Rows(offsets, indices.long())


def sampled_typed(offsets, indices, types, max_in_degree, num_src, num_types):
    return Rows(offsets, indices.long(), types.long(), num_types)


def static_typed(offsets, indices, types, num_types):
    return Rows(offsets, indices.long(), types.long(), num_types)


def total(values: Tensor, owner: Tensor, count: int) -> Tensor:
    return values.new_zeros(count, *values.shape[1:]).index_add(0, owner, values)


def agg_concat_n2n(feat, rows, aggr):
    """The neighbours' features reduced, then the own ones."""
    values = feat[rows.indices]
    if aggr in ("sum", "mean"):
        found = total(values, rows.owner, rows.count)
        if aggr == "mean":
            found = found / rows.offsets.diff().clamp(min=1).unsqueeze(1)
    else:
        where = rows.owner.unsqueeze(1).expand_as(values)
        empty = feat.new_zeros(rows.count, feat.shape[1])
        found = empty.scatter_reduce(0, where, values, f"a{aggr}", include_self=False)
    return torch.cat([found, feat[: rows.count]], dim=1)


def mha_gat_n2n(feat, attention, rows, num_heads, activation, slope, concat_heads):
    """Attention with the vectors of all heads for sources, then for destinations."""
    assert (activation, concat_heads) == ("LeakyReLU", True)
    feat = feat.view(len(feat), num_heads, feat.shape[1] // num_heads)
    left, right = (feat * a for a in attention.view(2, *feat.shape[1:]))
    score = left.sum(-1)[rows.indices] + right.sum(-1)[rows.owner]
    score = torch.nn.functional.leaky_relu(score, slope).exp()
    share = score / total(score, rows.owner, rows.count)[rows.owner]
    return total(share.unsqueeze(-1) * feat[rows.indices], rows.owner, rows.count).flatten(1)


def agg_hg_basis_n2n_post(feat, coeff, rows, concat_own, norm_by_out_degree):
    """Sums by relation or basis, then the own features."""
    keys = rows.owner * rows.num_types + rows.types
    sums = total(feat[rows.indices], keys, rows.count * rows.num_types)
    if norm_by_out_degree:
        sums = sums / keys.bincount(minlength=len(sums)).clamp(min=1).unsqueeze(1)
    sums = sums.view(rows.count, rows.num_types, feat.shape[1])
    if coeff is not None:
        sums = torch.einsum("rb,nrd->nbd", coeff, sums)
    parts = [sums.flatten(1)] + ([feat[: rows.count]] if concat_own else [])
    return torch.cat(parts, dim=1)


NAMES = {
    "cugraph_sageconv": {
        "SampledCSC": sampled,
        "StaticCSC": static,
        "SAGEConvAgg": agg_concat_n2n,
    },
    "cugraph_gatconv": {"SampledCSC": sampled, "StaticCSC": static, "GATConvAgg": mha_gat_n2n},
    "cugraph_relgraphconv": {
        "SampledHeteroCSC": sampled_typed,
        "StaticHeteroCSC": static_typed,
        "RelGraphConvAgg": agg_hg_basis_n2n_post,
    },
}


def install() -> None:
    """Put them where DGL has imported the package from, unless it is there."""
    for module, names in NAMES.items():
        where = importlib.import_module(f"dgl.nn.pytorch.conv.{module}")
        if not where.HAS_PYLIBCUGRAPHOPS:
            vars(where).update(names, HAS_PYLIBCUGRAPHOPS=True)
