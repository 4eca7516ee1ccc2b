"""The largest or smallest message of each row, and the edge that sent it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from dgl_flash.cpu.chunks import gather_rows
from dgl_flash.cpu.extreme_rows import extreme_rows
from dgl_flash.cpu.jagged import Steps, jagged
from dgl_flash.reference.rows import accumulation_dtype

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

# Of one tensor in a step: four of them share the cache.
STEP_BYTES = 1 << 20
FLOAT32_IDS = 1 << 24  # so many are exact
# Numbers on all edges, up to which many calls cost more than a slower kernel.
SMALL = 1 << 22
NARROW = 16  # numbers in a row, below which the kernel that reads ahead has nothing to win


class Messages(NamedTuple):
    """What edges send: an operator, and one or two operands that broadcast.

    Attributes
    ----------
    op : str
        The operator.
    shape : tuple of int
        Feature shape of a message.
    lhs, rhs : Tensor or None
        Rows of sources and of edges.
    """

    op: str
    shape: tuple[int, ...]
    lhs: Tensor | None
    rhs: Tensor | None

    @property
    def num_senders(self) -> int:
        """Sources of copied rows, or else edges: also the sender where there is none."""
        rows = self.lhs if self.rhs is None else self.rhs
        assert rows is not None
        return rows.shape[0]

    @property
    def is_binary(self) -> bool:
        """Whether there are two operands."""
        return self.lhs is not None and self.rhs is not None

    @property
    def width(self) -> int:
        """Numbers in a message."""
        return math.prod(self.shape)

    def all(self, struct: GraphStructure) -> Tensor:
        """Messages of all edges in the order of their ids; of copied rows, the rows."""
        rows = self.lhs if self.rhs is None else self.rhs
        assert rows is not None
        rows = rows.to(accumulation_dtype(rows.dtype))
        if self.lhs is not None and self.rhs is not None:
            rows = rows.view(-1, *(self.rhs.shape[1:] or (1,)))
            rows = self._combine(_gather(self.lhs, struct.edges()[0]), rows)
        return rows.reshape(rows.shape[0], -1)

    def of(self, sources: Tensor, edges: Tensor) -> Tensor:
        """Messages of some edges, (K, F): a new tensor."""
        if self.lhs is None or self.rhs is None:
            rows, ids = (self.lhs, sources) if self.rhs is None else (self.rhs, edges)
            assert rows is not None
            found = _gather(rows, ids)
            return found if found.dim() == 2 else found.flatten(1)
        return self._combine(_gather(self.lhs, sources), _gather(self.rhs, edges)).flatten(1)

    def _combine(self, left: Tensor, right: Tensor) -> Tensor:
        in_place = left.shape[1:] == self.shape
        found: Tensor = getattr(left, f"{self.op}_" if in_place else self.op)(right)
        return found


def _gather(rows: Tensor, ids: Tensor) -> Tensor:
    """Rows by id in the dtype to compute in: a new tensor of at least two dimensions."""
    flat = rows if rows.dim() == 2 else rows.reshape(rows.shape[0], -1)
    found = flat.index_select(0, ids) if flat.shape[1] < NARROW else gather_rows(flat, ids)
    found = found.to(accumulation_dtype(rows.dtype))
    return found if rows.dim() == 2 else found.view(-1, *(rows.shape[1:] or (1,)))


class Results(NamedTuple):
    """Results of rows.

    Attributes
    ----------
    values : Tensor
        (N, F).
    ids : Tensor or None
        (N, F), whose message each one is: the source of a copied row, or else the edge.
    """

    values: Tensor
    ids: Tensor | None

    def select(self, rows: slice) -> Results:
        """Some of the rows, as views."""
        return Results(self.values[rows], None if self.ids is None else self.ids[rows])

    def put(self, rows: Tensor, found: Results) -> None:
        """Write the results of some rows."""
        self.values.index_copy_(0, rows, found.values)
        if self.ids is not None and found.ids is not None:
            self.ids.index_copy_(0, rows, found.ids.to(self.ids.dtype))


def fold(
    struct: GraphStructure, messages: Messages, reduce_op: str, wants_winners: bool
) -> Results:
    """Find the largest or smallest message of each destination and feature, and who sent it.

    Parameters
    ----------
    struct : GraphStructure
        With at least one edge.
    messages : Messages
        Of at least one number each.
    reduce_op : {"max", "min"}
        Which. Of equal messages it is the first; NaN is passed over.
    wants_winners : bool
        Whether to tell senders too.

    Returns
    -------
    Results
        (N_dst, F) each. Without edges, or where it would be infinite, a value is 0 and nobody has
        sent it.
    """
    if (not messages.is_binary and not wants_winners) or struct.num_edges * messages.width <= SMALL:
        out, is_finite = _at_once(struct, messages, reduce_op, wants_winners)
    else:
        out, is_finite = _step_by_step(struct, messages, reduce_op, wants_winners)
    if not is_finite:
        is_lost = out.values.isinf()
        out.values.masked_fill_(is_lost, 0)
        if out.ids is not None:
            out.ids.masked_fill_(is_lost, messages.num_senders)
    return out


def _at_once(
    struct: GraphStructure, messages: Messages, reduce_op: str, wants_winners: bool
) -> tuple[Results, bool]:
    """As :func:`_step_by_step`, with the messages of all edges: few calls."""
    adj = struct.in_adj
    copies_sources = messages.rhs is None
    columns = adj.indices if copies_sources else adj.eids
    rows = messages.all(struct)
    values, nth = extreme_rows(adj.indptr, columns, rows, reduce_op, wants_winners)
    is_finite = _are_finite(values)
    if not is_finite and values.isnan().any():
        # As in DGL, no comparison with NaN holds: it is passed over where there are others.
        rows = rows.masked_fill(rows.isnan(), -math.inf if reduce_op == "max" else math.inf)
        values, nth = extreme_rows(adj.indptr, columns, rows, reduce_op, wants_winners)
    if nth is not None and columns is not None:
        senders = torch.cat([columns, columns.new_tensor([messages.num_senders])])
        nth = senders.index_select(0, nth.flatten()).view_as(nth)
    return Results(values, nth), is_finite


def _step_by_step(
    struct: GraphStructure, messages: Messages, reduce_op: str, wants_winners: bool
) -> tuple[Results, bool]:
    """Results, and whether there is neither infinity nor NaN among the values."""
    steps = jagged(struct.in_adj)
    given = messages.lhs if messages.lhs is not None else messages.rhs
    assert given is not None
    dtype = accumulation_dtype(given.dtype)

    def new(num_rows: int) -> Results:
        values = given.new_empty((num_rows, messages.width), dtype=dtype)
        ids_dtype = struct.in_adj.index_dtype
        return Results(values, torch.empty_like(values, dtype=ids_dtype) if wants_winners else None)

    out = new(struct.num_dst)
    out.values.index_fill_(0, steps.empty_rows, 0)
    if out.ids is not None:
        out.ids.index_fill_(0, steps.empty_rows, messages.num_senders)
    is_finite = _walk(steps.short, messages, reduce_op, out)
    if steps.pieces is not None and steps.indptr is not None and steps.long_rows is not None:
        parts = new(steps.pieces.targets.numel())
        is_finite &= _walk(steps.pieces, messages, reduce_op, parts)
        best, nth = extreme_rows(steps.indptr, None, parts.values, reduce_op, wants_winners)
        ids = None
        if nth is not None and parts.ids is not None:
            # An infinity that loses to all others is won by no piece.
            ids = parts.ids.gather(0, nth.clamp_(max=parts.ids.shape[0] - 1).long())
        out.put(steps.long_rows, Results(best, ids))
    return out, is_finite


def _are_finite(values: Tensor) -> bool:
    """Tell soon; a sum of finite numbers that is too large is mistaken, which does no harm."""
    return math.isfinite(values.sum())


def _walk(steps: Steps, messages: Messages, reduce_op: str, out: Results) -> bool:
    """Results of all runs; tell whether there was neither infinity nor NaN among them."""
    num_runs = steps.targets.numel()
    size = max(STEP_BYTES // (out.values.shape[1] * out.values.element_size()), 1)
    is_finite = True
    for first in range(0, num_runs, size):
        block = range(first, min(first + size, num_runs))
        if not _fold_block(steps, block, messages, reduce_op, out, False):
            is_finite = False
            _fold_block(steps, block, messages, reduce_op, out, True)
    return is_finite


def _fold_block(
    steps: Steps, block: range, messages: Messages, reduce_op: str, out: Results, careful: bool
) -> bool:
    """Results of some runs; if one is not finite, stop and say so, unless told to take care."""
    is_max = reduce_op == "max"
    pick, beats = (torch.maximum, torch.Tensor.gt_) if is_max else (torch.minimum, torch.Tensor.lt_)
    senders = steps.sources if messages.rhs is None else steps.edges
    best = spare = winner = None
    unfinished = len(block)
    for step, count in enumerate([*steps.counts, 0]):
        left = max(min(count - block.start, len(block)), 0)
        if left < unfinished:
            assert best is not None
            done = Results(best, winner).select(slice(left, unfinished))
            if not careful and not _are_finite(done.values):
                return False
            out.put(steps.targets[block.start + left : block.start + unfinished], done)
            unfinished = left
        if left == 0:
            break
        begin = steps.begins[step] + block.start
        at = slice(begin, begin + left)
        ids = senders[at]
        found = messages.of(steps.sources[at] if messages.is_binary else ids, ids)
        if careful:
            found.masked_fill_(found.isnan(), -math.inf if is_max else math.inf)
        if best is None or spare is None:
            best, spare = found, torch.empty_like(found)
            if out.ids is not None:
                # Numbers of the same type are what torch compares and picks fast.
                dtype = out.values.dtype if messages.num_senders <= FLOAT32_IDS else torch.float64
                winner = ids.to(dtype).unsqueeze(1).expand_as(found).contiguous()
        elif winner is None:
            pick(best[:left], found, out=best[:left])
        else:
            pick(best[:left], found, out=spare[:left])
            wins = beats(found, best[:left]).to(winner.dtype)  # 1 or 0
            winner[:left].lerp_(ids.to(winner.dtype).unsqueeze(1), wins)
            best, spare = spare, best
    return True
