"""Messages of sources and edges, reduced at the destinations: the ``gspmm`` of ``dgl.ops``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.broadcast import as_weight, fit, spread
from dgl_flash.ops.by_type import reduce_by_type
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.extremum import extremum
from dgl_flash.ops.gradients import Scaling
from dgl_flash.ops.products import products_of
from dgl_flash.structure import structure
from dgl_flash.structure.dgl_reader import has_many_relations
from dgl_flash.structure.traced import is_tracing

BINARY = ("add", "sub", "mul", "div")
COPIES = ("copy_lhs", "copy_rhs")
REDUCERS = ("sum", "mean", "max", "min")


def gspmm(g: Any, op: str, reduce_op: str, lhs_data: Any, rhs_data: Any) -> Any:
    r"""Make a message on every edge and reduce the messages at the destinations.

    .. math::
        z_v = R_{e = (u \to v)} \; (x_u \circ y_e)

    with :math:`\circ` one of +, -, *, / or a copy of either side, :math:`R` one of sum, mean, max
    and min. ``copy_u_sum``, ``u_mul_e_mean`` and their like are this function with both fixed.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph on any device; with several edge types, operands and result are lists.
    op : {"add", "sub", "mul", "div", "copy_lhs", "copy_rhs"}
        The operator.
    reduce_op : {"sum", "mean", "max", "min"}
        The reducer. A mean divides by max(in-degree, 1); max and min give the gradient to the first
        edge of a row that reaches them, and are 0 where they would be infinite.
    lhs_data : torch.Tensor or None
        :math:`x`, (N_src, \*), float64, float32, float16 or bfloat16; None with ``copy_rhs``.
    rhs_data : torch.Tensor or None
        :math:`y`, (E, \*) in edge-id order, dtype of ``lhs_data``; None with ``copy_lhs``. Feature
        shapes broadcast as in NumPy.

    Returns
    -------
    torch.Tensor
        (N_dst, \*), zero for destinations without in-edges. On a heterograph a tuple by type of
        node, reduced over the in-edges of all types; types without in-edges have an empty tensor.

    Raises
    ------
    DGLError
        When operator or reducer is unknown, dtypes differ, an operand has not one row a node or
        edge, or feature shapes do not broadcast.
    TypeError
        When ``g`` is no graph, or an operand is missing or no floating-point tensor.
    ValueError
        When an operand is sparse or lies on another device.

    Notes
    -----
    On a heterograph :math:`x` is a list of tensors by type of node and :math:`y` one by type of
    edge, in the order of ``g.ntypes`` and ``g.etypes``; types that no relation reads may be None.

    **Fused path.** On CUDA a sum or mean is one kernel (``spmm``) that reads each row once an edge
    and makes no tensor of edges; sums and differences of both operands are one launch for each, and
    a quotient makes the reciprocal of ``rhs_data``. A maximum or minimum is one kernel
    (``extremum``) that keeps of each winner its position in the row, in the fewest bytes that the
    largest in-degree allows; the first edge of a row wins a tie, NaN is passed over where there are
    other messages, and no infinite result passes a gradient. Its gradient to nodes compares a byte
    an element and edge, or, where rows have ten edges and more on average, lists what each edge
    has won first, in memory of two numbers an element and, for every 512 elements of a row, four
    bytes an edge; its gradient to edges is one pass over the rows. Edge values that repeat in
    another way than inside the leading dimensions are spelled out. The relations of a heterograph
    are one launch, on a copy of the operands, as long as their messages have one shape. Gradients
    of any order are fused too, and without atomics of floating-point numbers: bit-equal from run to
    run. On the CPU plain torch (``dgl_flash.cpu``) computes the same.
    """
    given = rhs_data if op == "copy_rhs" else lhs_data
    if isinstance(given, (list, tuple)) and has_many_relations(g):
        return reduce_by_type(gspmm, g, op, reduce_op, lhs_data, rhs_data)
    struct = structure(g, check.device(given), op="gspmm")
    if op not in (*BINARY, *COPIES):
        raise dgl_error(f"Unsupported SpMM binary operator: {op}; choose from {BINARY + COPIES}")
    if reduce_op not in REDUCERS:
        raise dgl_error(f"Unsupported SpMM reducer: {reduce_op}; choose from {REDUCERS}")
    lhs = None if op == "copy_rhs" else lhs_data
    rhs = None if op == "copy_lhs" else rhs_data
    lhs, rhs = check.autocast(lhs, rhs) if lhs is not None else (None, *check.autocast(rhs))
    check.operands("gspmm", struct, {"lhs_data": (lhs, "u"), "rhs_data": (rhs, "e")}, op)
    if reduce_op in ("max", "min"):
        return extremum(struct, op, reduce_op, lhs, rhs)
    if not is_tracing():
        use_kernel("gspmm", struct.device, kernels=("spmm",))
    products, edges = products_of(struct)
    scaling = Scaling(mean=reduce_op == "mean")
    if rhs is None:
        return products.sum(edges, lhs, None, scaling)
    if lhs is None:
        return products.sum(edges, rhs, None, scaling, True)
    lhs, rhs, shape = fit(op, lhs, rhs)
    if op in ("add", "sub"):
        of_nodes = products.sum(edges, lhs, None, scaling)
        of_edges = products.sum(edges, rhs, None, scaling, True)
        return of_nodes + of_edges if op == "add" else of_nodes - of_edges
    if op == "div":
        rhs = (1.0 / rhs).to(rhs.dtype)  # autocast makes float32 of it
    return products.sum(edges, spread(lhs, shape), as_weight(rhs, shape), scaling)


def _name(function: Callable[..., Tensor], name: str, formula: str) -> Callable[..., Tensor]:
    function.__name__ = function.__qualname__ = name
    takes_two = "y[" in formula
    second = "\n    y : torch.Tensor\n        (E, *), edge-id order" if takes_two else ""
    function.__doc__ = f"""Reduce messages at the destinations: ``{formula}``.

    Parameters
    ----------
    g : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph.
    x : torch.Tensor
        {"(E, *), edge-id order" if "[e]" in formula and not takes_two else "(N_src, *)"}{second}

    Returns
    -------
    torch.Tensor
        (N_dst, *); see :func:`dgl_flash.ops.gspmm` for dtypes, errors and the fused path.
    """
    return function


def _binary(op: str, reduce_op: str) -> Callable[..., Tensor]:
    def function(g: Any, x: Tensor, y: Tensor) -> Tensor:
        return gspmm(g, op, reduce_op, x, y)

    return _name(function, f"u_{op}_e_{reduce_op}", f"{reduce_op}_e (x[u] {op} y[e])")


def _copy_u(reduce_op: str) -> Callable[..., Tensor]:
    def function(g: Any, x: Tensor) -> Tensor:
        return gspmm(g, "copy_lhs", reduce_op, x, None)

    return _name(function, f"copy_u_{reduce_op}", f"{reduce_op}_e x[u]")


def _copy_e(reduce_op: str) -> Callable[..., Tensor]:
    def function(g: Any, x: Tensor) -> Tensor:
        return gspmm(g, "copy_rhs", reduce_op, None, x)

    return _name(function, f"copy_e_{reduce_op}", f"{reduce_op}_e x[e]")


GENERATED = {
    function.__name__: function
    for function in (
        *itertools.starmap(_binary, itertools.product(BINARY, REDUCERS)),
        *map(_copy_u, REDUCERS),
        *map(_copy_e, REDUCERS),
    )
}
globals().update(GENERATED)
__all__ = ["gspmm", *GENERATED]
