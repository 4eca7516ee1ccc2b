"""Statistics of the dropout that kernels draw."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.ops.edge_terms import draw_seed, dropout_numbers, edge_mask
from dgl_flash.structure import GraphStructure


def test_numbers_for_the_kernel():
    assert dropout_numbers(0.0) == (0, 1.0)
    assert dropout_numbers(0.5) == (2**31, 2.0)
    assert dropout_numbers(1.0) == (2**32 - 1, 0.0)


def edges(count, device="cuda"):
    ends = torch.zeros(count, dtype=torch.int64, device=device)
    return GraphStructure.from_coo(ends, ends, 1, 1)


def kept(count, num_heads, drop, seed=0):
    torch.manual_seed(seed)
    mask = edge_mask(edges(count), num_heads, torch.float32, drop, draw_seed(torch.device("cuda")))
    assert torch.equal(mask.unique().cpu(), torch.tensor([0.0, 1 / (1 - drop)]))
    return (mask > 0).double()


@pytest.mark.gpu
@pytest.mark.parametrize("drop", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("num_heads", [1, 3, 8])
def test_the_share_that_is_kept(num_heads, drop):
    count = 400_000
    found = kept(count, num_heads, drop)
    sigma = (drop * (1 - drop)) ** 0.5
    assert abs(found.mean() - (1 - drop)) < 5 * sigma / (count * num_heads) ** 0.5
    assert ((found.mean(0) - (1 - drop)).abs() < 5 * sigma / count**0.5).all()
    # By blocks of edges, as an edge id that were not mixed well enough would show.
    blocks = found.view(400, -1).mean(1)
    spread = sigma / (1000 * num_heads) ** 0.5
    assert ((blocks - (1 - drop)).abs() < 5.5 * spread).all()
    assert abs(blocks.std() / spread - 1) < 0.2


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return (a @ b / (a.norm() * b.norm())).abs()


@pytest.mark.gpu
def test_heads_edges_and_seeds_are_independent():
    count = 1_000_000
    found, other = kept(count, 8, 0.5, seed=1), kept(count, 8, 0.5, seed=2)
    limit = 5.5 / count**0.5
    for head in range(1, 8):
        assert correlation(found[:, 0], found[:, head]) < limit
    for lag in (1, 2, 3, 4, 7, 16, 32, 1024, 65_536):
        for head in (0, 5):
            assert correlation(found[lag:, head], found[:-lag, head]) < 5.5 / (count - lag) ** 0.5
    assert correlation(found[:, 0], other[:, 0]) < limit
    assert correlation(found[1:, 0], other[:-1, 0]) < limit


@pytest.mark.gpu
def test_runs_of_kept_edges_are_as_long_as_chance_makes_them():
    found = kept(1_000_000, 1, 0.5)[:, 0]
    ends = torch.cat([found.diff().nonzero().flatten(), found.new_tensor([found.numel() - 1])])
    lengths = ends.diff()
    for length in range(1, 12):
        share = (lengths == length).double().mean()
        expected = 0.5**length
        assert abs(share - expected) < 6 * (expected / lengths.numel()) ** 0.5
