"""Layers of several relations that attend in one launch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash.nn.common import computes_as, read_graph
from dgl_flash.nn.conv.gatv2conv import GATv2Conv
from dgl_flash.nn.projections import Maps, project
from dgl_flash.ops.dispatch import kernels_run
from dgl_flash.ops.gatv2_joint import can_join, gatv2_joint
from dgl_flash.structure.dgl_reader import kept_with
from dgl_flash.structure.joint import Joint, padded
from dgl_flash.structure.traced import is_tracing

# Numbers that all relations' sources, or destinations, may have together. Training keeps them for
# the backward anyway; else only one relation's need to be there at a time.
MOST_NUMBERS = {True: 2**28, False: 2**24}


class Call(NamedTuple):
    """A relation with its layer and what that is called with."""

    etype_id: int
    relation: tuple[str, str, str]
    part: Any  # the graph of the relation
    module: Any
    pair: tuple[Any, Any]
    more: tuple[Any, ...]
    named: Mapping[str, Any]


class Stack(NamedTuple):
    """Results for one type of nodes."""

    padded: Tensor  # (R, P, H, D)
    num_dst: int  # of the P rows

    def unbind(self) -> list[Tensor]:
        """Each result, (N_dst, H, D)."""
        return [one[: self.num_dst] for one in self.padded.unbind()]


class _Way(NamedTuple):
    """What layers must have in common to attend together."""

    shape: tuple[int, ...]  # (1, H, D)
    slope: float
    biases: tuple[bool, bool]
    dtype: torch.dtype


def attend_jointly(graph: Any, calls: Sequence[Call]) -> dict[str, Stack | list[Tensor]]:
    """Call the layers of types of destinations where all relations can be taken together.

    Parameters
    ----------
    graph : DGLGraph or DGLBlock
        The heterograph, which keeps what is made of its structure.
    calls : sequence of Call
        All calls that are to be made.

    Returns
    -------
    dict
        By type of destinations, the results in the order of ``calls``, in one tensor where
        nothing follows after the attention. Types are missing whose layers
        have to be called one by one: others than a plain :class:`GATv2Conv`, with hooks, dropout or
        further arguments, on a device without kernels, or with rows that should be cut.
    """
    if len(calls) < 2 or is_tracing():
        return {}
    ways = [_way_of(call) for call in calls]
    groups: dict[_Way, list[Call]] = defaultdict(list)
    by_type: dict[str, set[Any]] = defaultdict(set)
    for call, way in zip(calls, ways, strict=True):
        by_type[call.relation[2]].add(way)
    for call, way in zip(calls, ways, strict=True):
        if way is not None and len(by_type[call.relation[2]]) == 1:
            groups[way].append(call)
    found: dict[str, Stack | list[Tensor]] = {}
    for way, members in groups.items():
        joint = _joint_of(graph, members) if len(members) > 1 else None
        if joint is not None and _fits(joint, way):
            found.update(_run(joint, way, members))
    return found


def _way_of(call: Call) -> _Way | None:
    layer, (rows_src, rows_dst) = call.module, call.pair
    if not isinstance(rows_src, Tensor) or not kernels_run(rows_src.device):
        return None
    if call.more or call.named or not computes_as(layer, GATv2Conv):
        return None
    of_layer = layer._modules  # as attributes they are searched for, relation after relation
    drops = of_layer["feat_drop"], of_layer["attn_drop"]
    fc_src, fc_dst = of_layer["fc_src"], of_layer["fc_dst"]
    plain = (
        layer._allow_zero_in_degree
        and _drops_nothing(drops[0])
        and _drops_nothing(drops[1])
        and computes_as(fc_src, nn.Linear)
        and computes_as(fc_dst, nn.Linear)
    )
    if not plain:
        return None
    weights = fc_src.weight, fc_dst.weight
    if not (_accepts(weights[0], rows_src) and _accepts(weights[1], rows_dst)):
        return None
    attn, biases = layer.attn, (fc_src.bias is not None, fc_dst.bias is not None)
    return _Way(tuple(attn.shape), of_layer["leaky_relu"].negative_slope, biases, attn.dtype)


def _drops_nothing(drop: Any) -> bool:
    return computes_as(drop, nn.Dropout) and not (drop.training and drop.p > 0)


def _accepts(weight: Tensor, rows: Any) -> bool:
    return (
        isinstance(rows, Tensor)
        and rows.dim() == 2
        and rows.shape[1] == weight.shape[1]
        and rows.dtype == weight.dtype
        and rows.device == weight.device
    )


def _joint_of(graph: Any, calls: Sequence[Call]) -> Joint | None:
    """Their structure, kept with the graph; None where it would not be as fast."""
    device = calls[0].pair[0].device
    key = "joint", device, tuple([call[:2] for call in calls])
    kept = kept_with(graph)
    if key not in kept:
        parts = [read_graph(call.module, call.part, call.pair) for call in calls]
        joint = Joint(
            parts, [call.relation[0] for call in calls], [call.relation[2] for call in calls]
        )
        kept[key] = joint if can_join(joint) else None
    joint = kept[key]
    if joint is None or not (joint.src.num_rows and joint.dst.num_rows):
        return None
    sizes = [(part.num_src, part.num_dst) for part in joint.parts]
    given = [(len(call.pair[0]), len(call.pair[1])) for call in calls]
    return joint if sizes == given else None  # else the layers say what is wrong


def _fits(joint: Joint, way: _Way) -> bool:
    width = way.shape[1] * way.shape[2]
    rows = max(joint.src.num_rows, joint.dst.num_rows)
    return rows * width <= MOST_NUMBERS[torch.is_grad_enabled()]


def _run(joint: Joint, way: _Way, calls: Sequence[Call]) -> dict[str, Stack | list[Tensor]]:
    layers: list[GATv2Conv] = [call.module for call in calls]
    wide: dict[int, Tensor] = {}  # features by their identity: a type is on both sides
    sides = []
    for side, order in ((0, joint.src.order), (1, joint.dst.order)):
        sets: dict[str, Maps] = {}
        for relation in order:
            name = calls[relation].relation[2 * side]
            if name not in sets:
                rows = calls[relation].pair[side]
                if id(rows) not in wide:
                    wide[id(rows)] = F.pad(rows, (0, 0, 0, padded(len(rows)) - len(rows)))
                sets[name] = Maps(wide[id(rows)], [])
            layer = layers[relation]
            sets[name].linears.append(layer.fc_dst if side else layer.fc_src)
        # A type without nodes has no rows.
        whole = project([of_type for of_type in sets.values() if len(of_type.rows)])
        sides.append(whole.view(-1, *way.shape[1:]))
    attn = torch.cat([layer.attn for layer in layers])
    out = gatv2_joint(joint, sides[0], sides[1], attn, way.slope)
    of_types: dict[str, list[int]] = defaultdict(list)
    for relation in joint.dst.order:
        of_types[calls[relation].relation[2]].append(relation)
    counts = [joint.parts[relations[0]].num_dst for relations in of_types.values()]
    sizes = [
        (len(relations), padded(count))
        for relations, count in zip(of_types.values(), counts, strict=True)
    ]
    found: dict[str, Stack | list[Tensor]] = {}
    parts = out.split([maps * rows for maps, rows in sizes])
    for (name, relations), part, size, count in zip(
        of_types.items(), parts, sizes, counts, strict=True
    ):
        stack = Stack(part.view(*size, *out.shape[1:]), count)
        found[name] = stack
        if not all(layers[relation]._ends_with_attention for relation in relations):
            ends = zip(relations, stack.unbind(), strict=True)
            found[name] = [layers[r]._finish(one, calls[r].pair[1]) for r, one in ends]
    return found
