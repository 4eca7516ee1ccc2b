"""Layouts of maxima, minima and statistics: pure, total, and what was measured."""

from __future__ import annotations

import itertools

import pytest

from dgl_flash.kernels.layout import VECTOR_BYTES, WARP
from dgl_flash.ops import choose_extremum
from dgl_flash.ops.choose_extremum import (
    COLLECT_CHUNK,
    LIST_BYTES,
    LIST_CHUNK,
    LIST_WIDTH,
    LISTED_ROWS,
    backward_layout,
    collect_layout,
    edges_layout,
    extremum_layout,
    lists_layout,
    message_layout,
    statistics_backward_layout,
    statistics_layout,
    wants_lists,
)
from tests.ops.test_choose import ARXIV, GRAPHS, NOTHING, POKEC, PROTEINS, ROAD, TOLOKERS, Facts

PRODUCTS = Facts(2_449_029, 123_718_280, 17_481)
EVERY = (*GRAPHS, PRODUCTS)
NAMES = {
    **{ARXIV: "arxiv", PRODUCTS: "products", PROTEINS: "proteins", ROAD: "road"},
    **{TOLOKERS: "tolokers", POKEC: "pokec", NOTHING: "nothing"},
}
WIDTHS = (1, 2, 3, 7, 8, 31, 32, 33, 64, 100, 256, 511, 512, 1024, 1433)
ITEMSIZES = (2, 4, 8)
SHARED = 48 * 1024  # bytes of a block's shared memory that need no permission
# The rules; those of edges are asked about several heads.
BY_NODE = (
    *(extremum_layout, backward_layout, lists_layout),
    *(statistics_layout, statistics_backward_layout),
)
BY_EDGE = (message_layout, edges_layout)

every_graph = pytest.mark.parametrize("facts", EVERY, ids=lambda facts: NAMES.get(facts, "web"))
every_itemsize = pytest.mark.parametrize("itemsize", ITEMSIZES)


def check_covers(layout, num_heads, head_dim, itemsize):
    lanes = layout.head_lanes * layout.heads * layout.edge_slots * layout.row_slots
    assert lanes == WARP
    assert head_dim % layout.vector == 0
    assert layout.vector * itemsize <= VECTOR_BYTES
    assert layout.slice_width * layout.slices * layout.loops >= head_dim
    assert layout.slice_width * (layout.slices * layout.loops - 1) < head_dim
    assert layout.grid_y(num_heads) * layout.heads >= num_heads
    assert layout.unroll >= 1
    assert layout.unroll & (layout.unroll - 1) == 0  # edges in flight are shared out evenly
    assert layout.covers(head_dim, itemsize)


@every_graph
@every_itemsize
def test_every_width_is_covered_exactly(facts, itemsize):
    for width in WIDTHS:
        for fit in BY_NODE:
            check_covers(fit(facts, 1, width, itemsize), 1, width, itemsize)
        for num_heads, fit in itertools.product((1, 2, 3, 8, 64), BY_EDGE):
            check_covers(fit(facts, num_heads, width, itemsize), num_heads, width, itemsize)
        for adjacency in EVERY:
            check_covers(collect_layout(facts, adjacency, width, itemsize), 1, width, itemsize)


@every_graph
@every_itemsize
def test_what_a_kernel_takes_for_granted(facts, itemsize):
    """The assertions of the sources: who walks slices, and who needs all of a head."""
    for width in WIDTHS:
        for fit in BY_NODE:
            assert fit(facts, 1, width, itemsize).loops == 1
        for num_heads in (1, 3):
            assert message_layout(facts, num_heads, width, itemsize).loops == 1
            assert edges_layout(facts, num_heads, width, itemsize).slices == 1


