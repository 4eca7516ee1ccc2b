"""Layers of several relations that attend at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from dgl_flash.nn.conv.gatv2conv import GATv2Conv
from dgl_flash.nn.projections import Projected
from dgl_flash.ops.attend_each import attend_each
from dgl_flash.ops.gatv2 import KIND

Call = tuple[Any, Any, Any]  # the edges, the layer, its pair of features


def attend_together(calls: Sequence[Call]) -> Tensor | list[Tensor] | None:
    """Call layers whose results belong to the same nodes.

    Parameters
    ----------
    calls : sequence of (graph, nn.Module, pair)
        All relations that end in one type of nodes, as the layers would get them.

    Returns
    -------
    Tensor, list of Tensor or None
        The results, one (R, N_dst, H, D) where they lie in one tensor; None unless all layers are
        a :class:`GATv2Conv` of the same heads whose features have been projected.
    """
    if len(calls) < 2:
        return None
    asked = []
    for graph, layer, pair in calls:
        # Of features that are projected the layer is one, see project_pairs.
        found = layer._attends(graph, pair) if isinstance(pair, Projected) else None
        if found is None:
            return None
        asked.append(found)
    structs, operands, numbers = zip(*asked, strict=True)
    kinds = {
        (struct.num_dst, *[(operand.shape[1:], operand.dtype) for operand in of_one])
        for struct, of_one in zip(structs, operands, strict=True)
    }
    if len(kinds) > 1:
        return None
    outs = attend_each(KIND, structs, operands, numbers)
    layers: list[GATv2Conv] = [layer for _, layer, _ in calls]
    if all(layer._ends_with_attention for layer in layers):
        return outs
    ends = zip(layers, outs.unbind(), calls, strict=True)
    return [layer._finish(out, pair[1]) for layer, out, (_, _, pair) in ends]
