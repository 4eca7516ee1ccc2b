"""Derivatives of the three products of a graph, which are such products again.

======  =============================================  ==================================
sum     ``out[v] = b[v] sum_e a[u] w[e] x[u or e]``     rows of edges to rows of nodes
dot     ``out[e,h] = a[u] b[v] <x[u or e], y[v]>_h``    rows of nodes to numbers of edges
map     ``out[e] = a[u] b[v] (y[v] op z[u or e])``      rows of nodes to rows of edges
======  =============================================  ==================================

Weights are (E,), (E, H) for the H parts of a row, or (E, F) for each of its F numbers. The
formulas are written once and used by autograd (:data:`EAGER`) and by ``torch.compile``
(``traced_products``); so derivatives of any order are products too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from dgl_flash.kernels.jit import accumulator

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


@dataclass(frozen=True)
class Scaling:
    """Constant factors of a product: one a source, one a destination, and the mean's 1 / degree."""

    src: Tensor | None = None
    dst: Tensor | None = None
    mean: bool = False

    def reverse(self, struct: GraphStructure, dtype: torch.dtype) -> Scaling:
        """The factors seen from the reverse graph, where a mean is a factor of the source."""
        dst = self.dst
        if self.mean:
            per_degree = struct.degree_scale("dst", -1, dtype)
            dst = per_degree if dst is None else dst * per_degree
        return Scaling(src=dst, dst=self.src)


NO_SCALING = Scaling()


