"""SortPooling gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl
import pytest
import torch

from tests.nn.batches import FULL, empty_graphs, every_batch, every_gap, gaps, members, mixed
from tests.nn.common import assert_same, draw, every_idtype, ours, raised, run, theirs, twins

SORT = partial(twins, "SortPooling")


@every_batch
@every_idtype
@pytest.mark.parametrize("k", [1, 3, 20])
def test_batches(name, k, idtype, device):
    graph = FULL[name](idtype)
    found = assert_same(SORT(k), graph, draw(graph.num_nodes(), 4), device)
    assert found["out0"].shape == (graph.batch_size, 4 * k)


@pytest.mark.parametrize("width", [1, 2, 33])
def test_widths(width, device):
    graph = mixed()
    assert_same(SORT(3), graph, draw(graph.num_nodes(), width), device)


@every_gap
def test_members_without_nodes(name, device):
    """Each member is as DGL sorts it by itself."""
    graph = gaps(name)
    feat = draw(graph.num_nodes(), 4)
    mine, other = SORT(3)
    expected = torch.cat([other(*member) for member in members(graph, feat)])
    found = run(mine, graph, feat, device, torch.float32)
    assert torch.equal(found["out0"].cpu(), expected)
    assert not found["out0"][(graph.batch_num_nodes() == 0).to(device)].any()
    assert found["grad_feat0"].isfinite().all()


@pytest.mark.parametrize("name", empty_graphs())
def test_graphs_without_nodes(name, device):
    found = run(SORT(2)[0], empty_graphs()[name], draw(0, 4), device, torch.float32)
    assert torch.equal(found["out0"].cpu(), torch.zeros(1, 8))


def test_infinite_features_become_zero(device):
    graph = mixed()
    feat = draw(graph.num_nodes(), 4)
    feat[::3, 1] = float("inf")
    feat[1::4, 2] = -float("inf")
    # As many nodes as the largest graph has: which of two infinite ones comes first is not decided.
    k = int(graph.batch_num_nodes().max())
    found, expected = (layer(graph, feat) for layer in (ours.SortPooling(k), theirs.SortPooling(k)))
    assert found.isfinite().all()
    torch.testing.assert_close(found.sort().values, expected.sort().values)
    assert torch.equal(ours.SortPooling(k).to(device)(graph, feat.to(device)).cpu(), found)


def test_of_equal_nodes_the_first_comes_first(device):
    graph = mixed()
    feat = torch.zeros(graph.num_nodes(), 2, device=device)
    feat[:, 1] = 1
    feat[:, 0] = -torch.arange(graph.num_nodes(), device=device)
    out = ours.SortPooling(2)(graph, feat).reshape(-1, 2, 2)
    sizes = graph.batch_num_nodes()
    firsts = (sizes.cumsum(0) - sizes).to(device)
    assert torch.equal(out[:, 0], feat[firsts])
    several = (sizes > 1).to(device)
    assert torch.equal(out[several, 1], feat[firsts[several] + 1])
    assert not out[~several, 1].any()


def test_errors():
    graph = mixed()
    mine, other = SORT(3)
    for shape in ((graph.num_nodes() - 1, 4), (graph.num_nodes(), 2, 3)):
        errors = [raised(partial(layer, graph, draw(*shape))) for layer in (mine, other)]
        assert [type(error) for error in errors] == [dgl.DGLError] * 2
        assert str(errors[0]) == str(errors[1])
    with pytest.raises(ValueError, match=r"expected `feat` of shape \(N, D\)"):
        mine(graph, draw(graph.num_nodes()))
    with pytest.raises(TypeError, match="floating-point"):
        mine(graph, torch.ones(graph.num_nodes(), 4, dtype=torch.int64))
