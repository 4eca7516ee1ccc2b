"""A module that has been used is copied, pickled and saved like any other."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import weakref

import pytest
import torch

from tests.graphs import regular
from tests.nn.layers import LAYERS, every_layer, on_graphs, to

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")


def through_pickle(layer):
    return pickle.loads(pickle.dumps(layer))


def through_file(layer):
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@every_layer
@pytest.mark.parametrize("copier", [copy.deepcopy, through_pickle, through_file])
def test_copies_compute_the_same(name, copier, device):
    layer, graph = LAYERS[name], regular()
    module, inputs = layer.make().to(device), to(layer.inputs(graph), device)
    expected = layer.call(module, graph, inputs)
    if expected[0].requires_grad:
        expected[0].sum().backward()
    twin = copier(module)
    for out, wanted in zip(layer.call(twin, graph, inputs), expected, strict=True):
        assert torch.equal(out, wanted)
    assert type(twin) is type(module)


def saved_size(module):
    """Bytes of a module; a plain pickle has addresses of storages in it, of varying length."""
    buffer = io.BytesIO()
    torch.save(module, buffer)
    return buffer.tell()


@every_layer
def test_no_cache_travels_along(name):
    layer, graph = LAYERS[name], regular()
    module = layer.make()
    unused = saved_size(module)
    layer.call(module, graph, layer.inputs(graph))
    assert saved_size(module) == unused
    assert set(vars(module)) == set(vars(layer.make()))


@every_layer
def test_checkpoints_pass_through_files_both_ways(name):
    layer, graph = LAYERS[name], regular()
    mine, other = layer.twins()
    for source, target in ((mine, other), (other, mine)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.mul_(0.9)
        buffer = io.BytesIO()
        torch.save(source.state_dict(), buffer)
        buffer.seek(0)
        target.load_state_dict(torch.load(buffer, weights_only=True), strict=True)
        found, expected = (layer.call(m, graph, layer.inputs(graph)) for m in (target, source))
        for out, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(out, wanted)


@on_graphs
def test_the_graph_does_not_live_as_long_as_the_module(name):
    layer, graph = LAYERS[name], regular()
    module = layer.make()
    inputs = to(layer.inputs(graph), "cpu", grad=True)
    out = layer.call(module, graph, inputs)[0]
    if out.requires_grad:
        out.sum().backward()
    del out
    gone = weakref.ref(graph)
    del graph
    gc.collect()
    assert gone() is None
    assert module is not None
