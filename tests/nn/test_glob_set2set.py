"""Set2Set gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl
import pytest
import torch

from tests.nn.batches import FULL, empty_graphs, every_batch, every_gap, gaps, mixed
from tests.nn.common import assert_same, draw, every_idtype, raised, run, twins

SET2SET = partial(twins, "Set2Set")


@every_batch
@every_idtype
def test_batches(name, idtype, device):
    graph = FULL[name](idtype)
    found = assert_same(SET2SET(4, 3, 1), graph, draw(graph.num_nodes(), 4), device, ulps=256)
    assert found["out0"].shape == (graph.batch_size, 8)


@pytest.mark.parametrize("steps", [0, 1, 4])
@pytest.mark.parametrize("layers", [1, 3])
def test_steps_and_layers(steps, layers, device):
    graph = mixed()
    mine, other = SET2SET(5, steps, layers)
    if steps == 0:
        feat = draw(graph.num_nodes(), 5)
        assert torch.equal(mine.to(device)(graph, feat.to(device)).cpu(), other(graph, feat))
        return
    assert_same((mine, other), graph, draw(graph.num_nodes(), 5), device, ulps=256)


@pytest.mark.parametrize("width", [1, 33, 64])
def test_widths(width, device):
    graph = mixed()
    assert_same(SET2SET(width, 2, 1), graph, draw(graph.num_nodes(), width), device, ulps=256)


@every_gap
def test_members_without_nodes(name, device):
    """There is nothing to read: the second half of their rows is 0."""
    graph = gaps(name)
    feat = draw(graph.num_nodes(), 4)
    if name == "nothing":
        found = run(SET2SET(4, 3, 1)[0], graph, feat, device, torch.float32)
    else:
        found = assert_same(SET2SET(4, 3, 1), graph, feat, device, ulps=256)
    without = (graph.batch_num_nodes() == 0).to(device)
    assert not found["out0"][without, 4:].any()
    assert found["out0"][without, :4].any()


@pytest.mark.parametrize("name", empty_graphs())
def test_graphs_without_nodes(name, device):
    graph = empty_graphs()[name]
    mine, other = SET2SET(4, 2, 1)
    expected = other(graph, draw(0, 4))
    found = run(mine, graph, draw(0, 4), device, torch.float32)
    torch.testing.assert_close(found["out0"].cpu(), expected)


def test_large_scores(device):
    graph = mixed()
    layer = SET2SET(4, 3, 1)[0].to(device)
    assert layer(graph, 1e4 * draw(graph.num_nodes(), 4).to(device)).isfinite().all()


def test_errors():
    graph = mixed()
    layer = SET2SET(4, 3, 1)[0]
    assert isinstance(raised(partial(layer, graph, draw(3, 4))), dgl.DGLError)
    with pytest.raises(ValueError, match="expected"):
        layer(graph, draw(graph.num_nodes(), 5))
