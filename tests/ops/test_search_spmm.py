"""The search for the fastest sum: on a clock that lies on purpose, and on a GPU."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from dgl_flash.kernels import tuned
from dgl_flash.ops import search_spmm
from dgl_flash.ops.candidates import candidates, label
from dgl_flash.ops.choose import spmm_layout
from dgl_flash.ops.search_spmm import Measured, Pass, TunedPass, search
from tests.ops.common import on, skewed_graph
from tests.ops.test_choose import ARXIV

LAYOUTS = candidates("spmm", 1, 64, 4)
RULE = spmm_layout(ARXIV, 1, 64, 4)


@pytest.mark.parametrize("itemsize", [2, 4, 8])
@pytest.mark.parametrize(
    ("heads", "head_dim"), [(1, 1), (1, 16), (1, 64), (1, 255), (1, 256), (1, 4096), (8, 8), (3, 7)]
)
def test_candidates_are_few_and_fit(heads, head_dim, itemsize):
    found = candidates("spmm", heads, head_dim, itemsize)
    assert len(set(found)) == len(found)
    assert 4 <= len(found) <= 24
    for layout in found:
        assert layout.covers(head_dim, itemsize)
        assert layout.grid_y(heads) * layout.heads >= heads * layout.slices


def test_the_rule_is_measured_like_a_candidate():
    key = tuned.Key("card", "spmm", 1, 64, torch.float32, torch.int32, tuned.Profile(1, 1, 1, 1))
    for rule in (dataclasses.replace(RULE, min_blocks=3), LAYOUTS[5]):
        found = search_spmm.layouts_of(Pass("forward", key, rule, None, None))
        assert found[0] == rule
        assert set(found) == {rule, *LAYOUTS}
        assert len(found) == len(set(found))


def searched(ms_of, *, library_ms=None, layouts=LAYOUTS):
    """Search where ``ms_of(layout)`` is what the clock shows."""
    shown, counts = [], []

    def run(layout):
        shown.append(ms_of(layout))

    def measure(call, repeats):
        call()
        counts.append(repeats)
        return shown[-1]

    steps = []
    library = None if library_ms is None else lambda: shown.append(library_ms)
    todo = Pass("forward", None, RULE, run, library)
    found = search(todo, layouts, measure, 20, lambda: steps.append(1))
    return found, counts, steps


def test_the_fastest_shape_is_found_with_its_sizes():
    best = dataclasses.replace(LAYOUTS[7], rows_per_slot=4, chunk=512)

    def ms_of(layout):
        shape = dataclasses.replace(layout, rows_per_slot=0, chunk=0)
        return 0.5 if layout == best else 0.9 if shape == LAYOUTS[7] else 1.0

    found, counts, steps = searched(ms_of, library_ms=0.8)
    assert found.chosen == Measured(label(best), 0.5, best)
    assert found.kernel == found.chosen
    assert found.backend == "kernel"
    assert found.measured[0] == found.chosen
    assert found.find("rule").ms == 1.0
    assert found.find("cusparse").ms == 0.8
    assert found.find("abacus") is None
    assert counts.count(20) == search_spmm.FINALISTS + 2
    assert set(counts) == {20, search_spmm.SCREENING}
    assert len(steps) == len(counts)
    assert len(LAYOUTS) + len(steps) == search_spmm.count_steps(len(LAYOUTS))


def test_the_rule_is_kept_unless_it_is_clearly_beaten():
    found, _, _ = searched(lambda layout: 1.0 if layout == RULE else 0.99)
    assert found.chosen == Measured("rule", 1.0)
    found, _, _ = searched(lambda layout: 1.0 if layout == RULE else 0.97)
    assert found.chosen.layout is not None


def test_cusparse_is_chosen_only_if_it_is_clearly_faster():
    found, _, _ = searched(lambda layout: 1.0, library_ms=0.99)
    assert found.backend == "kernel"
    found, _, _ = searched(lambda layout: 1.0, library_ms=0.9)
    assert found.backend == "cusparse"
    assert found.kernel == Measured("rule", 1.0)  # its layout is for what cuSPARSE cannot do


def test_a_search_does_without_cusparse():
    found, _, _ = searched(lambda layout: 1.0)
    assert found.find("cusparse") is None
    assert found.backend == "kernel"


def test_a_pass_is_sorted_by_nobody_else():
    found = TunedPass("forward", (Measured("cusparse", 0.5), Measured("rule", 1.0)), tried=2)
    assert found.chosen.name == "cusparse"


@pytest.mark.gpu
@pytest.mark.parametrize("heads", [0, 1, 4, 16])
@pytest.mark.parametrize("mean", [False, True])
def test_every_way_gives_the_same_sum(heads, mean):
    struct = on(torch.device("cuda"), skewed_graph())
    for todo in search_spmm.passes_of(
        struct, 16, torch.float64, mean=mean, edge_weight_heads=heads
    ):
        assert (todo.library is None) == (mean or heads > 1)
        expected = todo.run(todo.rule)
        for shape in search_spmm.layouts_of(todo)[::3]:
            for sizes in ({}, {"rows_per_slot": 8, "chunk": 64}, {"rows_per_slot": 1}):
                found = todo.run(dataclasses.replace(shape, **sizes))
                torch.testing.assert_close(found, expected)
        if todo.library is not None:
            torch.testing.assert_close(todo.library(), expected)


@pytest.mark.gpu
def test_all_layouts_are_bitwise_repeatable():
    struct = on(torch.device("cuda"), skewed_graph())
    for todo in search_spmm.passes_of(struct, 48, torch.float32):
        for shape in search_spmm.layouts_of(todo)[::3]:
            assert torch.equal(todo.run(shape), todo.run(shape))


@pytest.mark.gpu
def test_the_key_of_a_pass_is_the_one_that_a_call_looks_up(monkeypatch):
    from dgl_flash import ops
    from dgl_flash.ops import rows

    struct = on(torch.device("cuda"), skewed_graph())
    asked = []
    monkeypatch.setattr(tuned, "is_empty", lambda: False)
    monkeypatch.setattr(tuned, "find", lambda key: asked.append(key))
    for heads in (0, 1, 4, 16):
        keys = {
            todo.key
            for todo in search_spmm.passes_of(struct, 16, torch.float32, edge_weight_heads=heads)
        }
        asked.clear()
        struct.in_adj.launches.clear()
        struct.out_adj.launches.clear()
        feat = torch.zeros(struct.num_src, 16, device="cuda", requires_grad=True)
        shape = [struct.num_edges, *([heads] if heads > 1 else [])]
        weight = torch.zeros(shape, device="cuda") if heads else None
        rowed = feat.view(-1, max(heads, 1), 16 // max(heads, 1)) if heads < 16 else feat
        ops.spmm(struct, rowed, weight).sum().backward()
        assert set(asked) == keys, heads
    assert rows.TUNED_FLAGS == ("EDGE_ROWS", "SRC_SCALE", "WEIGHT")
