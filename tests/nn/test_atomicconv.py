"""AtomicConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from dgl.nn.pytorch.conv import atomicconv as dgl_atomicconv

from dgl_flash.nn.conv import atomicconv
from tests.graphs import batched, bipartite_up, block, coo_only, empty, no_nodes, regular, zoo
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    features,
    raised,
    randomise,
    run,
    twins,
)

ATOMIC = partial(twins, "AtomicConv")
TYPES = torch.tensor([1.0, 6.0, 8.0])


def filters(count=4):
    """Cut-offs, means and scalings; distances lie on both sides of the cut-offs."""
    steps = torch.arange(count).float()
    return 1 + 0.5 * steps, 0.3 * steps, 0.5 + 0.25 * steps


def distances(graph):
    return 3 * torch.rand(graph.num_edges(), 1, generator=torch.Generator().manual_seed(4))


def atoms(num_nodes):
    """One of the types, or another one."""
    numbers = torch.tensor([1.0, 6.0, 7.0, 8.0])
    return numbers[torch.arange(num_nodes) * 7 % 4].unsqueeze(-1)


def copies(values):
    """DGL makes the passed tensors its parameters, and the judge changes these."""
    return [value.clone() for value in values]


@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - {"empty", "no_nodes"}))
@pytest.mark.parametrize("types", [None, TYPES], ids=["features", "types"])
def test_zoo(name, types, device):
    graph = zoo()[name](torch.int64)
    layers = ATOMIC(*copies(filters()), types)
    feat = features(graph, 1) if types is None else atoms(graph.num_nodes())
    assert_same(layers, graph, feat, device, distances=distances(graph))


@every_idtype
@pytest.mark.parametrize("builder", [batched, regular, coo_only])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    layers = ATOMIC(*copies(filters()), TYPES)
    assert_same(layers, graph, atoms(graph.num_nodes()), device, distances=distances(graph))


@pytest.mark.parametrize("count", [1, 2, 7])
@pytest.mark.parametrize("types", [TYPES[:1], TYPES], ids=["one type", "three types"])
def test_numbers_of_filters_and_types(count, types, device):
    graph = regular()
    layers = ATOMIC(*copies(filters(count)), types)
    found = assert_same(layers, graph, atoms(10), device, distances=distances(graph))
    assert found["out0"].shape == (10, count * len(types))


@pytest.mark.parametrize("width", [1, 3])
def test_features_in_place_of_types(width, device):
    graph = regular()
    layers = ATOMIC(*copies(filters()))
    feat = features(graph, width)
    assert_same(layers, graph, feat, device, distances=distances(graph))


@pytest.mark.parametrize("builder", [empty, no_nodes])
@pytest.mark.parametrize("types", [None, TYPES], ids=["features", "types"])
def test_without_edges(builder, types, device):
    """Where DGL raises over shapes."""
    graph = builder()
    layer = ATOMIC(*copies(filters()), types)[0]
    randomise(layer)
    feat = features(graph, 1)
    found = run(layer, graph, feat, device, torch.float32, distances=distances(graph))
    width = 4 if types is None else 12
    assert torch.equal(found["out0"].cpu(), torch.zeros(graph.num_nodes(), width))
    assert not found["grad_feat0"].any()


@pytest.mark.parametrize("builder", [bipartite_up, block])
def test_two_sets_of_nodes(builder, device):
    """Where DGL raises: as in the homogeneous graph of all nodes, destinations after sources."""
    graph = builder()
    src, dst = graph.edges()
    num_src, num_dst = graph.num_src_nodes(), graph.num_dst_nodes()
    whole = dgl.graph((src, dst + num_src), num_nodes=num_src + num_dst)
    layer = ATOMIC(*copies(filters()), TYPES)[0].to(device)
    feat, given = atoms(num_src + num_dst).to(device), distances(graph).to(device)
    found = layer(graph, feat[:num_src], given)
    torch.testing.assert_close(found, layer(whole, feat, given)[num_src:])


def test_two_edges_by_hand(device):
    """A hydrogen and an oxygen one length away from atom 2, at the mean of the filter."""
    graph = dgl.graph(([0, 1], [2, 2]), num_nodes=3)
    ones = torch.ones(1)
    layer = ATOMIC(2 * ones, ones.clone(), ones.clone(), torch.tensor([1.0, 8.0]))[0].to(device)
    feat = torch.tensor([[1.0], [8.0], [6.0]], device=device)
    out = layer(graph, feat, torch.tensor([[1.0], [2.5]], device=device))
    # The first is at half of the cut-off, cos(pi / 2) = 0; the second is beyond it.
    torch.testing.assert_close(
        out, torch.tensor([[0, 0], [0, 0], [0.5, 0]], device=device), atol=1e-6, rtol=0
    )


def test_radial_pooling():
    given = [torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([1.0])]
    mine, other = (module.RadialPooling(*copies(given)) for module in (atomicconv, dgl_atomicconv))
    values = torch.tensor([[0.0], [1.0], [2.0], [2.1]])
    torch.testing.assert_close(mine(values), other(values))
    assert repr(mine) == repr(other)


def test_arguments_are_copied():
    """DGL trains two layers from the same tensors as one, and changes the tensors."""
    given = filters()
    expected = copies(given)
    types = TYPES.clone()
    first, second = (dgl_flash.nn.AtomicConv(*given, types) for _ in range(2))
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1)
    for value, unchanged in zip((*given, types), (*expected, TYPES), strict=True):
        assert torch.equal(value, unchanged)
    assert torch.equal(second.radial_pooling.rbf_kernel_means.flatten(), expected[1])


def test_types_are_kept_but_not_learned():
    for layer in ATOMIC(*filters(), TYPES):
        assert not layer.features_to_use.requires_grad
        assert "features_to_use" in layer.state_dict()


def test_distances_of_other_edges_are_refused():
    graph = regular()
    layers = ATOMIC(*filters())
    calls = [partial(layer, graph, features(graph, 1), draw(29, 1)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is dgl.DGLError


def test_own_container(device):
    graph = regular()
    layer = ATOMIC(*filters(), TYPES)[0].to(device)
    feat, given = atoms(10).to(device), distances(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    ATOMIC(*filters())[0](graph, features(graph, 1), distances(graph))
    assert not graph.ndata
    assert not graph.edata
