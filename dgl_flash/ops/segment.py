"""Reductions and softmax over consecutive rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from dgl_flash.errors import dgl_error
from dgl_flash.ops import check
from dgl_flash.ops.edge_softmax import edge_softmax
from dgl_flash.ops.gspmm import REDUCERS, gspmm
from dgl_flash.ops.typed_mm import check_lengths
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.segments import segment_structure
from dgl_flash.structure.traced import is_tracing, outside_trace

_structure_outside = outside_trace(segment_structure)


def _read(op: str, seglen: Tensor, value: Tensor) -> GraphStructure:
    check.tensor(op, "value", value)
    if not isinstance(seglen, Tensor) or seglen.dtype not in (torch.int32, torch.int64):
        got = seglen.dtype if isinstance(seglen, Tensor) else type(seglen).__name__
        raise TypeError(f"{op}: expected `seglen` to be a tensor of int32 or int64, got {got}")
    if seglen.dim() != 1 or value.dim() == 0:
        raise ValueError(
            f"{op}: expected `seglen` of shape (S,) and `value` of shape (M, *), "
            f"got {tuple(seglen.shape)} and {tuple(value.shape)}"
        )
    if is_tracing():
        check_lengths(op, "seglen", seglen, "value", value.shape[0])
        return _structure_outside(seglen, value.shape[0], value.device)
    return _structure(op, seglen, value)


@dataclass(frozen=True)
class _Kept:
    """What was made of lengths, and what tells whether they are the same.

    That is a copy of lengths on the CPU. Those on a GPU are not read: their version counts how
    often they have been written to.
    """

    lengths: Tensor | int
    by_place: dict[tuple[int, torch.device], GraphStructure]

    def is_of(self, seglen: Tensor) -> bool:
        """Whether the lengths are still those."""
        if isinstance(self.lengths, int):
            return self.lengths == seglen._version
        return torch.equal(self.lengths, seglen)


_kept: Any = WeakTensorKeyDictionary()  # lives as long as the lengths do


def _structure(op: str, seglen: Tensor, value: Tensor) -> GraphStructure:
    """Structure of the segments, kept for all layers and epochs."""
    num_rows, device = value.shape[0], value.device
    on_host = seglen.device.type == "cpu"
    if not on_host and _changes_unseen(seglen):
        check_lengths(op, "seglen", seglen, "value", num_rows)
        return segment_structure(seglen, num_rows, device)
    kept = _kept.get(seglen)
    if kept is None or not kept.is_of(seglen):
        kept = _kept[seglen] = _Kept(seglen.clone() if on_host else seglen._version, {})
    found = kept.by_place.get((num_rows, device))
    if found is None:
        check_lengths(op, "seglen", seglen, "value", num_rows)
        with torch.inference_mode(False):  # it will be used in training too
            found = segment_structure(seglen, num_rows, device)
        kept.by_place[num_rows, device] = found
    return found


def _changes_unseen(seglen: Tensor) -> bool:
    """Whether lengths on a device may change without a new version of them."""
    # A replayed CUDA graph makes the structure of what the lengths are then.
    return seglen.is_inference() or (seglen.is_cuda and torch.cuda.is_current_stream_capturing())


def segment_reduce(seglen: Tensor, value: Tensor, reducer: str = "sum") -> Tensor:
    r"""Reduce consecutive rows segment by segment, as ``dgl.ops.segment_reduce`` does.

    .. math::
        y_s = R_{i \text{ in segment } s} \; x_i, \qquad R = \text{sum, mean, max or min}

    Parameters
    ----------
    seglen : torch.Tensor
        (S,), int32 or int64, rows of each segment, on the CPU or with ``value``. Segments may be
        empty.
    value : torch.Tensor
        :math:`x`, (M, \*), float64, float32, float16 or bfloat16.
    reducer : {"sum", "mean", "max", "min"}
        Of several equal extrema the first gets the gradient; infinite ones are replaced by 0, as
        in DGL.

    Returns
    -------
    torch.Tensor
        (S, \*), dtype of ``value``; zero for segments without rows.

    Raises
    ------
    TypeError
        When ``value`` is no floating-point tensor or the lengths are no integers.
    ValueError
        When shapes do not fit, a length is negative, or the lengths do not sum up to M. Lengths on
        a GPU are not looked at: rows beyond their sum count to the last segment.
    DGLError
        When ``reducer`` is unknown.

    Notes
    -----
    DGL's mean of segments that are all empty is NaN; here it is 0.

    **Fused path.** A segment is a destination whose in-edges are its rows: this is ``copy_rhs`` of
    :func:`gspmm`, see there for what runs in a kernel and for the gradients. What follows from
    lengths is kept until they change. Those on a GPU are read back once, where the kernel depends
    on the longest segment (segments of fewer than 6 rows on average, or some of hundreds), which
    cannot be done while a CUDA graph is captured: give it lengths on the CPU.
    """
    if reducer not in REDUCERS:
        raise dgl_error(f"reducer {reducer} not recognized.")
    return gspmm(_read("segment_reduce", seglen, value), "copy_rhs", reducer, None, value)


def segment_softmax(seglen: Tensor, value: Tensor) -> Tensor:
    r"""Softmax over the rows of each segment, as ``dgl.ops.segment_softmax`` does.

    .. math::
        y_i = \frac{\exp x_i}{\sum_{j \text{ in segment of } i} \exp x_j}

    Parameters
    ----------
    seglen : torch.Tensor
        (S,), int32 or int64, rows of each segment, on the CPU or with ``value``.
    value : torch.Tensor
        :math:`x`, (M, \*), float64, float32, float16 or bfloat16.

    Returns
    -------
    torch.Tensor
        Shape and dtype of ``value``.

    Raises
    ------
    TypeError
        When ``value`` is no floating-point tensor or the lengths are no integers.
    ValueError
        When shapes do not fit, or lengths on the CPU are negative or do not sum up to M.

    Notes
    -----
    **Fused path.** :func:`edge_softmax` over the edges from rows to segments; see there.
    """
    return edge_softmax(_read("segment_softmax", seglen, value), value)