@every_graph
@every_itemsize
def test_both_steps_over_lists_cut_a_row_alike(facts, itemsize):
    """The second step finds a list by the slice of the first."""
    for width in WIDTHS:
        sort = lists_layout(facts, 1, width, itemsize)
        assert (sort.head_lanes, sort.heads, sort.edge_slots, sort.row_slots) == (WARP, 1, 1, 1)
        assert sort.slice_width <= min(LIST_WIDTH, LIST_BYTES // itemsize)
        assert sort.slice_width < 2**16  # a column, and either end of a list, take 16 bits
        for adjacency in EVERY:
            collect = collect_layout(facts, adjacency, width, itemsize)
            assert (collect.slice_width, collect.slices) == (sort.slice_width, sort.slices)
            assert collect.head_lanes * collect.edge_slots == WARP
            assert (collect.heads, collect.row_slots, collect.loops) == (1, 1, 1)
            assert WARP % (collect.unroll * collect.edge_slots) == 0  # lists in a queue


def test_places_and_lists_fit_what_holds_them():
    assert 2 * LIST_CHUNK < 2**16
    assert {lists_layout(facts, 1, 64, 4).chunk for facts in EVERY} == {LIST_CHUNK}
    for width, itemsize in itertools.product(WIDTHS, ITEMSIZES):
        sort = lists_layout(PRODUCTS, 1, width, itemsize)
        counts, entries = 4 * 2 * LIST_CHUNK, 2 * itemsize * sort.slice_width
        assert sort.warps * (counts + entries) <= SHARED
        collect = collect_layout(PRODUCTS, PRODUCTS, width, itemsize)
        sums, queue = max(itemsize, 4) * collect.slice_width, 32 * 16
        assert collect.warps * (sums + queue) <= SHARED


@pytest.mark.parametrize(
    ("facts", "listed"),
    [
        *((ARXIV, False), (ROAD, False), (NOTHING, False)),
        *((PRODUCTS, True), (PROTEINS, True), (TOLOKERS, True), (POKEC, True)),
        (Facts(1000, 1000 * LISTED_ROWS, 9_000), True),
        (Facts(1000, 1000 * LISTED_ROWS - 1, 9_000), False),
    ],
    ids=lambda value: NAMES.get(value, str(value)),
)
def test_long_rows_are_listed(facts, listed):
    assert wants_lists(facts) is listed


@every_itemsize
@pytest.mark.parametrize("width", [8, 16, 32])
def test_only_short_even_rows_share_a_warp_one_by_one(width, itemsize):
    """Elsewhere lanes that are left over take more edges of a row first."""
    road = extremum_layout(ROAD, 1, width, itemsize)
    assert road.edge_slots == 1
    assert road.row_slots == WARP // road.head_lanes > 1
    assert backward_layout(ROAD, 1, width, itemsize).edge_slots == 1
    for facts in (ARXIV, POKEC, PRODUCTS, PROTEINS, TOLOKERS):
        assert extremum_layout(facts, 1, width, itemsize).edge_slots > 1
        assert backward_layout(facts, 1, width, itemsize).row_slots == 1
    assert edges_layout(ROAD, 1, width, itemsize).row_slots == 2
    assert edges_layout(ARXIV, 1, width, itemsize).row_slots == 1
    assert statistics_layout(ROAD, 1, width, 2).row_slots == 2
    assert statistics_layout(ROAD, 1, width, 4).row_slots == 1


def test_a_lane_keeps_one_vector_but_of_long_or_short_rows():
    """Value and place of an element take registers: one vector, where that fills a warp."""
    vectors = {
        **{ARXIV: 1, POKEC: 1, PRODUCTS: 1, TOLOKERS: 1},
        **{ROAD: 2, PROTEINS: 2},  # what is done once a row, or once an edge, shows
    }
    for facts, expected in vectors.items():
        assert extremum_layout(facts, 1, 256, 4).vectors == expected
        assert extremum_layout(facts, 1, 8, 4).vectors == 1
    for facts in EVERY:
        assert statistics_layout(facts, 1, 256, 4).vectors == 1


def test_wide_rows_are_shared_out_over_blocks():
    for facts in EVERY:
        for fit in (extremum_layout, backward_layout, statistics_layout, lists_layout):
            assert fit(facts, 1, 1433, 4).slices > 1
        assert edges_layout(facts, 1, 2048, 4).loops > 1


def test_more_edges_are_in_flight_where_a_warp_owns_a_row():
    assert extremum_layout(POKEC, 1, 128, 4).unroll == 8
    assert extremum_layout(PRODUCTS, 1, 512, 4).unroll == 4  # slices come soon enough
    assert extremum_layout(PRODUCTS, 1, 512, 2).unroll == 8
    assert extremum_layout(ARXIV, 1, 128, 4).unroll == 4  # rows end before
    assert extremum_layout(POKEC, 1, 16, 4).unroll == 4


def test_few_long_rows_are_shared_out_finely():
    tolokers = extremum_layout(TOLOKERS, 1, 256, 4)
    assert (tolokers.rows_per_slot, tolokers.chunk) == (1, 128)
    assert tolokers.head_lanes == WARP // 2
    dense = Facts(10_000, 80_000_000, 9_999)  # they would be cut anyway: as seldom as can be
    assert extremum_layout(dense, 1, 256, 4).chunk == 0
    assert {extremum_layout(g, 1, 256, 4).chunk for g in (ARXIV, PRODUCTS, PROTEINS)} == {0}


def test_as_many_lanes_read_a_list_as_it_has_numbers():
    """A row of 256 has 256 winners: of each edge of proteins less than one."""
    sides = {facts: collect_layout(facts, facts, 256, 4).edge_slots for facts in EVERY}
    assert sides[PROTEINS] == sides[TOLOKERS] == 4
    assert sides[PRODUCTS] == 2
    assert sides[ARXIV] == sides[ROAD] == 1
    assert collect_layout(PROTEINS, PROTEINS, 8, 4).edge_slots == 4
    assert collect_layout(POKEC, TOLOKERS, 64, 4).chunk == COLLECT_CHUNK  # few sources
    assert collect_layout(TOLOKERS, POKEC, 64, 4).chunk == 0


def test_statistics_take_as_many_edges_together_as_rows_have():
    """What is done once a group shows."""
    for itemsize in ITEMSIZES:
        unroll = {facts: statistics_layout(facts, 1, 128, itemsize).unroll for facts in EVERY}
        assert unroll[ROAD] == 2
        assert {unroll[facts] for facts in (ARXIV, POKEC, PRODUCTS, PROTEINS, TOLOKERS)} == {4}
        for facts in EVERY:
            assert not statistics_layout(facts, 1, 128, itemsize).ahead
            assert not statistics_backward_layout(facts, 1, 128, itemsize).ahead


def test_the_graphs_of_the_tests_meet_every_rule():
    """Of maxima, gradients by bytes and by lists, and statistics."""
    from dgl_flash.structure import structure
    from tests.ops.common import LAYOUT_GRAPHS, skewed_graph

    found = {}
    for name, make in {**LAYOUT_GRAPHS, "skewed": skewed_graph}.items():
        struct = structure(make())
        found[name] = (
            wants_lists(struct.in_adj),
            *(
                fit(struct.in_adj, 1, 256, itemsize)
                for fit in (choose_extremum.extremum_layout, statistics_layout)
                for itemsize in (2, 4)
            ),
        )
    assert len(set(found.values())) == len(found)
    assert {listed for listed, *_ in found.values()} == {False, True}
