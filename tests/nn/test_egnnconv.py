"""EGNNConv gives DGL's outputs and gradients, and finite ones where points coincide."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from tests.graphs import (
    batched,
    bipartite_up,
    block,
    coo_only,
    empty,
    multi_edges,
    no_nodes,
    path,
    permuted_edges,
    random_graph,
    regular,
    sorted_edges,
    zoo,
)
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    features,
    for_dgl,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)
from tests.numerics import assert_accurate

# DGL's, about graphs without edges.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not contain valid edges")
EGNN = partial(twins, "EGNNConv")


def has_loops(graph):
    src, dst = for_dgl(graph).edges()
    return bool((src == dst).any())


LOOPS = {
    name
    for name, builder in zoo().items()
    if name not in TWO_NODE_SETS and has_loops(builder(torch.int64))
}


def given(graph, edge_width=0):
    inputs = {"coord_feat": draw(graph.num_nodes(), 3, seed=4)}
    if edge_width > 0:
        inputs["edge_feat"] = draw(graph.num_edges(), edge_width, seed=5)
    return inputs


@pytest.mark.parametrize("edge_width", [0, 2])
@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - LOOPS))
def test_zoo(name, edge_width, device):
    graph = zoo()[name](torch.int64)
    inputs = given(graph, edge_width)
    assert_same(EGNN(4, 6, 3, edge_width), graph, features(graph, 4), device, **inputs)


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_zoo_with_self_loops(name, device):
    """DGL's results, and our gradients in float64, which are finite."""
    graph = zoo()[name](torch.int64)
    mine, other = EGNN(4, 6, 3, 2)
    randomise(mine)
    other.load_state_dict(mine.state_dict())
    feat, inputs = features(graph, 4), given(graph, 2)
    found = run(mine, graph, feat, device, torch.float32, **inputs)
    baseline = run(mine, graph, feat, "cpu", torch.float32, **inputs)
    exact = run(mine, graph, feat, "cpu", torch.float64, **inputs)
    usual = run(other, for_dgl(graph), feat, "cpu", torch.float32, **inputs)
    for key, value in found.items():
        judged = usual if key.startswith("out") else baseline
        assert_accurate(
            *(part.reshape(1, -1) for part in (value.cpu(), judged[key], exact[key])),
            what=key,
            ulps=64,
        )


@every_idtype
@pytest.mark.parametrize("builder", [sorted_edges, multi_edges, path])
def test_both_id_types(builder, idtype, device):
    graph = dgl.remove_self_loop(builder(idtype))
    assert graph.idtype == idtype
    assert_same(EGNN(4, 6, 3, 2), graph, features(graph, 4), device, **given(graph, 2))


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_any_number_of_coordinates(dim, device):
    graph = regular()
    inputs = {"coord_feat": draw(10, dim, seed=4)}
    assert_same(EGNN(4, 6, 3), graph, features(graph, 4), device, **inputs)


def test_edge_features_are_ignored_where_none_are_read(device):
    graph = regular()
    layer = EGNN(4, 6, 3)[0].to(device)
    feat, coord = features(graph, 4).to(device), draw(10, 3).to(device)
    with_them = layer(graph, feat, coord, draw(30, 2).to(device))
    for found, expected in zip(with_them, layer(graph, feat, coord), strict=True):
        assert torch.equal(found, expected)


def test_without_edges(device):
    for graph in (empty(), no_nodes()):
        inputs = given(graph)
        found = assert_same(EGNN(4, 6, 3), graph, features(graph, 4), device, **inputs)
        assert torch.equal(found["out1"].cpu(), inputs["coord_feat"])


def coinciding(dtype, device):
    """A self-loop beside other edges, one alone, and two points at one place."""
    graph = dgl.graph(([0, 1, 0, 2, 4, 3, 1], [1, 1, 2, 2, 3, 4, 4]), num_nodes=6)
    graph.add_edges([5], [5])
    coord = draw(6, 3, seed=1)
    coord[4] = coord[3]
    return graph, draw(6, 4).to(device, dtype), coord.to(device, dtype)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_points_that_coincide_have_no_direction(dtype, device):
    graph, feat, coord = coinciding(dtype, device)
    layer = EGNN(4, 6, 3)[0].to(device, dtype)
    coord.requires_grad_()
    h, x = layer(graph, feat, coord)
    (h.sum() + x.sum()).backward()
    assert coord.grad.isfinite().all()
    assert torch.equal(x[5], coord[5])
    assert torch.equal(x[3], coord[3])


def test_no_direction_has_no_derivative(device):
    """Not even that of its numerator: the source does not move the destination."""
    layer = EGNN(4, 6, 3)[0].to(device)
    coord = torch.ones(2, 3, device=device, requires_grad=True)
    _, x = layer(dgl.graph(([0], [1])), draw(2, 4).to(device), coord)
    x[1].sum().backward()
    assert coord.grad.tolist() == [[0, 0, 0], [1, 1, 1]]


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
def test_derivatives_at_self_loops(check, device):
    """Nothing changes along a self-loop, however a node moves."""
    graph = dgl.graph(([0, 1, 1, 2, 2], [1, 1, 2, 2, 0]))
    layer = EGNN(4, 6, 3)[0].double().to(device)
    arguments = [draw(3, 4).double().to(device), draw(3, 3, seed=1).double().to(device)]
    for value in arguments:
        value.requires_grad_()
    assert check(lambda *values: layer(graph, *values), arguments, nondet_tol=1e-10)


