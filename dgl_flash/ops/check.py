"""Argument checks shared by the ops. Each failure names op, argument, expected, got, remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def tensor(op: str, name: str, value: object) -> None:
    """Raise unless ``value`` is a strided floating-point tensor."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{op}: expected `{name}` to be a torch.Tensor, got {type(value).__name__}; "
            f"pass the features as one tensor"
        )
    if value.layout != torch.strided:
        raise ValueError(
            f"{op}: expected `{name}` to be a dense tensor, got layout {value.layout}; "
            f"pass {name}.to_dense()"
        )
    if value.dtype not in FLOATS:
        raise TypeError(
            f"{op}: expected `{name}` of dtype float64, float32, float16 or bfloat16, "
            f"got {value.dtype}; pass {name}.float()"
        )


def same_as(op: str, name: str, value: Tensor, like_name: str, like: Tensor) -> None:
    """Raise unless ``value`` has the dtype and device of ``like``."""
    if value.dtype != like.dtype:
        raise TypeError(
            f"{op}: expected `{name}` of dtype {like.dtype} like `{like_name}`, "
            f"got {value.dtype}; pass {name}.to({like.dtype})"
        )
    if value.device != like.device:
        raise ValueError(
            f"{op}: expected `{name}` on {like.device} like `{like_name}`, "
            f"got {value.device}; pass {name}.to('{like.device}')"
        )


def shape(op: str, name: str, value: Tensor, expected: Sequence[int | None], spelled: str) -> None:
    """Raise unless the sizes of ``value`` are ``expected`` (None matches any size)."""
    got = tuple(value.shape)
    if got == tuple(expected):
        return
    if len(got) == len(expected):
        for want, size in zip(expected, got, strict=True):
            if want is not None and want != size:
                break
        else:
            return
    wanted = ", ".join("*" if size is None else str(size) for size in expected)
    hint = f"pass {name}.reshape({wanted})"
    for axis, size in enumerate(got):
        if size == 1 and got[:axis] + got[axis + 1 :] == tuple(expected):
            hint = f"pass {name}.squeeze({axis})"
    if value.dim() != len(expected) and value.numel() == 0:
        hint = "check the layer that made it"
    if len(got) == len(expected) and expected[0] is not None and got[0] != expected[0]:
        hint = "one row a node is needed: is this the feature of another graph or side?"
    raise ValueError(f"{op}: expected `{name}` of shape {spelled} = ({wanted}), got {got}; {hint}")


def operands(
    op: str, struct: GraphStructure, sides: Mapping[str, tuple[Any, str]], operator: str
) -> None:
    """Raise unless the operands that ``operator`` reads have one row a node or edge, and one dtype.

    Parameters
    ----------
    op : str
        Name of the op.
    struct : GraphStructure
        The graph.
    sides : mapping
        Name of an argument to its value and its target, ``u``, ``v`` or ``e``.
    operator : str
        Says which of the two it reads: ``copy_lhs`` the first, ``copy_rhs`` the second, else both.
    """
    sizes = {
        "u": (struct.num_src, "(N_src, *)"),
        "v": (struct.num_dst, "(N_dst, *)"),
        "e": (struct.num_edges, "(E, *)"),
    }
    read = {"copy_lhs": ["lhs_data"], "copy_rhs": ["rhs_data"]}.get(operator, list(sides))
    for name in read:
        value, target = sides[name]
        tensor(op, name, value)
        size, spelled = sizes[target]
        if value.dim() == 0 or value.shape[0] != size:
            raise dgl_error(
                f"{op}: expected `{name}` of shape {spelled} = ({size}, *), got "
                f"{tuple(value.shape)}; one row for each {_TARGETS[target]} is needed"
            )
    if len(read) == 2:
        (_, (left, _)), (name, (right, _)) = sides.items()
        if left.dtype != right.dtype:
            raise dgl_error(
                f"The node features' data type {left.dtype} doesn't match edge features' data type "
                f"{right.dtype}, please convert them to the same type."
            )
        same_as(op, name, right, "lhs_data", left)


_TARGETS = {"u": "source", "v": "destination", "e": "edge"}


def device(feat: object) -> torch.device | None:
    """Device of the features; None for what is no tensor, which a later check reports."""
    return feat.device if isinstance(feat, Tensor) else None


def autocast(*values: Any) -> tuple[Any, ...]:
    """Cast every floating-point tensor alike when autocast is on for the device of the first.

    Casting one operand only is the classic mistake: the kernels want one dtype. As in torch,
    float64 is left alone.
    """
    first = device(values[0])
    if first is None or not torch.is_autocast_enabled(first.type):
        return values
    dtype = torch.get_autocast_dtype(first.type)
    return tuple(
        v.to(dtype) if isinstance(v, Tensor) and v.dtype in FLOATS[1:] else v for v in values
    )
