"""DenseSAGEConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from tests.nn.common import draw, raised, twins
from tests.nn.dense import assert_same_on_matrix, weighted

DENSE_SAGE = partial(twins, "DenseSAGEConv")
OPTIONS = [
    {},
    {"bias": False},
    {"activation": torch.tanh},
    {"activation": nn.ELU(), "norm": nn.LayerNorm(3)},
    {"norm": partial(nn.functional.normalize, dim=-1)},
]


def positive(*sizes):
    """Without row sums near -1, by which the sum would be divided."""
    return weighted(*sizes).abs()


@pytest.mark.parametrize("options", OPTIONS, ids=range(len(OPTIONS)))
def test_one_set_of_nodes(options, device):
    assert_same_on_matrix(DENSE_SAGE(4, 3, **options), positive(6, 6), draw(6, 4), device=device)


@pytest.mark.parametrize("sizes", [(6, 6), (4, 7), (7, 4)], ids=str)
@pytest.mark.parametrize("widths", [(7, 3), (3, 7)], ids=str)
def test_pairs(sizes, widths, device):
    num_dst, num_src = sizes
    sides = draw(num_src, widths[0]), draw(num_dst, widths[0], seed=1)
    assert_same_on_matrix(DENSE_SAGE(*widths), positive(*sizes), *sides, device=device)


@pytest.mark.parametrize("size", [0, 1])
def test_hardly_any_nodes(size, device):
    assert_same_on_matrix(DENSE_SAGE(4, 3), torch.ones(size, size), draw(size, 4), device=device)


@pytest.mark.parametrize("paired", [False, True])
def test_dropout_draws_what_dgl_draws(paired):
    feat = (draw(6, 4), draw(6, 4, seed=1)) if paired else draw(6, 4)
    outputs = []
    for layer in DENSE_SAGE(4, 3, feat_drop=0.5):
        torch.manual_seed(5)
        outputs.append(layer(positive(6, 6), feat))
    torch.testing.assert_close(*outputs)


def test_parts_of_different_widths():
    feat = draw(6, 4), draw(6, 5)
    mine, other = (raised(partial(layer, draw(6, 6), feat)) for layer in DENSE_SAGE(4, 3))
    assert (type(mine), str(mine)) == (type(other), str(other))
