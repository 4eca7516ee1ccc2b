"""Reduce what the relations of a heterograph give to one type of nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error

__all__ = ["AddUp", "RunningSum", "get_aggregate_fn"]

# Thousands of tensors, added one to the other, would round thousands of times: so many are added
# up first, and their sum is added to the total. torch's own sum over a stack does alike.
MOST_IN_A_ROW = 32


class RunningSum:
    """A list of tensors that keeps nothing but their sum, or their mean.

    It has the shape and dtype, and the errors, of ``torch.stack(parts)`` reduced along its first
    dimension. Halves are added in float32 and rounded once, as there.

    Parameters
    ----------
    name : {"sum", "mean"}
        What :meth:`result` gives.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._count = 0
        self._total: Tensor | None = None
        self._row: Tensor | None = None  # the sum of the last few, not in the total yet
        self._in_row = 0
        self._dtype = torch.float32  # that of a stack of the parts

    def __len__(self) -> int:
        return self._count

    def append(self, part: Any) -> None:
        r"""Add a tensor; it is only read.

        Parameters
        ----------
        part : Tensor
            (\*), of one shape.

        Raises
        ------
        TypeError
            If it is no tensor.
        RuntimeError
            If it has another shape than those before.
        """
        before: Any = self._row if self._total is None else self._total
        if not isinstance(part, Tensor) or (before is not None and part.shape != before.shape):
            torch.stack([*[before] * self._count, part])  # raises
        if before is None:
            self._dtype = part.dtype
        elif part.dtype != self._dtype:
            self._dtype = torch.promote_types(self._dtype, part.dtype)
        if self._row is None:
            self._row = part.to(self._wide, copy=True, memory_format=torch.contiguous_format)
        else:
            self._row = self._row.to(self._wide).add_(part)
        self._count += 1
        self._in_row += 1
        if self._in_row == MOST_IN_A_ROW:
            self._end_row()

    def result(self) -> Tensor:
        r"""Return the sum or the mean.

        Returns
        -------
        Tensor
            (\*), a tensor of its own.

        Raises
        ------
        RuntimeError
            If there is no mean of the dtype.
        """
        self._end_row()
        total: Any = self._total
        # What torch makes of this dtype, which depends on autocast too; there is no mean of some.
        reduce = getattr(torch, self.name)
        dtype = reduce(total.new_empty(1, 0, dtype=self._dtype), dim=0).dtype
        return (total.div_(self._count) if self.name == "mean" else total).to(dtype)

    @property
    def _wide(self) -> torch.dtype:
        """What sums are kept in."""
        if self._dtype in (torch.float16, torch.bfloat16):
            return torch.float32
        is_inexact = self._dtype.is_floating_point or self._dtype.is_complex
        return self._dtype if is_inexact else torch.int64

    def _end_row(self) -> None:
        if self._row is not None:
            if self._total is None:
                self._total = self._row
            else:
                self._total = self._total.to(self._wide).add_(self._row)
        self._row, self._in_row = None, 0


class AddUp:
    """Sum or mean of tensors, without a stack of them.

    Parameters
    ----------
    name : {"sum", "mean"}
        Which of the two.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def start(self) -> RunningSum:
        """Begin a list that can be given to a call, and that keeps no tensor."""
        return RunningSum(self.name)

    def of_stack(self, parts: Tensor) -> Tensor:
        r"""Reduce (R, \*) along the first dimension, for parts that lie in one tensor anyway."""
        found: Tensor = getattr(torch, self.name)(parts, dim=0)
        return found

    def __call__(self, inputs: Sequence[Tensor] | RunningSum, dsttype: str) -> Tensor | None:
        """Reduce a list of tensors, with DGL's arguments for it; of nothing there is None."""
        if len(inputs) == 0:
            return None
        if not isinstance(inputs, RunningSum):
            parts, inputs = inputs, self.start()
            for part in parts:
                inputs.append(part)
        return inputs.result()


def get_aggregate_fn(agg: str) -> Callable[[Any, str], Tensor | None]:
    """Find what reduces the results of several relations.

    Parameters
    ----------
    agg : {"sum", "max", "min", "mean", "stack"}
        Name of the reducer; ``"stack"`` puts the results into a second dimension.

    Returns
    -------
    callable
        Takes a list of tensors and the type of the nodes; returns a tensor, or None for no tensor.

    Raises
    ------
    DGLError
        For another name.

    Notes
    -----
    **Fused path.** No kernel, on any device: sums and means are added up in one tensor by torch, so
    that results need not be kept for it; the others stack them.
    """
    if agg in ("sum", "mean"):
        return AddUp(agg)
    if agg in ("max", "min"):
        return partial(_reduce_stack, name=agg)
    if agg == "stack":
        return _stack
    raise dgl_error(
        'Invalid cross type aggregator. Must be one of "sum", "max", "min", "mean" or "stack". '
        f'But got "{agg}"'
    )


def _reduce_stack(inputs: Sequence[Tensor], dsttype: str, name: str) -> Tensor | None:
    # Unlike torch.maximum, this gives the gradient to one of several equal values, as in DGL.
    return getattr(torch, name)(torch.stack([*inputs]), dim=0)[0] if len(inputs) else None


def _stack(inputs: Sequence[Tensor], dsttype: str) -> Tensor | None:
    return torch.stack([*inputs], dim=1) if len(inputs) else None
