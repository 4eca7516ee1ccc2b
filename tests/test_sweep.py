"""The sweep over layouts: its candidates are valid and each kernel it will time has a key."""

from __future__ import annotations

import pytest
import torch

from benchmarks import sweep
from benchmarks.graphs import load


@pytest.mark.parametrize(("op", "heads", "width"), [("gatv2", 2, 64), ("spmm", 1, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_candidates_fill_a_warp_and_cover_the_head(op, heads, width, dtype):
    found = sweep.candidates(op, heads, width, dtype.itemsize, [64, 128])
    assert len(found) == len(set(found)) > 20
    for layout, per_slot, chunk in found:
        lanes = layout.head_lanes * layout.heads * layout.edge_slots * layout.row_slots
        assert lanes == 32
        assert layout.head_lanes * layout.vectors * layout.vector * layout.slices >= width
        assert per_slot >= 1
        assert chunk in (64, 128)
    keys = set(sweep.keys(op, heads, width, dtype, torch.int32))
    layouts = {candidate.layout for candidate in found}
    assert len(keys) == len(layouts) * (3 if op == "gatv2" else 1)


@pytest.mark.gpu
def test_every_pass_runs_with_a_layout_of_its_own():
    struct = load("tiny", torch.device("cuda")).struct
    for op, heads, width in (("gatv2", 2, 64), ("spmm", 1, 256)):
        layout = sweep.candidates(op, heads, width, 4, [128])[0].layout
        for run in sweep.passes(op, struct, heads, width, torch.float32).values():
            run(layout)
