"""GMMConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import pytest
import torch

from tests.graphs import (
    batched,
    bipartite_down,
    bipartite_up,
    block,
    empty,
    isolated_rows,
    no_nodes,
    path,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    may_fall_back,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)

pytestmark = may_fall_back  # the maximum has no kernel

GMM = partial(twins, "GMMConv")
ANY_DEGREE = {"allow_zero_in_degree": True}
every_aggregator = pytest.mark.parametrize("aggregator", ["sum", "mean", "max"])


def pseudo(graph, dim=3):
    return draw(graph.num_edges(), dim, seed=4)


@every_graph
@pytest.mark.parametrize("aggregator", ["sum", "mean"])
def test_zoo(name, aggregator, device):
    graph = zoo()[name](torch.int64)
    layers = GMM(4, 3, 3, 2, aggregator, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


# DGL's maximum has no gradient on a graph without edges; see below.
@pytest.mark.parametrize("name", sorted(zoo().keys() - {"empty", "no_nodes"}))
def test_zoo_of_maxima(name, device):
    graph = zoo()[name](torch.int64)
    layers = GMM(4, 3, 3, 2, "max", **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_maximum_without_edges(builder, device):
    graph = builder()
    layer = GMM(4, 3, 3, 2, "max", **ANY_DEGREE)[0]
    randomise(layer)
    found = run(layer, graph, features(graph, 4), device, torch.float32, pseudo=pseudo(graph))
    assert torch.equal(found["out0"], layer.bias.detach().expand(graph.num_nodes(), 3))
    assert not found["grad_feat0"].any()


@every_idtype
@every_aggregator
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, aggregator, idtype, device):
    graph = builder(idtype)
    layers = GMM(4, 3, 3, 2, aggregator, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@every_aggregator
@pytest.mark.parametrize("builder", [regular, block, bipartite_down])
@pytest.mark.parametrize("out_feats", [3, 4], ids=["projected", "as it is"])
def test_residual(aggregator, builder, out_feats, device):
    graph = builder()
    layers = GMM(4, out_feats, 3, 2, aggregator, residual=True, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph))


@pytest.mark.parametrize("residual", [False, True])
def test_two_input_widths(residual, device):
    graph = bipartite_up()
    feat = draw(graph.num_src_nodes(), 4), draw(graph.num_dst_nodes(), 5, seed=1)
    layers = GMM((4, 5), 3, 3, 2, residual=residual, **ANY_DEGREE)
    assert_same(layers, graph, feat, device, pseudo=pseudo(graph))


@pytest.mark.parametrize("kernels", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("bias", [False, True])
def test_kernels_and_dimensions(kernels, dim, bias, device):
    graph = regular()
    layers = GMM(4, 3, dim, kernels, bias=bias)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph, dim))


def test_coordinates_in_a_row(device):
    """DGL views the pseudo-coordinates as (E, dim), whatever their shape."""
    graph = regular()
    layers = GMM(4, 3, 3, 2)
    assert_same(layers, graph, features(graph, 4), device, pseudo=pseudo(graph).flatten())


def test_far_coordinates(device):
    """Far from 0 and near to a mean: the exponent must not cancel."""
    graph = regular()
    layers = GMM(4, 3, 3, 2)
    for layer in layers:
        with torch.no_grad():
            layer.mu.add_(100)
    assert_same(layers, graph, features(graph, 4), device, pseudo=100 + pseudo(graph))


def test_path_by_hand(device):
    """Coordinates on the mean weigh 1, two widths away exp(-2)."""
    layer = GMM(1, 1, 1, 1, bias=False, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.mu.fill_(3)
        layer.fc.weight.fill_(2)
        layer.inv_sigma.fill_(0.5)
    coordinates = torch.tensor([[3.0], [7.0]], device=device)
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device), coordinates)
    assert out.flatten().tolist() == pytest.approx([0, 2, 20 * torch.tensor(-2.0).exp().item()])


def test_unknown_aggregator():
    mine, other = (
        raised(partial(library.GMMConv, 4, 3, 3, 2, "min")) for library in (ours, theirs)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_zero_in_degree():
    graph = isolated_rows()
    layers = GMM(4, 3, 3, 2)
    calls = [partial(layer, graph, features(graph, 4), pseudo(graph)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))
    for layer in layers:
        layer.set_allow_zero_in_degree(True)
    assert_same(layers, graph, features(graph, 4), pseudo=pseudo(graph))


def test_coordinates_of_other_edges_are_refused():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 4), draw(29, 3)) for layer in GMM(4, 3, 3, 2)]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is RuntimeError


def test_own_container(device):
    graph = regular()
    layer = GMM(4, 3, 3, 2)[0].to(device)
    feat, given = features(graph, 4).to(device), pseudo(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    GMM(4, 3, 3, 2)[0](graph, features(graph, 4), pseudo(graph))
    assert not graph.ndata
    assert not graph.edata
