"""Several statistics of the neighbours in one pass over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.jit import accumulator
from dgl_flash.ops import check
from dgl_flash.ops.dispatch import use_kernel
from dgl_flash.ops.gradients import row_width
from dgl_flash.ops.gspmm import gspmm
from dgl_flash.ops.rows import packed
from dgl_flash.ops.statistics_kernels import Grads, Saved, Wanted, backward, forward
from dgl_flash.reference.statistics import root
from dgl_flash.structure import structure
from dgl_flash.structure.places import bytes_of_place
from dgl_flash.structure.traced import is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

NAMES = ("sum", "mean", "max", "min", "var", "std")


class StatisticsFunction(Function):
    """Saves mean, spread and the rows where there is a spread, and some bytes of each winner."""

    @staticmethod
    def forward(
        ctx: Any, struct: GraphStructure, feat: Tensor, wanted: Wanted, on_edges: bool
    ) -> tuple[Tensor | None, ...]:
        """Reduce (N, F) or (E, F) rows."""
        has_extremes = wanted.most or wanted.least
        num_bytes = bytes_of_place(struct.in_adj.max_degree) if has_extremes else 0
        wanted = replace(wanted, exact=accumulator(feat.dtype) != feat.dtype)
        found = forward(struct, packed(feat), wanted, on_edges, num_bytes)
        ctx.set_materialize_grads(False)
        ctx.struct, ctx.wanted, ctx.on_edges = struct, wanted, on_edges
        exact = found[3:5] if wanted.exact else (found.mean, found.spread)
        kept = exact if wanted.spread else (None, None)
        ctx.save_for_backward(feat, *kept, found.most_winners, found.least_winners)
        return found.mean, found.total, found.spread, found.most, found.least

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        """Run the kernels, or differentiate the reference when a graph of it is wanted."""
        feat, *saved = ctx.saved_tensors
        if torch.is_grad_enabled():
            again = feat.view_as(feat)
            names = ("mean", "sum", "std" if ctx.wanted.root else "var", "max", "min")
            asked = [name for name, g in zip(names, grads, strict=True) if g is not None]
            results = reference.statistics(ctx.struct, again, tuple(asked), ctx.on_edges)
            given = [g for g in grads if g is not None]
            (grad,) = torch.autograd.grad(results, again, given, create_graph=True)
        else:
            typed = Grads(*(None if g is None else packed(g, feat.dtype) for g in grads))
            operands = (ctx.struct, packed(feat), typed, Saved(*saved), ctx.wanted, ctx.on_edges)
            grad = backward(*operands)
        return (
            None,  # struct
            grad,  # feat
            None,  # wanted
            None,  # on_edges
        )


def _fused(
    struct: GraphStructure, feat: Tensor, names: tuple[str, ...], on_edges: bool
) -> tuple[Tensor, ...]:
    shape = (struct.num_dst, *feat.shape[1:])
    flat = feat.reshape(feat.shape[0], row_width(feat))
    wanted = Wanted.by(names)
    if torch.is_grad_enabled() and feat.requires_grad:
        mean, total, spread, most, least = StatisticsFunction.apply(struct, flat, wanted, on_edges)
    else:
        mean, total, spread, *_, most, least, _, _ = forward(
            struct, packed(flat), wanted, on_edges, 0
        )
    found = {"mean": mean, "sum": total, "max": most, "min": least}
    found["std" if wanted.root else "var"] = spread
    if "std" in names and not wanted.root:
        found["std"] = root(spread)
    # Torch lets nobody write over a view that was made without gradients.
    results = [found[name].reshape(shape) for name in names]
    return tuple(results if torch.is_grad_enabled() else [out.detach() for out in results])


def _composed(
    struct: GraphStructure, feat: Tensor, names: tuple[str, ...], on_edges: bool
) -> tuple[Tensor, ...]:
    """One op after the other, in the arithmetic type where they are put together."""

    def reduce(name: str, rows: Tensor) -> Tensor:
        if on_edges:
            return gspmm(struct, "copy_rhs", name, None, rows)
        return gspmm(struct, "copy_lhs", name, rows, None)

    wide = feat.to(accumulator(feat.dtype))
    # What is in the arithmetic type already stays there.
    with torch.autocast(feat.device.type, enabled=False):
        found: dict[str, Tensor] = {
            name: reduce(name, feat) for name in ("max", "min") if name in names
        }
        if set(names) - {"max", "min"}:
            if "sum" in names:
                found["sum"] = reduce("sum", wide)
                degrees = struct.in_degrees().clamp(min=1).to(wide.dtype)
                mean = found["sum"] / degrees.reshape(-1, *(1 for _ in feat.shape[1:]))
            else:
                mean = reduce("mean", wide)
            found["mean"] = mean
            if "var" in names or "std" in names:
                found["var"] = torch.relu(reduce("mean", wide * wide) - mean * mean)
                found["std"] = root(found["var"])
    return tuple(found[name].to(feat.dtype) for name in names)


def statistics(
    graph: Any,
    feat: Tensor,
    names: Sequence[str] = ("mean", "max", "min", "std"),
    *,
    on_edges: bool = False,
) -> tuple[Tensor, ...]:
    r"""Take several statistics of the neighbours' features in one pass over them.

    .. math::
        \text{mean}_v = \frac{1}{n} \sum_{u \to v} x_u, \quad
        \text{var}_v = \frac{1}{n} \sum_{u \to v} (x_u - \text{mean}_v)^2, \quad
        \text{std}_v = \sqrt{\text{var}_v}, \quad
        \max_{u \to v} x_u, \quad \min_{u \to v} x_u, \quad \sum_{u \to v} x_u

    element by element, with :math:`n` the in-degree of :math:`v`: the aggregators of *Principal
    Neighbourhood Aggregation for Graph Nets* (Corso et al., 2020).

    Parameters
    ----------
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        Graph with one edge type, on any device.
    feat : torch.Tensor
        :math:`x`, (N_src, \*), or (E, \*) in edge-id order with ``on_edges``; float64, float32,
        float16 or bfloat16.
    names : sequence of str
        Of ``"sum"``, ``"mean"``, ``"max"``, ``"min"``, ``"var"`` and ``"std"``, each at most once.
    on_edges : bool
        Whether the features belong to edges. Default False.

    Returns
    -------
    tuple of torch.Tensor
        (N_dst, \*) each, in the order of ``names``, dtype of ``feat``; zero for destinations
        without in-edges. Maxima and minima treat ties, NaN and infinities as :func:`gspmm` does.
        A standard deviation of 0 has the derivative 0.

    Raises
    ------
    TypeError
        When ``graph`` is no graph or ``feat`` no floating-point tensor.
    ValueError
        When ``feat`` has not one row a source (or edge), or a name is unknown or comes twice.

    Notes
    -----
    **Fused path.** On CUDA one kernel reads each source row once per edge for all statistics, and
    one more does so for all gradients over the reverse adjacency; of a maximum or minimum a byte or
    two are saved per number. Variances are summed about the mean so far and lose no
    digits where that is large. Bit-equal from run to run. Gradients of gradients
    take the reference path. Elsewhere, and under ``torch.compile``, the single ops of
    :func:`gspmm` follow each other.
    """
    struct = structure(graph, check.device(feat), op="statistics")
    (feat,) = check.autocast(feat)
    check.tensor("statistics", "feat", feat)
    num_rows, rows = (struct.num_edges, "E") if on_edges else (struct.num_src, "N_src")
    if feat.dim() == 0 or feat.shape[0] != num_rows:
        raise ValueError(
            f"statistics: expected `feat` of shape ({rows}, *) = ({num_rows}, *), got "
            f"{tuple(feat.shape)}; one row {'an edge' if on_edges else 'a source node'} is needed"
        )
    names = tuple(names)
    if not set(names) <= set(NAMES) or len(set(names)) < len(names):
        raise ValueError(
            f"statistics: expected `names` to be different ones of {NAMES}, got {names}"
        )
    if is_tracing() or set(names) in ({"max"}, {"min"}, set()):
        return _composed(struct, feat, names, on_edges)
    transformed = torch._C._are_functorch_transforms_active()
    blockers = ("torch.func transforms it",) if transformed else ()
    if use_kernel("statistics", struct.device, kernels=("statistics",), blockers=blockers):
        return _fused(struct, feat, names, on_edges)
    run = reference.statistics if transformed else _composed
    return run(struct, feat, names, on_edges)
