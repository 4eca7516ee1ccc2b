"""Destinations without in-edges: refused with DGL's words, or zeros."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import bipartite_up, block, empty, isolated_rows, regular
from tests.nn.common import assert_same, draw, raised, twins
from tests.nn.layers import LAYERS, having, to

# DGL's, which frees storages.
pytestmark = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")
SIZES = {"GATv2Conv": (4, 3, 2), "GraphConv": (4, 3)}
# The layers that DGL asks for the flag; GatedGraphConv has the setter and no flag, DotGatConv the
# flag and no setter, EGATConv neither, and it always refuses.
NO_SETTER = {"DotGatConv", "EGATConv", "GroupRevRes"}
STRICT = [
    name
    for name in having()
    if hasattr(LAYERS[name].make(), "_allow_zero_in_degree") or name in NO_SETTER
]
strict_layers = pytest.mark.parametrize("name", STRICT)


@strict_layers
@pytest.mark.parametrize("builder", [empty, isolated_rows, bipartite_up])
def test_same_error_as_dgl(name, builder, device):
    layer, graph = LAYERS[name], builder()
    if builder is bipartite_up and not layer.two_sides:
        graph = dgl.graph(([0, 1], [1, 1]), num_nodes=3)
    mine, other = layer.twins()
    inputs = layer.inputs(graph)
    found = raised(partial(layer.call, mine.to(device), graph, to(inputs, device)))
    expected = raised(partial(layer.call, other, graph, inputs))
    assert type(found) is type(expected) is dgl.DGLError
    assert str(found) == str(expected)


@pytest.mark.parametrize("name", [name for name in STRICT if name not in NO_SETTER])
def test_the_flag_belongs_to_the_instance(name):
    layer, graph = LAYERS[name], isolated_rows()
    strict, lenient = layer.make(), layer.make()
    inputs = layer.inputs(graph)
    lenient.set_allow_zero_in_degree(True)
    layer.call(lenient, graph, inputs)
    assert isinstance(raised(partial(layer.call, strict, graph, inputs)), dgl.DGLError)
    lenient.set_allow_zero_in_degree(False)
    assert isinstance(raised(partial(layer.call, lenient, graph, inputs)), dgl.DGLError)


# DGL fails, gives the gradient of a maximum of nothing to some node, or divides by 0.
NOT_WITHOUT_EDGES = {"AtomicConv", "GINConv max", "GatedGraphConv", "SAGEConv pool"}
NOT_WITHOUT_EDGES |= {"DGNConv", "EdgeConv", "PNAConv"}
NEVER = {"TWIRLSUnfoldingAndAttention"}


@pytest.mark.parametrize("name", [name for name in having() if name != "EGATConv"])
@pytest.mark.parametrize("builder", [empty, isolated_rows])
@pytest.mark.filterwarnings("ignore:.*does not contain valid edges")
def test_allowed_they_are_as_in_dgl(name, builder, device):
    """Outputs and gradients, where nothing is asked about them, or the flag is set."""
    layer, graph = LAYERS[name], builder()
    mine, other = layer.twins(allow_zero_in_degree=True)
    inputs = layer.inputs(graph)
    found = layer.run(mine, graph, inputs, device, torch.float32)
    for value in found.values():
        assert value.isfinite().all()
    if name in NEVER or (builder is empty and name in NOT_WITHOUT_EDGES):
        return
    usual = layer.run(other, graph, inputs, "cpu", torch.float32)
    assert found.keys() == usual.keys()
    for key, value in found.items():
        torch.testing.assert_close(value.cpu(), usual[key], rtol=1e-4, atol=1e-5, msg=key)


@pytest.mark.parametrize("name", sorted(SIZES))
def test_no_edges_at_all(name, device):
    """Zeros, plus the bias where it is added after the sum; zero gradients."""
    graph = empty()
    layers = twins(name, *SIZES[name], allow_zero_in_degree=True)
    found = assert_same(layers, graph, draw(4, 4), device)
    if name == "GATv2Conv":
        assert not found["out0"].any()
    else:
        assert torch.equal(found["out0"], layers[0].bias.detach().expand(4, 3))
    assert not found["grad_feat0"].any()


def test_no_edges_but_a_residual(device):
    layers = twins("GATv2Conv", 4, 3, 2, residual=True, allow_zero_in_degree=True)
    found = assert_same(layers, empty(), draw(4, 4), device)
    assert found["out0"].any()


@pytest.mark.parametrize("name", sorted(SIZES))
def test_other_nodes_are_as_without_them(name, device):
    layers = twins(name, *SIZES[name], allow_zero_in_degree=True)
    assert_same(layers, isolated_rows(), draw(9, 4), device)


@strict_layers
@pytest.mark.parametrize("builder", [regular, block])
def test_graphs_without_such_nodes_pass(name, builder):
    layer = LAYERS[name]
    graph = builder() if layer.two_sides else regular()
    assert graph.in_degrees().min() > 0
    layer.call(layer.make(), graph, layer.inputs(graph))


def test_blocks_count_their_destinations_only():
    """The sources of a block need no in-edges."""
    graph = dgl.to_block(dgl.graph(([1, 2, 3], [0, 0, 0])), torch.tensor([0]))
    for name, args in SIZES.items():
        layer = twins(name, *args)[0]
        assert layer(graph, draw(4, 4)).shape[0] == 1


def test_users_of_our_own_container_get_our_error():
    """Without a DGL graph in sight it is still the class that `except dgl.DGLError` catches."""
    graph = dgl_flash.graph(([0, 1], [1, 1]), num_nodes=2)
    layer = twins("GraphConv", 4, 3)[0]
    assert isinstance(raised(partial(layer, graph, draw(2, 4))), dgl.DGLError)
