"""Linear maps of the same rows, of several layers, as one product."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash.nn.common import computes_as
from dgl_flash.structure.traced import is_tracing

# Numbers in one result, above which the product takes longer than its launch. What is computed
# together is also kept together.
MOST_NUMBERS = 2**23


class _Map(NamedTuple):
    at: int  # which layer
    side: int
    weight: Tensor  # (W, in)
    bias: Tensor | None


class Projected(tuple[Any, Any]):
    """A pair of features that brings what two linear maps make of it.

    Attributes
    ----------
    projections : (Tensor, Tensor)
        (N_src, W) and (N_dst, W).
    """

    projections: tuple[Tensor, Tensor]


def project_pairs(calls: Sequence[tuple[Any, tuple[Any, Any]]]) -> list[tuple[Any, Any]]:
    """Project features for layers that are about to be called with them.

    Parameters
    ----------
    calls : sequence of (nn.Module, pair)
        Layers with their features. A class with a method ``_first_maps`` says there which two
        linear maps a call begins with, or None.

    Returns
    -------
    list of pair
        The features of each layer, as :class:`Projected` where that saves launches.
    """
    pairs = [pair for _, pair in calls]
    if is_tracing():
        return pairs
    groups: dict[Any, list[_Map]] = defaultdict(list)
    for at, (layer, pair) in enumerate(calls):
        ask = getattr(type(layer), "_first_maps", None)  # not of a layer that another one wraps
        maps = None if ask is None else ask(layer)
        if maps is None:
            continue
        src, dst = (_as_map(at, side, maps[side], pair[side]) for side in (0, 1))
        if src is not None and dst is not None:
            for one in (src, dst):
                groups[id(pair[one.side]), one.weight.shape[0], one.bias is None].append(one)
    found: dict[int, dict[int, Tensor]] = defaultdict(dict)
    for members in groups.values():
        rows = pairs[members[0].at][members[0].side]
        for one, result in zip(members, _project(rows, members), strict=True):
            found[one.at][one.side] = result
    for at, sides in found.items():
        pair = Projected(pairs[at])
        pair.projections = sides[0], sides[1]
        pairs[at] = pair
    return pairs


def _as_map(at: int, side: int, linear: Any, rows: Any) -> _Map | None:
    """Take a map that can be one of several; else its layer calls it, errors included."""
    if not isinstance(rows, Tensor) or not computes_as(linear, nn.Linear):
        return None
    weight, shape = linear.weight, rows.shape
    fits = (
        len(shape) == 2
        and shape[1] == weight.shape[1]
        and shape[0] * weight.shape[0] <= MOST_NUMBERS
        and rows.dtype == weight.dtype
        and rows.device == weight.device
    )
    return _Map(at, side, weight, linear.bias) if fits else None


def _project(rows: Tensor, maps: Sequence[_Map]) -> Sequence[Tensor]:
    """Give (N, W), contiguous, for each map of (N, in)."""
    if len(maps) == 1:
        return [F.linear(rows, maps[0].weight, maps[0].bias)]
    weight = torch.stack([one.weight for one in maps]).transpose(1, 2)  # (K, in, W)
    repeated = rows.expand(len(maps), *rows.shape)
    biases = [one.bias for one in maps if one.bias is not None]
    if not biases:
        return torch.bmm(repeated, weight).unbind()
    return torch.baddbmm(torch.stack(biases).unsqueeze(1), repeated, weight).unbind()
