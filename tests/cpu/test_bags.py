"""Bags hold each edge once, and long rows are cut into pieces that are added up again."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.cpu import bags, chunks
from dgl_flash.structure import structure
from tests.graphs import zoo
from tests.ops.common import skewed_graph


@pytest.mark.parametrize("cut", [(3, 2), (40, 7), (512, 128)], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["skewed", "power_law", "isolated_rows", "regular"])
def test_sums_whatever_the_pieces(name, weighted, cut, monkeypatch):
    monkeypatch.setattr(bags, "LONG_ROW", cut[0])
    monkeypatch.setattr(bags, "PIECE", cut[1])
    struct = structure(skewed_graph() if name == "skewed" else zoo()[name](torch.int64))
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(struct.num_src, 5, generator=generator)
    weight = torch.rand(struct.num_edges, generator=generator) if weighted else None
    adj = struct.in_adj
    found = bags.bags(adj, on_edges=False).sum(rows, weight)
    terms = rows[adj.indices.long()].double()
    if weighted:
        terms = terms * weight.unsqueeze(1)
    expected = torch.zeros(adj.num_rows, 5, dtype=torch.float64)
    expected.index_add_(0, adj.rows().long(), terms)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
    assert bags.bags(adj, on_edges=False) is bags.bags(adj, on_edges=False)
    order = torch.arange(adj.num_edges) if adj.eids is None else adj.eids.long()
    of_edges = terms.float().new_empty(terms.shape).index_copy_(0, order, terms.float())
    found = bags.bags(adj, on_edges=True).sum(of_edges, None)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_a_long_row_keeps_its_digits():
    struct = structure(zoo()["hub"](torch.int64))
    adj = struct.in_adj
    ones = torch.full((struct.num_src, 1), 0.1)
    exact = adj.degrees().double() * ones[0].double()
    found = bags.bags(adj, on_edges=False).sum(ones, None).flatten().double()
    assert ((found - exact).abs() <= 1e-5 * exact).all()  # 1e-4 without pieces


@pytest.mark.parametrize("cut", [(3, 2), (512, 128)], ids=str)
@pytest.mark.parametrize("chunk", [1, 1000, 1 << 23])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["skewed", "isolated_rows", "permuted_edges", "empty"])
def test_weights_of_heads_whatever_the_pieces(name, dtype, chunk, cut, monkeypatch):
    monkeypatch.setattr(bags, "LONG_ROW", cut[0])
    monkeypatch.setattr(bags, "PIECE", cut[1])
    monkeypatch.setattr(chunks, "CHUNK_BYTES", chunk)
    struct = structure(skewed_graph() if name == "skewed" else zoo()[name](torch.int64))
    adj = struct.in_adj
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(struct.num_src, 6, generator=generator).to(dtype)
    weight = torch.rand(struct.num_edges, 2, generator=generator).to(dtype)
    found = bags.bags(adj, on_edges=False).sum(rows, weight)
    terms = rows[adj.indices.long()].double() * weight.double().repeat_interleave(3, dim=1)
    expected = torch.zeros(adj.num_rows, 6, dtype=torch.float64)
    expected.index_add_(0, adj.rows().long(), terms)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)
