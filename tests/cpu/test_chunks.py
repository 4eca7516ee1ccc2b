"""Pieces of edges cover them all, once, and give the same results whatever their size."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import cpu, reference
from dgl_flash.cpu import chunks
from dgl_flash.structure import structure
from tests.graphs import zoo

DEGREES = ([], [0], [3], [0, 0, 5, 0], [100], [1] * 40, [2, 90, 1, 1, 1, 60, 0], [0, 7, 7, 7, 0, 0])


@pytest.mark.parametrize("degrees", DEGREES, ids=lambda d: f"{len(d)} rows of {sum(d)}")
@pytest.mark.parametrize("step", [1, 3, 10, 1000])
@pytest.mark.parametrize("longest", [4, 1000])
def test_row_pieces_cover_all_edges_and_rows(degrees, step, longest, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", step)
    monkeypatch.setattr(chunks, "LONGEST_PIECE", longest)
    indptr = torch.tensor([0, *degrees], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    found = [None] * len(degrees)
    end = 0
    for positions, rows, offsets, goes_on in chunks.row_pieces(indptr, 1, 1):
        assert positions.start == end
        assert positions.stop - positions.start <= min(step, longest)
        end = positions.stop
        assert offsets.dtype == indptr.dtype
        lengths = offsets.diff().tolist()
        assert [offsets[0], offsets[-1]] == [0, positions.stop - positions.start]
        assert len(lengths) == rows.stop - rows.start
        for row, length in zip(range(rows.start, rows.stop), lengths, strict=True):
            assert (found[row] is not None) == (goes_on and row == rows.start)
            found[row] = length + (found[row] or 0)
    assert end == sum(degrees)
    assert found == degrees


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("ids", [[], [2, 0, 2, 1]], ids=len)
@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64], ids=str)
def test_gathered_rows_are_new_and_equal(ids, dtype, ids_dtype):
    rows = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).to(dtype)
    rows[1, 2] = float("nan")
    ids = torch.tensor(ids, dtype=ids_dtype)
    found = chunks.gather_rows(rows, ids)
    torch.testing.assert_close(found, rows[ids.long()], rtol=0, atol=0, equal_nan=True)
    before = rows.clone()
    found.zero_()
    torch.testing.assert_close(rows, before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("name", ["permuted_edges", "power_law", "isolated_rows", "bipartite_up"])
@pytest.mark.parametrize("chunk", [8, 400, 1 << 21])
@pytest.mark.parametrize("mean", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_same_whatever_the_chunk(name, chunk, mean, dtype, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
    struct = structure(zoo()[name](torch.int64))
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    src, dst = draw(struct.num_src, 2, 3), draw(struct.num_dst, 2, 3)
    edge = draw(struct.num_edges, 2, 3)
    scales = {"src_scale": draw(struct.num_src), "dst_scale": draw(struct.num_dst), "mean": mean}
    on_edges = {**scales, "src_scale": None, "on_edges": True}
    weights = [None, draw(struct.num_edges), draw(struct.num_edges, 2), edge.flatten(1)]
    calls = [("sum_rows", (src, weight), scales) for weight in weights]
    calls += [("sum_rows", (edge, weight), on_edges) for weight in weights]
    calls += [("dot_rows", (src, dst, heads), scales) for heads in (1, 2)]
    calls += [("dot_rows", (edge, dst, 2), on_edges)]
    calls += [("edge_map", ("mul", dst, weight), on_edges) for weight in weights[1:]]
    calls += [("edge_map", ("mul", dst, src), scales), ("edge_map", ("copy", dst, None), on_edges)]
    calls += [("edge_map", ("add", dst, weight), {"on_edges": True}) for weight in weights[1:]]
    for function, arguments, kwargs in calls:
        found = getattr(cpu, function)(struct, *arguments, **kwargs)
        wide = [a.double() if isinstance(a, torch.Tensor) else a for a in arguments]
        exact = getattr(reference, function)(struct, *wide, **kwargs)
        assert found.dtype == dtype
        tolerance = 20 * torch.finfo(dtype).eps * max(1, exact.abs().max().item())
        torch.testing.assert_close(found.double(), exact, rtol=0, atol=tolerance)
