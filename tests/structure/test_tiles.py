"""Tiles: how tall they are, which rows they hold."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.structure.tiles import (
    SHORTEST_TILE,
    TALLEST_TILE,
    Runs,
    Tiles,
    choose_height,
    place_rows,
    tile,
    use_tiles,
)

CPU, META = torch.device("cpu"), torch.device("meta")
LENGTHS = [[3, 0, 9, 8, 1], [0, 0], [16], [8, 0, 16], [5], []]
every_length = pytest.mark.parametrize("lengths", LENGTHS, ids=str)


@pytest.mark.parametrize(
    ("num_rows", "num_types", "num_in", "num_out", "expected"),
    [
        (5_000_000, 90, 64, 64, 2048),
        (3_000_000, 2_000, 64, 64, 256),
        (3_000_000, 2_000, 8, 8, 128),
        (1_000, 10, 64, 64, 64),
        (100, 2_000, 64, 64, SHORTEST_TILE),
        (10**9, 1, 512, 512, TALLEST_TILE),
        (0, 3, 4, 4, SHORTEST_TILE),
        (0, 0, 0, 0, SHORTEST_TILE),
    ],
)
def test_height(num_rows, num_types, num_in, num_out, expected):
    assert choose_height(num_rows, num_types, num_in, num_out) == expected


@pytest.mark.parametrize("num_rows", [10_000, 500_000, 5_000_000])
@pytest.mark.parametrize("num_types", [3, 90, 500])
@pytest.mark.parametrize("width", [8, 64, 256])
def test_the_height_is_about_the_best(num_rows, num_types, width):
    def moved(height):
        return num_types * height / 2 * 2 * width + num_rows / height * width**2

    heights = [2**power for power in range(3, 12)]
    best = min(moved(height) for height in heights)
    assert moved(choose_height(num_rows, num_types, width, width)) <= 1.1 * best


def rows_of(tiles, slots, lengths):
    """Type of each slot in use, as the tiles have it."""
    of_slot = tiles.types.repeat_interleave(tiles.height)
    return of_slot[slots].tolist(), [r for r, n in enumerate(lengths) for _ in range(n)]


@pytest.fixture
def tiled(monkeypatch):
    monkeypatch.setattr("dgl_flash.structure.tiles.use_tiles", lambda device: True)


@every_length
def test_every_row_lies_in_a_tile_of_its_type(lengths, tiled):
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    layout, slots = place_rows(offsets, sum(lengths), 8, CPU)
    if slots is None:  # nothing is padded
        assert all(length % 8 == 0 for length in lengths)
        slots = torch.arange(sum(lengths))
    found, expected = rows_of(layout, slots, lengths)
    assert found == expected
    assert slots.unique().numel() == slots.numel()
    assert (slots.diff() > 0).all()
    tiles_of_type = [-(-length // 8) for length in lengths]
    assert layout.bounds.diff().tolist() == tiles_of_type
    assert layout.num_slots == 8 * sum(tiles_of_type)


@every_length
def test_a_device_is_given_enough_tiles_unseen(lengths):
    """The host cannot count: the numbers it needs follow from sizes, which `meta` proves."""
    seen = tile(torch.tensor(lengths, dtype=torch.int64), sum(lengths), 8, CPU)
    unseen = tile(torch.tensor(lengths, dtype=torch.int64, device=META), sum(lengths), 8, META)
    assert seen.types.numel() <= unseen.types.numel() <= seen.types.numel() + len(lengths)


@every_length
def test_placing_reads_nothing_from_a_device(lengths):
    offsets = torch.tensor([0, *lengths], device=META)
    layout, slots = place_rows(offsets, sum(lengths), 8, META)
    assert isinstance(layout, Tiles)
    assert slots.shape == (sum(lengths),)


@pytest.mark.parametrize("wrong", [3, -1])
def test_a_type_that_does_not_exist_finds_no_place(wrong, tiled):
    """Where the host sees no index, torch refuses it; a row in the last tile would be worse."""
    types = torch.tensor([0, 0, 1, 2, wrong]).sort().values
    offsets = torch.searchsorted(types, torch.arange(4))
    with pytest.raises(IndexError):
        place_rows(offsets, 5, 8, CPU, types)


def test_the_cpu_has_runs():
    assert not use_tiles(CPU)
    layout, slots = place_rows(torch.tensor([0, 3, 3, 7]), 7, 8, CPU)
    assert (layout, slots) == (Runs((3, 0, 4)), None)
    assert layout.num_slots == 7
