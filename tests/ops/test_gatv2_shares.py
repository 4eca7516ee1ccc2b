"""Where the shares of the attention vector's gradient lie, with kernels that only add numbers up.

Small graphs keep the shares of both passes, large ones make room in between. Here both layouts run
on a CPU: stand-ins for the kernels write known shares to the addresses that they are given.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.ops import attention_kernels
from dgl_flash.ops.edge_terms import NO_TERMS
from dgl_flash.ops.gatv2 import KERNELS
from dgl_flash.structure import structure
from tests.graphs import small_zoo
from tests.ops.common import check_twins, draw, every_dtype, skewed_graph

HEADS, WIDTH = 2, 3
ROW = HEADS * WIDTH


def rows_at(address: int, count: int) -> np.ndarray:
    """The memory of ``count`` shares."""
    buffer = (ctypes.c_float * (count * ROW)).from_address(address)
    return np.ctypeslib.as_array(buffer).reshape(count, ROW)


class StandIn:
    """A launch whose blocks, and whose long rows, each leave one share."""

    num_chunks = 0

    def __init__(self, blocks: int, num_long: int, first: int) -> None:
        self.grid, self.num_long, self.first = (blocks, 1), num_long, first
        self.written = np.zeros(ROW)

    def _write(self, address: int, count: int) -> None:
        values = np.arange(count * ROW, dtype=np.float32).reshape(count, ROW) + self.first
        rows_at(address, count)[:] = values
        self.written = self.written + values.sum(0)

    def __call__(self, inputs: tuple[object, ...], outputs: tuple[int, ...]) -> None:
        self._write(outputs[-1], self.grid[0])

    def merge(self, entry: str, *_: object, outputs: tuple, **__: object) -> None:
        if self.num_long:
            self._write(outputs[-1], self.num_long)

    def merge_shares(self, dtype: torch.dtype, part: int, count: int, out: object) -> None:
        total = rows_at(part, count).sum(0)
        address = out.data_ptr() if isinstance(out, torch.Tensor) else out
        rows_at(address, 1)[0] = total


@pytest.mark.parametrize("limit", [0, 2**22], ids=["many", "few"])
@pytest.mark.parametrize(
    ("dst_blocks", "num_long", "src_blocks"), [(5, 0, 7), (9, 4, 2), (1, 0, 1), (3, 1, 40)]
)
def test_every_share_is_added_once(monkeypatch, limit, dst_blocks, num_long, src_blocks):
    by_dst = StandIn(dst_blocks, num_long, first=1)
    by_src = StandIn(src_blocks, 0, first=1000)
    monkeypatch.setattr(attention_kernels, "_bind_backward", lambda *_: (by_dst, by_src))
    monkeypatch.setattr(attention_kernels, "FEW_SHARES_BYTES", limit)
    struct = structure(small_zoo()["path"](torch.int64))
    feat = torch.zeros(struct.num_src, HEADS, WIDTH)
    attn, lse = torch.zeros(HEADS, WIDTH), torch.zeros(struct.num_dst, HEADS)
    given = KERNELS, struct, (feat, feat, attn), 0.2, NO_TERMS, lse, feat, None
    *_, grad_attn = attention_kernels.backward(*given, wanted=(False, False, True, True, True))
    expected = by_dst.written + by_src.written
    np.testing.assert_array_equal(grad_attn.numpy().reshape(ROW), expected.astype(np.float32))


@pytest.mark.gpu
@every_dtype
@pytest.mark.parametrize("limit", [0, 2**22], ids=["many", "few"])
def test_the_kernels_gradient_either_way(monkeypatch, limit, dtype):
    monkeypatch.setattr(attention_kernels, "FEW_SHARES_BYTES", limit)
    device = torch.device("cuda")
    kind = {"dtype": dtype, "device": device}
    check_twins(
        ops.gatv2,
        reference.gatv2,
        skewed_graph(),
        device,
        feat_src=draw(300, 2, 64, seed=1, **kind),
        feat_dst=draw(300, 2, 64, seed=2, **kind),
        attn=draw(2, 64, seed=3, **kind) / 8,
    )
