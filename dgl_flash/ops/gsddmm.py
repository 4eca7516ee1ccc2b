"""A value on every edge from its ends and itself: the ``gsddmm`` of ``dgl.ops``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.broadcast import as_weight, fit, spread
from dgl_flash.ops.by_type import map_by_type
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.gradients import NO_SCALING
from dgl_flash.ops.products import products_of
from dgl_flash.structure import GraphStructure, structure
from dgl_flash.structure.dgl_reader import has_many_relations
from dgl_flash.structure.traced import is_tracing

BINARY = ("add", "sub", "mul", "div", "dot")
COPIES = ("copy_lhs", "copy_rhs")
TARGETS = ("u", "v", "e")


def gsddmm(
    g: Any,
    op: str,
    lhs_data: Any,
    rhs_data: Any,
    lhs_target: str = "u",
    rhs_target: str = "v",
) -> Any:
    r"""Combine two of the features of source, destination and edge on every edge.

    .. math::
        z_e = x_l \circ y_r, \qquad e = (u \to v), \quad l, r \in \{u, v, e\}

    with :math:`\circ` one of +, -, *, /, a dot product over the last dimension, or a copy of either
    side. ``u_dot_v``, ``u_add_v`` and their like are this function with all three fixed.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph on any device; with several edge types, operands and result are lists.
    op : {"add", "sub", "mul", "div", "dot", "copy_lhs", "copy_rhs"}
        The operator.
    lhs_data, rhs_data : torch.Tensor or None
        (N_src, \*), (N_dst, \*) or (E, \*) in edge-id order, one dtype of float64, float32, float16
        and bfloat16; feature shapes broadcast as in NumPy. The one that a copy does not read may be
        None. On a heterograph lists of them, by type of node or edge as the target says, in the
        order of ``g.ntypes`` or ``g.etypes``.
    lhs_target, rhs_target : {"u", "v", "e"}
        Whether an operand belongs to sources, destinations or edges.

    Returns
    -------
    torch.Tensor
        (E, \*) in edge-id order; after ``dot`` the last dimension is 1. On a heterograph a tuple
        of them, by type of edge.

    Raises
    ------
    DGLError
        When the operator is unknown, dtypes differ, an operand has not one row a node or edge, or
        feature shapes do not fit.
    TypeError
        When ``g`` is no graph, or an operand is missing or no floating-point tensor.
    ValueError
        When an operand is sparse or lies on another device, or a target is unknown.

    Notes
    -----
    **Fused path.** On CUDA one kernel (``sddmm`` for ``dot``, else ``edge_map``) keeps the row of
    one end, reads the other operand once an edge and writes the result, the only tensor of edges (a
    difference from or quotient by edge features makes one more, the negative or reciprocal). The
    relations of a heterograph are one launch, on a copy of the operands, as long as their results
    have one shape. Gradients of any order are fused too. The CPU works in chunks of edges.
    """
    given = rhs_data if op == "copy_rhs" else lhs_data
    if isinstance(given, (list, tuple)) and has_many_relations(g):
        return map_by_type(gsddmm, g, op, lhs_data, rhs_data, lhs_target, rhs_target)
    struct = structure(g, check.device(given), op="gsddmm")
    if op not in (*BINARY, *COPIES):
        raise dgl_error(f"Unsupported SDDMM binary operator: {op}; choose from {BINARY + COPIES}")
    for name, target in (("lhs_target", lhs_target), ("rhs_target", rhs_target)):
        if target not in TARGETS:
            raise ValueError(
                f"gsddmm: expected `{name}` to be one of {TARGETS}, got {target!r}; "
                f"u is the source, v the destination, e the edge"
            )
    lhs = None if op == "copy_rhs" else lhs_data
    rhs = None if op == "copy_lhs" else rhs_data
    lhs, rhs = check.autocast(lhs, rhs) if lhs is not None else (None, *check.autocast(rhs))
    sides = {"lhs_data": (lhs, lhs_target), "rhs_data": (rhs, rhs_target)}
    check.operands("gsddmm", struct, sides, op)
    if not is_tracing():
        use_kernel("gsddmm", struct.device, kernels=("sddmm" if op == "dot" else "edge_map",))
    if rhs is None:
        return _copy(struct, lhs, lhs_target)
    if lhs is None:
        return _copy(struct, rhs, rhs_target)
    if op == "sub":
        op, rhs = "add", -rhs
    elif op == "div":
        op, rhs = "mul", (1.0 / rhs).to(rhs.dtype)  # autocast makes float32 of it
    lhs, rhs, shape = fit(op, lhs, rhs)
    if op == "dot" and not shape:
        op = "mul"
    if lhs_target == rhs_target:
        return _copy(struct, _combine(op, lhs, rhs), lhs_target)
    operands = {lhs_target: lhs, rhs_target: rhs}
    if "v" not in operands:  # what is kept of a row is its own end: turn the edges around
        struct, operands["v"] = struct.reverse(), operands.pop("u")
    kept = spread(operands.pop("v"), shape)
    (target, other), *_ = operands.items()
    on_edges = target == "e"
    products, edges = products_of(struct)
    if op == "dot":
        heads = math.prod(shape[:-1])
        dots = products.dot(edges, spread(other, shape), kept, heads, NO_SCALING, on_edges)
        dots = dots.reshape(struct.num_edges, *shape[:-1], 1)
        # Torch lets nobody write over a view that was made without gradients.
        return dots if torch.is_grad_enabled() else dots.detach()
    second = as_weight(other, shape) if on_edges else spread(other, shape)
    return products.map(edges, op, kept, second, NO_SCALING, on_edges)


def _copy(struct: GraphStructure, values: Tensor, target: str) -> Tensor:
    if target == "e":
        return values
    products, edges = products_of(struct if target == "v" else struct.reverse())
    return products.map(edges, "copy", values, None, NO_SCALING)


def _combine(op: str, lhs: Tensor, rhs: Tensor) -> Tensor:
    """Operands of one target need no graph."""
    if op == "add":
        return lhs + rhs
    product = lhs * rhs
    return product.sum(dim=-1, keepdim=True, dtype=lhs.dtype) if op == "dot" else product


_ROWS = {"u": "(N_src, *)", "v": "(N_dst, *)", "e": "(E, *), edge-id order"}


def _binary(lhs_target: str, rhs_target: str, op: str) -> Callable[..., Tensor]:
    def function(g: Any, x: Tensor, y: Tensor) -> Tensor:
        return gsddmm(g, op, x, y, lhs_target=lhs_target, rhs_target=rhs_target)

    function.__name__ = function.__qualname__ = f"{lhs_target}_{op}_{rhs_target}"
    function.__doc__ = f"""Combine features on every edge: ``x[{lhs_target}] {op} y[{rhs_target}]``.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph.
    x : torch.Tensor
        {_ROWS[lhs_target]}
    y : torch.Tensor
        {_ROWS[rhs_target]}

    Returns
    -------
    torch.Tensor
        (E, *); see :func:`dgl_flash.ops.gsddmm` for dtypes, errors and the fused path.
    """
    return function


def copy_u(g: Any, x: Tensor) -> Tensor:
    """Give every edge the features of its source; see :func:`dgl_flash.ops.gsddmm`.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph.
    x : torch.Tensor
        (N_src, *)

    Returns
    -------
    torch.Tensor
        (E, *), edge-id order.
    """
    return gsddmm(g, "copy_lhs", x, None)


def copy_v(g: Any, x: Tensor) -> Tensor:
    """Give every edge the features of its destination; see :func:`dgl_flash.ops.gsddmm`.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph.
    x : torch.Tensor
        (N_dst, *)

    Returns
    -------
    torch.Tensor
        (E, *), edge-id order.
    """
    return gsddmm(g, "copy_rhs", None, x)


def copy_e(g: Any, x: Tensor) -> Tensor:
    """Return the features of the edges as they are, for whoever goes through all targets.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph, not read.
    x : torch.Tensor
        (E, *)

    Returns
    -------
    torch.Tensor
        ``x`` itself.
    """
    return x


GENERATED = {
    function.__name__: function
    for function in itertools.starmap(
        _binary,
        ((lhs, rhs, op) for lhs, rhs in itertools.permutations(TARGETS, 2) for op in BINARY),
    )
}
globals().update(GENERATED)
__all__ = ["copy_e", "copy_u", "copy_v", "gsddmm", *GENERATED]
