"""A module that has been used is copied, pickled and saved like any other."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch

from tests.graphs import regular
from tests.nn.common import features, ours, theirs

LAYERS = {
    "GATv2Conv": lambda nn: nn.GATv2Conv(4, 3, 2, residual=True, activation=torch.tanh),
    "shared": lambda nn: nn.GATv2Conv(4, 3, 2, share_weights=True),
    "GraphConv": lambda nn: nn.GraphConv(4, 3),
}


def through_pickle(layer):
    return pickle.loads(pickle.dumps(layer))


def through_file(layer):
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("name", sorted(LAYERS))
@pytest.mark.parametrize("copier", [copy.deepcopy, through_pickle, through_file])
def test_copies_compute_the_same(name, copier, device):
    graph = regular()
    layer = LAYERS[name](ours).to(device)
    feat = features(graph, 4).to(device)
    expected = layer(graph, feat)
    expected.sum().backward()
    twin = copier(layer)
    assert torch.equal(twin(graph, feat), expected)
    assert type(twin) is type(layer)


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_no_cache_travels_along(name):
    graph = regular()
    layer = LAYERS[name](ours)
    unused = len(pickle.dumps(layer))
    layer(graph, features(graph, 4))
    assert len(pickle.dumps(layer)) == unused
    assert set(vars(layer)) == set(vars(LAYERS[name](ours)))


@pytest.mark.parametrize("name", sorted(LAYERS))
def test_checkpoints_pass_through_files_both_ways(name):
    graph = regular()
    feat = features(graph, 4)
    mine, other = LAYERS[name](ours), LAYERS[name](theirs)
    for source, target in ((mine, other), (other, mine)):
        source.reset_parameters()
        buffer = io.BytesIO()
        torch.save(source.state_dict(), buffer)
        buffer.seek(0)
        target.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
        torch.testing.assert_close(target(graph, feat), source(graph, feat))


def test_the_graph_does_not_live_as_long_as_the_module():
    import gc
    import weakref

    graph = regular()
    layer = LAYERS["GATv2Conv"](ours)
    layer(graph, features(graph, 4)).sum().backward()
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