class Products(Protocol):
    """The products on one representation of the edges, a GraphStructure or its tensors."""

    def sum(
        self,
        edges: Any,
        feat: Tensor,
        weight: Tensor | None,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        """Sum rows."""

    def dot(
        self,
        edges: Any,
        feat: Tensor,
        feat_dst: Tensor,
        num_heads: int,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        """Dot products."""

    def map(
        self,
        edges: Any,
        op: str,
        feat_dst: Tensor,
        other: Tensor | None,
        scaling: Scaling,
        on_edges: bool = False,
    ) -> Tensor:
        """Rows of edges."""

    def reverse(self, edges: Any, scaling: Scaling, dtype: torch.dtype) -> Scaling:
        """Factors seen from the reverse graph."""


class _Eager:
    """The products as autograd functions."""

    @staticmethod
    def sum(*args: Any) -> Tensor:
        from dgl_flash.ops.spmm import weighted_sum

        return weighted_sum(*args)

    @staticmethod
    def dot(*args: Any) -> Tensor:
        from dgl_flash.ops.sddmm import dot_products

        return dot_products(*args)

    @staticmethod
    def map(*args: Any) -> Tensor:
        from dgl_flash.ops.edge_map import edge_map

        return edge_map(*args)

    @staticmethod
    def reverse(edges: Any, scaling: Scaling, dtype: torch.dtype) -> Scaling:
        return scaling.reverse(edges, dtype)


EAGER: Products = _Eager()
Gradients = tuple[Tensor | None, Tensor | None]


def save(ctx: Any, scaling: Scaling, *operands: Tensor | None) -> None:
    """Keep what a backward pass needs, in ``ctx.scaling`` and for :func:`saved`."""
    ctx.scaling = scaling
    # Factors go along so that torch notices when they are written to. Those made in inference mode,
    # as what a graph has cached may be, cannot be saved.
    factors = [None if f is None or f.is_inference() else f for f in (scaling.src, scaling.dst)]
    ctx.save_for_backward(*operands, *factors)


def saved(ctx: Any) -> tuple[Tensor | None, ...]:
    """Operands as they were given to :func:`save`."""
    return ctx.saved_tensors[:-2]


def shape_of(operand: Tensor | None) -> torch.Size | None:
    """What is left of an operand whose values are not needed."""
    return None if operand is None else operand.shape


def num_parts(weight: Tensor | None) -> int:
    """Parts of a row that have a number of their own."""
    return 1 if weight is None else math.prod(weight.shape[1:])


def row_width(rows: Tensor) -> int:
    """Numbers in a row."""
    return math.prod(rows.shape[1:])


def _by_edge(grad: Tensor) -> Tensor:
    """A gradient to rows of edges in the form of weights."""
    return grad.reshape(grad.shape[0], row_width(grad))


def of_sum(
    products: Products,
    edges: Any,
    feat: Tensor | None,
    weight: Tensor | None,
    weight_shape: torch.Size | None,
    scaling: Scaling,
    on_edges: bool,
    grad_out: Tensor,
    needed: tuple[bool, bool],
) -> Gradients:
    """Gradients of a sum to rows, which depend on weights, and to weights, which depend on rows."""
    grad_feat = grad_weight = None
    if needed[0] and on_edges:
        op = "copy" if weight is None else "mul"
        grad_feat = products.map(edges, op, grad_out, weight, scaling, True)
    elif needed[0]:
        back = products.reverse(edges, scaling, accumulator(grad_out.dtype))
        grad_feat = products.sum(edges.reverse(), grad_out, weight, back)
    if needed[1] and weight_shape is not None:
        assert feat is not None
        parts = math.prod(weight_shape[1:])
        if parts == row_width(grad_out) > 1:
            grad_weight = products.map(edges, "mul", grad_out, _rows(feat), scaling, on_edges)
        else:
            grad_weight = products.dot(edges, feat, grad_out, parts, scaling, on_edges)
        grad_weight = grad_weight.reshape(weight_shape)
    return grad_feat, grad_weight


def _rows(feat: Tensor) -> Tensor:
    return feat.reshape(feat.shape[0], row_width(feat))


def of_dot(
    products: Products,
    edges: Any,
    feat: Tensor | None,
    feat_dst: Tensor | None,
    scaling: Scaling,
    on_edges: bool,
    grad_out: Tensor,
    needed: tuple[bool, bool],
) -> Gradients:
    """Gradients of dot products to both operands, each of which depends on the other one."""
    grad_feat = grad_dst = None
    if needed[0]:
        assert feat_dst is not None
        if on_edges:
            grad_feat = products.map(edges, "mul", feat_dst, grad_out, scaling, True)
        else:
            back = products.reverse(edges, scaling, accumulator(grad_out.dtype))
            grad_feat = products.sum(edges.reverse(), feat_dst, grad_out, back)
    if needed[1]:
        assert feat is not None
        grad_dst = products.sum(edges, feat, grad_out, scaling, on_edges)
    return grad_feat, grad_dst


def of_map(
    products: Products,
    edges: Any,
    op: str,
    feat_dst: Tensor | None,
    other: Tensor | None,
    shapes: tuple[torch.Size, torch.Size | None],
    scaling: Scaling,
    on_edges: bool,
    grad_out: Tensor,
    needed: tuple[bool, bool],
) -> Gradients:
    """Gradients of rows of edges to both operands; copies and sums need their shapes only."""
    grad_dst = grad_other = None
    weights = _by_edge(grad_out)
    if needed[0] and (op != "mul" or on_edges):
        grad_dst = products.sum(edges, grad_out, other if op == "mul" else None, scaling, True)
    elif needed[0]:
        assert other is not None
        grad_dst = products.sum(edges, other, weights, scaling).reshape(shapes[0])
    if not needed[1] or shapes[1] is None:
        return grad_dst, None
    if on_edges:
        parts = math.prod(shapes[1][1:])
        if op == "add":
            shape = (weights.shape[0], parts, row_width(grad_out) // max(parts, 1))
            grad_other = weights.reshape(shape).sum(dim=-1)
        elif parts == row_width(grad_out) > 1:
            assert feat_dst is not None
            grad_other = products.map(edges, "mul", feat_dst, weights, scaling, True)
        else:
            assert feat_dst is not None
            grad_other = products.dot(edges, grad_out, feat_dst, parts, scaling, True)
    elif op == "add":
        grad_other = products.sum(edges.reverse(), grad_out, None, NO_SCALING, True)
    else:
        assert feat_dst is not None
        back = products.reverse(edges, scaling, accumulator(grad_out.dtype))
        grad_other = products.sum(edges.reverse(), feat_dst, weights, back)
    return grad_dst, grad_other.reshape(shapes[1])