def test_motions_of_space(device):
    """Features stay, coordinates move along."""
    graph = regular()
    layer = EGNN(4, 6, 3)[0].double().to(device)
    feat, coord = features(graph, 4).double().to(device), draw(10, 3).double().to(device)
    turn = torch.linalg.qr(draw(3, 3, seed=8).double())[0].to(device)
    h, x = layer(graph, feat, coord)
    moved_h, moved_x = layer(graph, feat, coord @ turn + 5)
    torch.testing.assert_close(moved_h, h)
    torch.testing.assert_close(moved_x, x @ turn + 5)


def test_path_by_hand(device):
    """One edge from (0, 0) to (3, 4): the direction to the source is (-3, -4) / 5."""

    class Constant(ours.EGNNConv):
        def message(self, edges):
            return {"msg_x": 10 * edges.data["x_diff"], "msg_h": edges.data["radial"]}

    layer = Constant(1, 1, 1).to(device)
    layer.node_mlp = nn.Identity()
    coord = torch.tensor([[0.0, 0.0], [3.0, 4.0], [3.0, 4.0]], device=device)
    h, x = layer(path(), torch.tensor([[1.0], [2.0], [3.0]], device=device), coord)
    torch.testing.assert_close(h, torch.tensor([[1.0, 0], [2, 25], [3, 0]], device=device))
    expected = torch.tensor([[0.0, 0], [-3, -4], [3, 4]], device=device)
    torch.testing.assert_close(x, expected)


def changed(change):
    layers = EGNN(4, 6, 3, 2)
    for layer in layers:
        change(layer)
    return layers


def hook(layer):
    layer.edge_mlp[0].register_forward_hook(lambda *parts: torch.tanh(parts[-1]))


def hook_all(layer):
    layer.edge_mlp.register_forward_hook(lambda *parts: 1.5 * parts[-1])


def hook_later(layer):
    layer.edge_mlp[2].register_forward_hook(lambda *parts: 1.5 * parts[-1])


def replace_first(layer):
    torch.manual_seed(1)
    layer.edge_mlp[0] = nn.Sequential(nn.Linear(11, 6), nn.Tanh())


def replace_all(layer):
    torch.manual_seed(1)
    layer.edge_mlp = nn.Linear(11, 6, bias=False)


def without_bias(layer):
    torch.manual_seed(1)
    layer.edge_mlp[0] = nn.Linear(11, 6, bias=False)


@pytest.mark.parametrize(
    "change", [hook, hook_all, hook_later, replace_first, replace_all, without_bias]
)
def test_hooks_and_replacements(change, device):
    graph = regular()
    assert_same(changed(change), graph, features(graph, 4), device, **given(graph, 2))


def test_a_message_of_a_subclass_is_called(device):
    layers = []
    for library in (ours, theirs):

        class Louder(library.EGNNConv):
            def message(self, edges):
                parts = super().message(edges)
                return {"msg_x": parts["msg_x"] + edges.src["x"], "msg_h": 2 * parts["msg_h"]}

        torch.manual_seed(7)
        layers.append(Louder(4, 6, 3, 2))
    graph = regular()
    assert_same(tuple(layers), graph, features(graph, 4), device, **given(graph, 2))


def test_the_message_is_dgls():
    mine, other = EGNN(4, 6, 3, 2)
    data = {"radial": draw(7, 1), "x_diff": draw(7, 3), "a": draw(7, 2)}
    edges = SimpleNamespace(src={"h": draw(7, 4)}, dst={"h": draw(7, 4, seed=1)}, data=data)
    found, expected = mine.message(edges), other.message(edges)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value)


def both(call):
    mine, other = (raised(partial(call, layer)) for layer in EGNN(4, 6, 3, 2))
    return (type(mine), str(mine)), (type(other), str(other))


@pytest.mark.parametrize(
    "inputs",
    [
        (10, 10, None),
        (9, 10, (30, 2)),
        (10, 9, (30, 2)),
        (10, 10, (29, 2)),
    ],
    ids=["no edge features", "nodes", "coordinates", "edges"],
)
def test_wrong_inputs(inputs):
    nodes, points, edges = inputs
    graph = regular()
    edge_feat = None if edges is None else draw(*edges)
    mine, other = both(lambda layer: layer(graph, draw(nodes, 4), draw(points, 3), edge_feat))
    assert mine == other


@pytest.mark.parametrize("widths", [(3, 2), (4, 3)], ids=["nodes", "edges"])
def test_wrong_widths(widths):
    graph = regular()
    mine, other = both(
        lambda layer: layer(graph, draw(10, widths[0]), draw(10, 3), draw(30, widths[1]))
    )
    assert mine[0] is other[0] is RuntimeError


def test_coordinates_without_dimension():
    graph = regular()
    mine, other = both(lambda layer: layer(graph, draw(10, 4), draw(10), draw(30, 2)))
    assert mine[0] is other[0] is IndexError


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    count = graph.num_src_nodes()
    error = raised(partial(EGNN(4, 6, 3)[0], graph, draw(count, 4), draw(count, 3)))
    assert isinstance(error, dgl.DGLError)
    assert "EGNNConv: expected a homogeneous graph" in str(error)


@pytest.mark.parametrize("builder", [batched, coo_only, permuted_edges])
def test_own_container(builder, device):
    graph = builder()
    layer = EGNN(4, 6, 3)[0].to(device)
    feat, coord = features(graph, 4).to(device), draw(graph.num_nodes(), 3).to(device)
    own = dgl_flash.graph(for_dgl(graph).edges(order="eid"), num_nodes=graph.num_nodes())
    for found, expected in zip(layer(own, feat, coord), layer(graph, feat, coord), strict=True):
        torch.testing.assert_close(found, expected)


def test_nothing_of_the_graph_is_changed():
    graph = random_graph(8, 20)
    EGNN(4, 6, 3)[0](graph, features(graph, 4), draw(8, 3))
    assert not graph.ndata
    assert not graph.edata
