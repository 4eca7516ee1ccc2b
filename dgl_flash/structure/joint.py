"""Several relations in one structure: their nodes one after the other, each relation's padded."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import torch
from torch import Tensor

from dgl_flash.kernels.layout import ceil_power
from dgl_flash.structure.graph_structure import GraphStructure

# Nodes of a relation are padded to a multiple of this, so that no block of a kernel sees two.
ROWS = 256
MOST_STEPS = 32


def step_of(count: int) -> int:
    """Find what so many nodes are padded to a multiple of: at most ``MOST_STEPS`` such steps."""
    return ROWS * ceil_power(-(-count // (ROWS * MOST_STEPS)))


def padded(count: int) -> int:
    """Rows that so many nodes take."""
    step = step_of(count)
    return -(-count // step) * step


class Side:
    """How the rows of one side are laid out.

    Parameters
    ----------
    counts : sequence of int
        Nodes of each relation.
    keys : sequence of hashable
        The type of these nodes: relations of a type lie side by side, types in the order of their
        first relation.

    Attributes
    ----------
    order : list of int
        Relations as they lie.
    starts : list of int
        First row of each relation.
    num_rows : int
        Of all.
    """

    def __init__(self, counts: Sequence[int], keys: Sequence[Hashable]) -> None:
        rank = {key: nth for nth, key in enumerate(dict.fromkeys(keys))}
        self.order = sorted(range(len(counts)), key=lambda relation: rank[keys[relation]])
        self.starts = [0] * len(counts)
        self.num_rows = 0
        for relation in self.order:
            self.starts[relation] = self.num_rows
            self.num_rows += padded(counts[relation])
        self._counts = counts

    def blocks(self, rows: int) -> list[int]:
        """How many blocks of so many rows each relation has, as they lie."""
        return [padded(self._counts[relation]) // rows for relation in self.order]


class Joint:
    """Relations in one structure.

    Parameters
    ----------
    parts : sequence of GraphStructure
        The relations, on one device.
    src_keys, dst_keys : sequence of hashable
        Types of their sources and destinations.

    Attributes
    ----------
    parts : list of GraphStructure
        The relations.
    src, dst : Side
        Where their nodes lie.
    struct : GraphStructure
        All edges. Its edge ids are its own.
    plans : dict
        What ops keep with it.
    """

    def __init__(
        self,
        parts: Sequence[GraphStructure],
        src_keys: Sequence[Hashable],
        dst_keys: Sequence[Hashable],
    ) -> None:
        self.parts = list(parts)
        self.src = Side([part.num_src for part in parts], src_keys)
        self.dst = Side([part.num_dst for part in parts], dst_keys)
        ends: tuple[list[Tensor], list[Tensor]] = ([], [])
        for relation, part in enumerate(parts):
            src, dst = part.edges()
            ends[0].append(src + self.src.starts[relation])
            ends[1].append(dst + self.dst.starts[relation])
        with torch.inference_mode(False):  # it will be used in training too
            src, dst = (torch.cat(end) for end in ends)
            sizes = self.src.num_rows, self.dst.num_rows
            self.struct = GraphStructure.from_coo(src, dst, *sizes)
        self.plans: dict[Any, Any] = {}
