"""``gspmm`` and ``gsddmm`` on heterographs: operands and results as lists, by type.

Relations whose messages have one shape are united into one graph, so that a thousand of them are
one launch. Their operands are put behind each other for it: a copy of the nodes' features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.broadcast import fit
from dgl_flash.structure.dgl_reader import Union, relation_ends, union

Operands = Sequence[Tensor | None] | None


def reduce_by_type(
    gspmm: Callable[..., Tensor], g: Any, op: str, reduce_op: str, lhs: Operands, rhs: Operands
) -> tuple[Tensor, ...]:
    """Apply ``gspmm`` to all relations of a heterograph.

    Parameters
    ----------
    gspmm : callable
        The op on graphs of one relation.
    g : DGLGraph or DGLBlock
        A graph of several relations.
    op, reduce_op : str
        Operator and reducer.
    lhs, rhs : sequence of (Tensor or None)
        Features by type of node and by type of edge.

    Returns
    -------
    tuple of Tensor
        By type of node; empty for types that are no destination.
    """
    sides = {"lhs_data": (lhs, "u"), "rhs_data": (rhs, "e")}
    results: dict[int, Tensor] = {}
    for relations, operands in _united("gspmm", g, op, sides):
        found = gspmm(relations.struct, op, reduce_op, *operands)
        for ntype, rows in _split(found, relations.num_dst):
            if ntype in results:
                shapes = tuple(results[ntype].shape[1:]), tuple(rows.shape[1:])
                raise dgl_error(
                    f"gspmm: expected messages of one shape at node type {g.ntypes[ntype]!r}, got "
                    f"{shapes[0]} and {shapes[1]}; give the relations that end there features of "
                    f"one width"
                )
            results[ntype] = rows
    nothing = next(iter(results.values())).new_empty(0)
    return tuple(results.get(ntype, nothing) for ntype in range(len(g.ntypes)))


def map_by_type(
    gsddmm: Callable[..., Tensor],
    g: Any,
    op: str,
    lhs: Operands,
    rhs: Operands,
    lhs_target: str,
    rhs_target: str,
) -> tuple[Tensor, ...]:
    """Apply ``gsddmm`` to all relations of a heterograph.

    Parameters
    ----------
    gsddmm : callable
        The op on graphs of one relation.
    g : DGLGraph or DGLBlock
        A graph of several relations.
    op : str
        Operator.
    lhs, rhs : sequence of (Tensor or None)
        Features by type of node or edge, as the target says.
    lhs_target, rhs_target : {"u", "v", "e"}
        Whom they belong to.

    Returns
    -------
    tuple of Tensor
        By type of edge.
    """
    sides = {"lhs_data": (lhs, lhs_target), "rhs_data": (rhs, rhs_target)}
    results: dict[int, Tensor] = {}
    for relations, operands in _united("gsddmm", g, op, sides):
        found = gsddmm(relations.struct, op, *operands, lhs_target, rhs_target)
        results.update(_split(found, relations.num_edges))
    return tuple(results[etype_id] for etype_id in range(len(results)))


def _united(
    op_name: str, g: Any, op: str, sides: Mapping[str, tuple[Operands, str]]
) -> Iterator[tuple[Union, list[Tensor | None]]]:
    """Yield relations that can be one graph, on the device of the features, and its operands."""
    read = {"copy_lhs": ["lhs_data"], "copy_rhs": ["rhs_data"]}.get(op, list(sides))
    found = {name: _by_relation(op_name, g, name, *sides[name]) for name in read}
    groups: dict[Any, list[int]] = {}
    shapes: dict[Any, Any] = {}
    for etype_id, tensors in enumerate(zip(*found.values(), strict=True)):
        key = tuple(tensor.shape[1:] for tensor in tensors)
        if key not in shapes:
            shapes[key] = fit(op, *tensors).shape if len(tensors) == 2 else key[0]
        groups.setdefault(shapes[key], []).append(etype_id)
    device = next(iter(found.values()))[0].device
    for etype_ids in groups.values():
        relations = union(g, tuple(etype_ids))
        sizes = {"u": relations.num_src, "v": relations.num_dst, "e": relations.num_edges}
        operands = [
            _join(op_name, name, data, sizes[target]) if name in read else None
            for name, (data, target) in sides.items()
        ]
        yield relations._replace(struct=relations.struct.to(device)), operands


def _by_relation(op: str, g: Any, name: str, data: Operands, target: str) -> list[Tensor]:
    """The operand of each relation."""
    kind = "edge" if target == "e" else "node"
    if not isinstance(data, (list, tuple)):
        raise TypeError(
            f"{op}: expected `{name}` to be a list of tensors, one for each type of {kind}, as the "
            f"graph has {len(g.canonical_etypes)} relations, got {type(data).__name__}; pass a "
            f"list, or one relation of the graph, g[etype]"
        )
    ends = relation_ends(g)
    if target == "e":
        type_ids = list(range(len(ends)))
    else:
        type_ids = [types["uv".index(target)] for types in ends]
    if len(data) <= max(type_ids):
        raise ValueError(
            f"{op}: expected `{name}` to have a tensor for each type of {kind} "
            f"({max(type_ids) + 1}), got {len(data)}; pass them in the order of g.{kind[0]}types"
        )
    for type_id in type_ids:
        check.tensor(op, f"{name}[{type_id}]", data[type_id])
    return [data[type_id] for type_id in type_ids]


def _join(op: str, name: str, data: Any, sizes: Mapping[int, int]) -> Tensor:
    """The rows of several types behind each other, in the shape that they broadcast to."""
    tensors = [data[type_id] for type_id in sizes]
    for (type_id, size), tensor in zip(sizes.items(), tensors, strict=True):
        if tensor.dim() == 0 or tensor.shape[0] != size:
            raise dgl_error(
                f"{op}: expected `{name}[{type_id}]` of shape ({size}, *), got "
                f"{tuple(tensor.shape)}; one row for each node or edge of the type is needed"
            )
        check.same_as(op, f"{name}[{type_id}]", tensor, f"{name}[{next(iter(sizes))}]", tensors[0])
    shape = torch.broadcast_shapes(*{tensor.shape[1:] for tensor in tensors})
    missing = [len(shape) - (tensor.dim() - 1) for tensor in tensors]
    return torch.cat(
        [
            tensor.reshape(tensor.shape[0], *(1,) * more, *tensor.shape[1:]).expand(-1, *shape)
            for tensor, more in zip(tensors, missing, strict=True)
        ]
    )


def _split(rows: Tensor, sizes: Mapping[int, int]) -> Iterator[tuple[int, Tensor]]:
    return zip(sizes, rows.split(list(sizes.values())), strict=True)
