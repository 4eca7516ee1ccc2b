"""The choice of a layout: pure, total, and what was measured."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import pytest

from dgl_flash.ops import choose, choose_attention
from dgl_flash.ops.rows import (
    LARGEST_CHUNK,
    MOST_PIECES,
    SHORTEST_CHUNK,
    choose_chunk,
    choose_rows_per_slot,
)
from dgl_flash.structure import structure

DIRECTIONS = ("forward", "backward_dst", "backward_src")


@dataclass(frozen=True)
class Facts:
    num_rows: int
    num_edges: int
    max_degree: int


ROAD = Facts(1_000_000, 3_996_000, 4)
ARXIV = Facts(169_343, 1_166_243, 13_155)
WEB = Facts(1_000_000, 16_000_000, 400_000)
POKEC = Facts(1_632_803, 30_622_564, 8_763)
PROTEINS = Facts(132_480, 78_000_000, 700)
TOLOKERS = Facts(11_758, 1_038_000, 2_138)
NOTHING = Facts(0, 0, 0)
GRAPHS = (ROAD, ARXIV, WEB, POKEC, PROTEINS, TOLOKERS, NOTHING)
ATTENTION = (
    choose_attention.dot_attention_layout,
    choose_attention.gat_layout,
    choose_attention.gatv2_layout,
)
SUMS = (choose.spmm_layout, choose.scaled_layout, choose.weighted_layout)


def layouts(num_heads, head_dim, itemsize):
    for graph in GRAPHS:
        for direction, fit in itertools.product(DIRECTIONS, ATTENTION):
            yield fit(direction, graph, num_heads, head_dim, itemsize)
        for sum_layout in SUMS:
            yield sum_layout(graph, num_heads, head_dim, itemsize)
        yield choose.sddmm_layout(graph, num_heads, head_dim, itemsize)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
def test_every_width_is_covered_exactly(itemsize):
    widths = (1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 256, 511, 512)
    for num_heads, head_dim in itertools.product((1, 2, 3, 5, 8, 64), widths):
        for layout in layouts(num_heads, head_dim, itemsize):
            lanes = layout.head_lanes * layout.heads * layout.edge_slots * layout.row_slots
            assert lanes == 32
            assert head_dim % layout.vector == 0
            assert layout.vector * itemsize <= 16
            covered = layout.slices * layout.loops * layout.vectors * layout.head_lanes
            assert covered * layout.vector >= head_dim
            assert layout.grid_y(num_heads) * layout.heads >= num_heads
            assert layout.unroll >= 1
            assert layout.covers(head_dim, itemsize)


@pytest.mark.parametrize("num_heads", [1, 2, 3, 7, 8, 33, 64])
def test_edge_softmax_fills_a_warp(num_heads):
    for graph in GRAPHS:
        layout = choose.edge_softmax_layout(graph, num_heads, 1, 4)
        assert layout.heads * layout.edge_slots * layout.row_slots == 32


def test_wide_features_are_shared_over_blocks_or_walked():
    assert choose.spmm_layout(WEB, 1, 1433, 4).slices > 1
    assert choose.sddmm_layout(WEB, 1, 2048, 4).loops > 1
    assert choose_attention.gatv2_layout("forward", WEB, 1, 512, 4).slices == 1


@pytest.mark.parametrize(
    ("graph", "plain", "scaled", "weighted"),
    [
        (ROAD, 2, 1, 1),
        (ARXIV, 2, 2, 1),
        (WEB, 2, 2, 1),
        (POKEC, 2, 1, 1),
        (PROTEINS, 1, 1, 1),
        (TOLOKERS, 4, 4, 4),
    ],
    ids=["road", "arxiv", "web", "pokec", "proteins", "tolokers"],
)
def test_what_is_read_once_an_edge_decides_how_long_rows_are_shared_out(
    graph, plain, scaled, weighted
):
    slices = [sum_layout(graph, 1, 256, 4).slices for sum_layout in SUMS]
    assert slices == [plain, scaled, weighted]


def test_only_short_and_even_rows_share_a_warp():
    for fit in ATTENTION[1:]:
        assert fit("forward", ROAD, 2, 64, 4).row_slots == 2
    assert choose_attention.gatv2_layout("forward", ARXIV, 2, 64, 4).row_slots == 1
    assert choose_attention.gatv2_layout("forward", WEB, 2, 64, 4).row_slots == 1


def test_the_graphs_of_the_tests_meet_every_rule():
    from tests.ops.common import LAYOUT_GRAPHS, skewed_graph

    found = {}
    for name, make in {**LAYOUT_GRAPHS, "skewed": skewed_graph}.items():
        adjacency = structure(make()).in_adj
        found[name] = [
            choose_attention.gatv2_layout(direction, adjacency, 2, 64, itemsize)
            for direction in DIRECTIONS
            for itemsize in (2, 4)
        ]
    assert len({tuple(layouts) for layouts in found.values()}) == len(found)


def test_registers_are_capped_only_where_they_suffice():
    assert choose_attention.gatv2_layout("forward", WEB, 2, 64, 4).min_blocks == 16
    assert choose_attention.gatv2_layout("forward", WEB, 1, 256, 4).min_blocks == 1
    assert choose_attention.gatv2_layout("forward", WEB, 1, 512, 4).min_blocks == 1
    assert choose_attention.gatv2_layout("forward", WEB, 1, 512, 8).min_blocks == 1


def test_a_lane_owns_more_of_even_and_of_dense_rows():
    owned = {
        (ROAD, 4): (8, 8, 8),
        (WEB, 4): (4, 4, 4),
        (TOLOKERS, 4): (8, 8, 8),
        (ARXIV, 2): (4, 4, 4),
        (WEB, 2): (8, 8, 8),
        (TOLOKERS, 2): (16, 16, 8),
        (ROAD, 2): (16, 16, 8),
    }
    for (facts, itemsize), elements in owned.items():
        for direction, expected in zip(DIRECTIONS, elements, strict=True):
            layout = choose_attention.gatv2_layout(direction, facts, 2, 64, itemsize)
            assert layout.vectors * layout.vector == expected


def test_four_lanes_share_a_head_in_16_bits_wherever_it_is_wide_enough():
    for graph, (head_dim, lanes) in itertools.product(
        GRAPHS, {32: 4, 64: 4, 128: 4, 16: 2, 8: 1}.items()
    ):
        for fit, direction in itertools.product(ATTENTION, DIRECTIONS):
            layout = fit(direction, graph, 4, head_dim, 2)
            assert layout.head_lanes >= lanes
            assert layout.vector >= 4
            assert layout.unroll % 2 == 0


def test_rows_are_loaded_ahead_in_the_pass_by_destination():
    for itemsize in (2, 4, 8):
        assert choose_attention.gatv2_layout("backward_dst", WEB, 2, 64, itemsize).ahead
        assert not choose_attention.gatv2_layout("backward_src", WEB, 2, 64, itemsize).ahead
    assert choose_attention.gatv2_layout("forward", WEB, 2, 64, 2).ahead
    assert not choose_attention.gatv2_layout("forward", WEB, 2, 64, 4).ahead
    assert not choose.spmm_layout(WEB, 1, 256, 4).ahead


def test_vectors_of_a_dot_product():
    wanted = {4: (1, 2, 4), 2: (1, 2, 2)}
    for itemsize, vectors in wanted.items():
        for direction, expected in zip(DIRECTIONS, vectors, strict=True):
            layout = choose_attention.dot_attention_layout(direction, WEB, 4, 128, itemsize)
            assert layout.vectors == expected
    # Rows of 512 numbers in 32 bits are shared out over blocks, a head each.
    layout = choose_attention.dot_attention_layout("forward", WEB, 4, 128, 4)
    assert (layout.heads, layout.grid_y(4), layout.unroll) == (1, 4, 4)


def test_a_small_graph_is_one_launch():
    assert choose_chunk(10_600, 132) * 2 > 168  # cora's longest row is not cut


def test_even_rows_of_a_large_graph_are_not_cut():
    assert choose_chunk(78_300_627, 132) * 2 > 640  # proteins: 132,480 rows of up to 640 edges


def test_sums_over_few_long_rows_do_not_cut_most_of_them():
    assert choose_chunk(ARXIV.num_edges, 132) == choose_chunk(TOLOKERS.num_edges, 132) == 64
    assert {sum_layout(TOLOKERS, 1, 256, 4).chunk for sum_layout in SUMS} == {128}
    dense = Facts(10_000, 80_000_000, 9_999)  # they would be cut anyway: as seldom as can be
    assert {sum_layout(g, 1, 256, 4).chunk for g in (ARXIV, dense) for sum_layout in SUMS} == {0}


def test_a_row_of_millions_is_cut_into_few_pieces():
    """Its merge walks the pieces one after the other."""
    for num_edges in (1_000_000, 20_000_000, 500_000_000):
        usual = choose_chunk(num_edges, 132)
        for longest in (0, 1_000, usual * MOST_PIECES):
            assert choose_chunk(num_edges, 132, longest) == usual
        assert choose_chunk(num_edges, 132, usual * MOST_PIECES + 1) == 2 * usual
    assert choose_chunk(4_000_000, 132, 4_000_000) == 1024  # one segment of a read-out
    for longest in (10**6, 10**7, 10**8, 10**9):
        chunk = choose_chunk(10**9, 132, longest)
        assert chunk & (chunk - 1) == 0
        assert longest <= MOST_PIECES * chunk or chunk == LARGEST_CHUNK


def test_the_place_in_a_row_that_is_not_cut_fits_16_bits():
    """As pairs of 16-bit numbers count it."""
    assert 2 * LARGEST_CHUNK < 2**16 - 1  # that is no place
    assert choose_chunk(2**40, 1, 2**40) == LARGEST_CHUNK
    loads = [10**exponent for exponent in range(13)]
    assert min(choose_chunk(num_edges, 132) for num_edges in loads) == SHORTEST_CHUNK


@pytest.mark.parametrize("num_rows", [0, 1, 100, 10_000, 10_000_000])
def test_rows_per_slot_grow_once_the_card_is_full(num_rows):
    few = choose_rows_per_slot(num_rows, 4, 132)
    assert 1 <= few <= choose_rows_per_slot(num_rows * 10, 4, 132) <= 8
