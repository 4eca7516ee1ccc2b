"""Attention between the rows of sets, for all pairs of sets of a batch at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from dgl_flash.ops.typed_mm import PickRows, PlaceRows
from dgl_flash.structure.fence import copy_to_device
from dgl_flash.structure.traced import is_tracing, outside_trace

# Scores that exist at a time: 256 MB of float32.
MOST_SCORES = 2**26


class Side(NamedTuple):
    """Where the rows of one side lie once its sets are filled up to the largest of their group."""

    num_rows: int
    num_slots: int
    slots: Tensor | None  # (num_rows,), None: where they are already

    def place(self, rows: Tensor) -> Tensor:
        """(num_rows, ...) to (num_slots, ...), zero in between."""
        return rows if self.slots is None else PlaceRows.apply(rows, self.slots, self.num_slots)

    def pick(self, rows: Tensor) -> Tensor:
        """Invert :meth:`place`."""
        return rows if self.slots is None else PickRows.apply(rows, self.slots)


class Group(NamedTuple):
    """Pairs of sets of about one size."""

    num_sets: int
    num_queries: int  # of each set, filled up
    num_keys: int
    sizes: Tensor | None  # (num_sets,), the keys that are there, on the device; None: all


class Pairing(NamedTuple):
    """The sets of queries and of keys of a batch, those of about one size in one group."""

    queries: Side
    keys: Side
    groups: list[Group]

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Let each query attend to the keys of its pair; 0 where there are none.

        Parameters
        ----------
        q : Tensor
            (N_x, H, D), scaled already.
        k, v : Tensor
            (N_mem, H, D)

        Returns
        -------
        Tensor
            (N_x, H, D)
        """
        for name, rows, side in (("x", q, self.queries), ("mem", k, self.keys)):
            if rows.shape[0] != side.num_rows:
                raise ValueError(
                    f"MultiHeadAttention: expected as many rows in `{name}` as the lengths sum up "
                    f"to, {side.num_rows}, got {rows.shape[0]}"
                )
        q, k, v = self.queries.place(q), self.keys.place(k), self.keys.place(v)
        of_queries = [group.num_sets * group.num_queries for group in self.groups]
        of_keys = [group.num_sets * group.num_keys for group in self.groups]
        parts = zip(
            self.groups, q.split(of_queries), k.split(of_keys), v.split(of_keys), strict=True
        )
        found = [_attend_group(*part) for part in parts]
        return self.queries.pick(torch.cat(found) if found else q)


