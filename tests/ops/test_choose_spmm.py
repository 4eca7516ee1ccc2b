"""Who sums neighbour rows: pure, and our kernel wherever nothing was measured."""

from __future__ import annotations

import itertools

import pytest
import torch

from dgl_flash.kernels import cusparse, tuned
from dgl_flash.kernels.layout import make_layout
from dgl_flash.ops import choose_spmm, rows, spmm_cusparse
from dgl_flash.ops.choose_spmm import CUSPARSE, KERNEL, Sum, spmm_backend
from dgl_flash.structure import Adjacency


def test_the_kernel_sums_where_nothing_was_measured():
    for width, itemsize, weights, scaled, repeatable in itertools.product(
        (1, 16, 64, 512), (2, 4, 8), (0, 1, 3), (False, True), (False, True)
    ):
        assert spmm_backend(Sum(width, itemsize, weights, scaled), repeatable=repeatable) == KERNEL


def test_the_kernel_sums_where_bits_have_to_repeat():
    for tuned_as in (None, KERNEL, CUSPARSE):
        assert spmm_backend(Sum(64, 4), repeatable=True, tuned=tuned_as) == KERNEL


@pytest.mark.parametrize(
    "call",
    [
        Sum(64, 4, scaled=True),
        Sum(64, 4, weights=2),
        Sum(0, 4),
        Sum(choose_spmm.MOST_COLUMNS + 1, 4),
    ],
    ids=str,
)
def test_what_a_product_with_a_matrix_cannot_be_is_ours(call):
    for tuned_as in (None, CUSPARSE):
        assert spmm_backend(call, repeatable=False, tuned=tuned_as) == KERNEL


def test_a_measurement_on_this_machine_decides():
    for weights, measured in itertools.product((0, 1), (KERNEL, CUSPARSE)):
        call = Sum(64, 4, weights)
        assert spmm_backend(call, repeatable=False, tuned=measured) == measured


@pytest.fixture
def adjacency(monkeypatch, tmp_path):
    """A small adjacency on an imaginary card, with nothing tuned."""
    from dgl_flash.structure import structure
    from tests.ops.common import skewed_graph

    monkeypatch.setenv("DGL_FLASH_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tuned, "_loaded", {})
    monkeypatch.setattr(tuned, "machine", lambda index: "Imaginary 9000")
    monkeypatch.setattr(cusparse, "why_unavailable", lambda: None)
    return structure(skewed_graph()).in_adj


def uses(adjacency, weight=None, *, width=64, dtype=torch.float32, scaled=False):
    return spmm_cusparse.uses_cusparse(adjacency, dtype, width, weight, scaled=scaled)


def test_what_was_tuned_is_used_for_the_calls_that_it_is_about(adjacency):
    weight = torch.zeros(adjacency.num_edges)
    for given, flags in ((None, {}), (weight, {"WEIGHT": 1})):
        adjacency.launches.clear()
        assert not uses(adjacency, given)
        key = rows.tuned_key("spmm", adjacency, torch.float32, 1, 64, flags)
        tuned.store(key, tuned.Tuned(None, "cusparse"))
        assert not uses(adjacency, given)  # settled before
        adjacency.launches.clear()
        assert uses(adjacency, given)
    assert uses(adjacency, weight[:, None, None])
    assert not uses(adjacency, scaled=True)
    assert not uses(adjacency, width=32)
    assert not uses(adjacency, dtype=torch.bfloat16)
    assert not uses(adjacency, torch.zeros(adjacency.num_edges, 4))


def test_without_the_library_the_kernel_sums(adjacency, monkeypatch):
    key = rows.tuned_key("spmm", adjacency, torch.float32, 1, 64, {})
    tuned.store(key, tuned.Tuned(None, "cusparse"))
    monkeypatch.setattr(cusparse, "why_unavailable", lambda: "gone")
    assert not uses(adjacency)


def test_deterministic_algorithms_are_not_cusparse(adjacency):
    key = rows.tuned_key("spmm", adjacency, torch.float32, 1, 64, {})
    tuned.store(key, tuned.Tuned(None, "cusparse"))
    assert uses(adjacency)
    for warn_only in (False, True):
        torch.use_deterministic_algorithms(True, warn_only=warn_only)
        try:
            assert not uses(adjacency)
        finally:
            torch.use_deterministic_algorithms(False)
    assert uses(adjacency)


@pytest.mark.usefixtures("adjacency")
def test_a_matrix_with_more_edges_than_entries_is_ours():
    rows_of, columns_of = torch.tensor([0, 0, 1, 0, 1]), torch.tensor([0, 1, 1, 1, 1])
    for num_cols, possible in ((2, False), (3, True)):
        crowded = Adjacency.from_coo(rows_of, columns_of, 2, num_cols)
        assert spmm_cusparse.can_run(crowded, Sum(64, 4)) is possible
        key = rows.tuned_key("spmm", crowded, torch.float32, 1, 64, {})
        tuned.store(key, tuned.Tuned(None, "cusparse"))
        assert uses(crowded) is possible


def test_the_choice_is_made_once(adjacency, monkeypatch):
    asked = []
    monkeypatch.setattr(spmm_cusparse, "spmm_backend", lambda *a, **k: asked.append(a) or KERNEL)
    for _ in range(3):
        uses(adjacency)
    assert len(asked) == 1


def test_a_kernel_takes_the_layout_that_was_tuned(adjacency):
    layout = make_layout(1, 64, 4, vectors=2, row_slots=1, unroll=2)
    kernel = rows.RowKernel("spmm.cu", "spmm", lambda *facts: "the rule")
    asked = adjacency, torch.float32, 1, 64
    assert kernel._layout(*asked, {}) == "the rule"
    tuned.store(rows.tuned_key("spmm", *asked, {}), tuned.Tuned(layout, "cusparse"))
    assert kernel._layout(*asked, {"WEIGHT": 0, "MEAN": True}) == layout
    assert kernel._layout(*asked, {"WEIGHT": 1}) == "the rule"
    assert kernel._layout(*asked, {"WEIGHT": 0, "EDGE_ROWS": True}) == "the rule"
    tuned.store(rows.tuned_key("spmm", *asked, {}), tuned.Tuned(None))
    assert kernel._layout(*asked, {}) == "the rule"


def test_nothing_tuned_means_no_look_at_the_rows(adjacency, monkeypatch):
    monkeypatch.setattr(rows, "tuned_key", lambda *_: pytest.fail("asked for the rows"))
    kernel = rows.RowKernel("spmm.cu", "spmm", lambda *facts: "the rule")
    assert kernel._layout(adjacency, torch.float32, 1, 64, {}) == "the rule"
    assert not uses(adjacency)
