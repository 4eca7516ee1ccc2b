"""The sweep over layouts: its candidates are valid and each kernel it will time has a key."""

from __future__ import annotations

import pytest
import torch

from benchmarks import sweep
from benchmarks.graphs import load
from dgl_flash.ops.candidates import candidates, label
from dgl_flash.ops.gradients import NO_SCALING
from dgl_flash.ops.rows import RowKernel
from tests.kernels.nvrtc import compile_for


@pytest.mark.parametrize(("op", "heads", "width"), [("gatv2", 2, 64), ("spmm", 1, 256)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_candidates_fill_a_warp_and_cover_the_head(op, heads, width, dtype):
    shapes = candidates(op, heads, width, dtype.itemsize)
    found = candidates(
        op, heads, width, dtype.itemsize, rows_per_slot=sweep.ROWS_PER_SLOT, chunks=[64, 128]
    )
    assert len(found) == len(set(found)) == 4 * len(shapes) > 50
    for layout in found:
        assert layout.covers(width, dtype.itemsize)
        assert layout.rows_per_slot in sweep.ROWS_PER_SLOT
        assert layout.chunk in (64, 128)
    assert len({label(layout) for layout in found}) == len(found)
    keys = set(sweep.keys(op, heads, width, dtype, torch.int32))
    assert len(keys) == len(shapes) * (3 if op == "gatv2" else 1)


def test_keys_have_the_flags_that_a_sum_asks_for(monkeypatch):
    asked = {}

    def spy(self, *operands, **flags):
        asked.update(flags)
        raise InterruptedError

    monkeypatch.setattr(RowKernel, "on", spy)
    struct = load("tiny", torch.device("cpu")).struct
    with pytest.raises(InterruptedError):
        sweep.spmm._launch(struct, torch.zeros(struct.num_src, 8), None, NO_SCALING)
    key = next(sweep.keys("spmm", 1, 8, torch.float32, torch.int32))
    # In the same order, or the disk cache would not know the source again.
    assert key.constants[-len(asked) :] == tuple(asked.items())


@pytest.mark.parametrize(("op", "heads", "width"), [("gatv2", 2, 64), ("spmm", 1, 256)])
def test_a_key_names_all_that_its_source_asks_for(op, heads, width):
    pytest.importorskip("cupy")
    entries = {}
    for key in sweep.keys(op, heads, width, torch.float32, torch.int32):
        entries.setdefault(key.entry, key)
    for key in entries.values():
        assert compile_for(key, 90).spill_bytes == 0


@pytest.mark.gpu
def test_every_pass_runs_with_a_layout_of_its_own():
    struct = load("tiny", torch.device("cuda")).struct
    for op, heads, width in (("gatv2", 2, 64), ("spmm", 1, 256)):
        layout = candidates(op, heads, width, 4, chunks=[128])[0]
        for run in sweep.passes(op, struct, heads, width, torch.float32).values():
            run(layout)