def _attend_group(group: Group, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """(S * X, H, D) queries and (S * Y, H, D) keys and values: (S * X, H, D)."""
    q = q.unflatten(0, (group.num_sets, group.num_queries))
    k, v = (t.unflatten(0, (group.num_sets, group.num_keys)) for t in (k, v))
    by_query = max(1, q.shape[2] * group.num_keys)
    queries = max(1, min(group.num_queries, MOST_SCORES // by_query))
    sets = max(1, min(group.num_sets, MOST_SCORES // (by_query * queries)))
    if sets >= group.num_sets and queries >= group.num_queries:
        return _attend(q, k, v, group.sizes).flatten(0, 1)
    found = []
    for i in range(0, group.num_sets, sets):
        some = slice(i, i + sets)
        sizes = None if group.sizes is None else group.sizes[some]
        # The scores of a part are made again in the backward pass: they would not fit together.
        parts = [
            _checkpointed(part, k[some], v[some], sizes) for part in q[some].split(queries, dim=1)
        ]
        found.append(torch.cat(parts, dim=1))
    return torch.cat(found).flatten(0, 1)


def _checkpointed(*operands: Any) -> Tensor:
    return checkpoint(_attend, *operands, use_reentrant=False, preserve_rng_state=False)


def _attend(q: Tensor, k: Tensor, v: Tensor, sizes: Tensor | None) -> Tensor:
    scores = q.transpose(1, 2) @ k.permute(0, 2, 3, 1)  # (S, H, X, Y)
    if sizes is not None:
        filled_up = torch.arange(k.shape[1], device=k.device) >= sizes.unsqueeze(1)
        # No infinity: where no key is there at all, attention goes to the zeros that fill up.
        lowest = torch.finfo(scores.dtype).min
        scores = scores.masked_fill(filled_up[:, None, None, :], lowest)
    return (scores.softmax(dim=-1) @ v.transpose(1, 2)).transpose(1, 2)


class Sets:
    """Sets of consecutive rows.

    Parameters
    ----------
    sizes : Tensor
        (S,), int64, on the CPU: the rows of each set.
    device : torch.device
        Of the rows.
    """

    def __init__(self, sizes: Tensor, device: torch.device):
        self.sizes = sizes
        self.device = device
        self._alike: dict[int, Sets] = {}
        # Weak, as most sets attend to themselves and would keep themselves alive.
        self._pairings: WeakKeyDictionary[Sets, Pairing] = WeakKeyDictionary()

    def __len__(self) -> int:
        return self.sizes.numel()

    def alike(self, size: int) -> Sets:
        """As many sets, of one size each."""
        if size not in self._alike:
            self._alike[size] = Sets(torch.full_like(self.sizes, size), self.device)
        return self._alike[size]

    def pairing(self, keys: Sets) -> Pairing:
        """Lay out the rows so that set i can attend to set i of the keys, once."""
        if is_tracing():
            return _outside(self, keys)
        if keys not in self._pairings:
            self._pairings[keys] = _pair(self.sizes, keys.sizes, self.device)
        return self._pairings[keys]


_outside = outside_trace(Sets.pairing)

Lengths = Sequence[int] | Tensor | Sets


def sets_of(lengths: Lengths, device: torch.device) -> Sets:
    """Read lengths as they are passed to the blocks of a set transformer.

    Parameters
    ----------
    lengths : sequence of int, Tensor or Sets
        The rows of each set. The host reads a tensor on a GPU.
    device : torch.device
        Of the rows.

    Returns
    -------
    Sets
        With all that is known of them already, if ``lengths`` are that.
    """
    if isinstance(lengths, Sets):
        return lengths
    return Sets(torch.as_tensor(lengths, dtype=torch.int64, device="cpu"), device)


def _pair(num_queries: Tensor, num_keys: Tensor, device: torch.device) -> Pairing:
    if num_queries.shape != num_keys.shape:
        raise ValueError(
            "MultiHeadAttention: expected as many lengths of `x` as of `mem`, got "
            f"{num_queries.numel()} and {num_keys.numel()}"
        )
    level = 64 * _doublings(num_queries) + _doublings(num_keys)
    order = level.argsort(stable=True)
    counts = level[order].unique_consecutive(return_counts=True)[1].tolist()
    heights = (torch.empty_like(num_queries), torch.empty_like(num_keys))
    for sets in order.split(counts):
        for height, sizes in zip(heights, (num_queries, num_keys), strict=True):
            height[sets] = sizes[sets].max()
    sizes = copy_to_device(num_keys[order], device).split(counts)
    groups = []
    for sets, present in zip(order.split(counts), sizes, strict=True):
        rows, columns = (int(height[sets[0]]) for height in heights)
        full = bool((num_keys[sets] == columns).all())
        groups.append(Group(len(sets), rows, columns, None if full else present))
    sides = [
        _lay_out(sizes, height, order, device)
        for sizes, height in zip((num_queries, num_keys), heights, strict=True)
    ]
    return Pairing(sides[0], sides[1], groups)


def _doublings(sizes: Tensor) -> Tensor:
    """How often 1 is doubled until it reaches a size: 0, 0, 1, 2, 2, 3 for 0, 1, 2, 3, 4, 5."""
    return torch.frexp((sizes - 1).clamp(min=0).double()).exponent.long()


def _lay_out(sizes: Tensor, heights: Tensor, order: Tensor, device: torch.device) -> Side:
    ends = torch.empty_like(heights)
    ends[order] = heights[order].cumsum(0)
    num_rows = int(sizes.sum())
    shift = (ends - heights) - (sizes.cumsum(0) - sizes)
    rows = torch.arange(num_rows)
    slots = rows + shift.repeat_interleave(sizes)
    num_slots = int(heights.sum())
    if num_slots == num_rows and torch.equal(slots, rows):
        return Side(num_rows, num_slots, None)
    return Side(num_rows, num_slots, copy_to_device(slots, device))
