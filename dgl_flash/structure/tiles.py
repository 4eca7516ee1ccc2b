"""Rows grouped by type, so that one product a group, or one batched product, serves them all."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from dgl_flash.structure.fence import copy_to_device

SHORTEST_TILE = 8
TALLEST_TILE = 2048


@dataclass(frozen=True, slots=True)
class Runs:
    """Rows in the order of their types, one product a type: the layout of the CPU.

    Attributes
    ----------
    lengths : tuple of int
        Rows of each type.
    """

    lengths: tuple[int, ...]

    @property
    def num_slots(self) -> int:
        """Places for rows: as many as there are rows."""
        return sum(self.lengths)


@dataclass(frozen=True, slots=True)
class Tiles:
    """Rows in tiles of one height and one type each: the layout of a GPU.

    A type owns consecutive tiles, the last of them padded with rows of zeros, so that one batched
    product multiplies all rows by the weights of their types.

    Attributes
    ----------
    height : int
        Rows of a tile.
    types : Tensor
        Shape ``(num_tiles,)``, int64, ascending. Surplus tiles at the end name the last type.
    bounds : Tensor
        Shape ``(R + 1,)``, int64; type ``r`` owns the tiles ``bounds[r] .. bounds[r + 1]``.
    """

    height: int
    types: Tensor
    bounds: Tensor

    @property
    def num_slots(self) -> int:
        """Places for rows, padding included."""
        return self.height * self.types.numel()


Layout = Runs | Tiles


def use_tiles(device: torch.device) -> bool:
    """Whether rows are padded to tiles: launches are cheap on a CPU, hence runs there."""
    return device.type != "cpu"


def choose_height(num_rows: int, num_types: int, num_in: int, num_out: int) -> int:
    """Rows of a tile that keep both the padding and the copies of the weights small.

    The last tile of a type is half empty on average: ``R T / 2`` rows of ``in + out`` numbers. Each
    tile reads weights of its own: ``M / T`` times ``in * out`` numbers. The sum is least where both
    are equal.

    Parameters
    ----------
    num_rows, num_types : int
        M and R.
    num_in, num_out : int
        Numbers in a row before and after the product.

    Returns
    -------
    int
        A power of two between ``SHORTEST_TILE`` and ``TALLEST_TILE``.
    """
    weight, row = num_in * num_out, num_in + num_out
    best = math.sqrt(2 * num_rows * weight / max(num_types * row, 1))
    power = 2 ** round(math.log2(max(best, 1)))
    return min(max(power, SHORTEST_TILE), TALLEST_TILE)


def tile(lengths: Tensor, num_rows: int, height: int, device: torch.device) -> Tiles:
    """Cut the rows of each type into tiles, without a read of the device.

    Parameters
    ----------
    lengths : Tensor
        Shape ``(R,)``, integer, rows of each type, on the CPU or on `device`.
    num_rows : int
        Their sum.
    height : int
        Rows of a tile.
    device : torch.device
        Where the tiles are wanted.

    Returns
    -------
    Tiles
        As many as needed when the host knows the lengths, else as many as may be needed.
    """
    num_types = lengths.numel()
    bounds = pad(((lengths.long() + height - 1) // height).cumsum(0), (1, 0))
    on_host = lengths.device.type == "cpu"
    num_tiles = int(bounds[-1]) if on_host else num_rows // height + num_types
    nth = torch.arange(num_tiles, device=lengths.device)
    types = torch.searchsorted(bounds[1:], nth, right=True).clamp_(max=num_types - 1)
    return Tiles(height, copy_to_device(types, device), copy_to_device(bounds, device))


def place_rows(
    offsets: Tensor,
    num_rows: int,
    height: int,
    device: torch.device,
    types: Tensor | None = None,
) -> tuple[Layout, Tensor | None]:
    """Lay out rows that are sorted by type.

    Parameters
    ----------
    offsets : Tensor
        Shape ``(R + 1,)``, int64: first row of each type, then the number of rows; on the CPU or on
        `device`.
    num_rows : int
        M.
    height : int
        Rows of a tile, where there are tiles.
    device : torch.device
        Where the rows are.
    types : Tensor, optional
        Shape ``(M,)``, type of each row, where it is known. One that does not exist is an error of
        torch, where tiles are used; on CUDA it is a device-side assertion.

    Returns
    -------
    layout : Runs or Tiles
        The choice of :func:`use_tiles`.
    slots : Tensor or None
        Shape ``(M,)``, int64, the place of each row; None when rows stay where they are.
    """
    lengths = offsets.diff()
    if not use_tiles(device):
        return Runs(tuple(lengths.tolist())), None
    tiles = tile(lengths, num_rows, height, device)
    if offsets.device.type == "cpu" and not bool((lengths % height).any()):
        return tiles, None
    offsets = copy_to_device(offsets, device)
    rows = torch.arange(num_rows, device=device)
    if types is None:
        types = torch.searchsorted(offsets[1:], rows, right=True)
    moved = tiles.bounds[:-1] * height - offsets[:-1]
    return tiles, rows + moved.index_select(0, types)
