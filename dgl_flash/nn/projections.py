"""Linear maps of rows, several of each set of rows, side by side in one tensor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd import Function

from dgl_flash.ops import check
from dgl_flash.structure.joint import step_of


class Maps(NamedTuple):
    """Rows, and the maps of them."""

    rows: Tensor  # (P, in), P a multiple of step_of(P)
    linears: list[nn.Linear]  # all with a bias, or none


class ProjectFunction(Function):
    """Saves rows and weights; its gradients can be differentiated.

    As products of torch, they would be copied into place, and the gradients of weights, small
    matrices that are sums over all rows, would keep a few blocks busy for long.
    """

    @staticmethod
    def forward(ctx: Any, num_sets: int, *flat: Tensor) -> Tensor:
        """Take rows (P, in), weights (K, W, in) and biases (K, W), if any, of each set."""
        rows, weights = flat[:num_sets], flat[num_sets : 2 * num_sets]
        biases = flat[2 * num_sets :]
        total = sum(len(w) * len(r) for r, w in zip(rows, weights, strict=True))
        out = rows[0].new_empty(total, weights[0].shape[1])
        parts = _parts(out, rows, weights)
        for at, (part, of_set, weight) in enumerate(zip(parts, rows, weights, strict=True)):
            repeated = of_set.expand(len(weight), *of_set.shape)
            if biases:
                bias = biases[at].unsqueeze(1)
                torch.baddbmm(bias, repeated, weight.transpose(1, 2), out=part)
            else:
                torch.bmm(repeated, weight.transpose(1, 2), out=part)
        ctx.save_for_backward(*rows, *weights)
        ctx.num_sets, ctx.has_bias = num_sets, bool(biases)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        """Gradients of all rows, weights and biases."""
        saved = ctx.saved_tensors
        rows, weights = saved[: ctx.num_sets], saved[ctx.num_sets :]
        parts = _parts(grad, rows, weights)
        of_rows = [torch.bmm(g, w).sum(0) for g, w in zip(parts, weights, strict=True)]
        of_weights = [_of_weight(g, r) for g, r in zip(parts, rows, strict=True)]
        of_biases = [g.sum(1) for g in parts] if ctx.has_bias else []
        return (
            None,  # num_sets
            *of_rows,
            *of_weights,
            *of_biases,
        )


def _parts(whole: Tensor, rows: Sequence[Tensor], weights: Sequence[Tensor]) -> list[Tensor]:
    """(K, P, W) of each set, views of the whole."""
    counts = [(len(w), len(r)) for r, w in zip(rows, weights, strict=True)]
    views = whole.split([maps * count for maps, count in counts])
    return [view.view(*count, -1) for view, count in zip(views, counts, strict=True)]


def _of_weight(grad: Tensor, rows: Tensor) -> Tensor:
    """(K, W, in) of (K, P, W) and (P, in), the rows in several parts that are added up."""
    maps, count, width = grad.shape
    step = step_of(count)
    steps = count // step
    pieces = grad.reshape(maps * steps, step, width).transpose(1, 2)
    repeated = rows.view(1, steps, step, -1).expand(maps, -1, -1, -1).flatten(0, 1)
    return torch.bmm(pieces, repeated).view(maps, steps, width, -1).sum(1)


def project(sets: Sequence[Maps]) -> Tensor:
    """Project all rows.

    Parameters
    ----------
    sets : sequence of Maps
        With one output width W.

    Returns
    -------
    Tensor
        (sum of K P, W): for each set, for each of its K maps, a row for each of its P rows.
    """
    rows = [of_set.rows for of_set in sets]
    weights = [torch.stack([one.weight for one in of_set.linears]) for of_set in sets]
    biases = []
    if sets[0].linears[0].bias is not None:
        biases = [torch.stack([one.bias for one in of_set.linears]) for of_set in sets]
    found: Tensor = ProjectFunction.apply(len(sets), *check.autocast(*rows, *weights, *biases))
    return found
