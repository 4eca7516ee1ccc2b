"""DGNConv gives DGL's outputs and gradients; what it shares with PNAConv is tested there."""

from __future__ import annotations

import importlib
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn.conv import dgnconv, pnaconv
from tests.graphs import (
    batched,
    bipartite_up,
    block,
    coo_only,
    empty,
    isolated_rows,
    no_nodes,
    random_graph,
    regular,
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
    run,
    theirs,
    twins,
)

dgls = importlib.import_module("dgl.nn.pytorch.conv.dgnconv")


DGN = partial(twins, "DGNConv")
SCALERS = ["identity", "amplification", "attenuation"]
DIRECTIONS = [f"dir{k}-{kind}" for k in (1, 2, 3) for kind in ("av", "dx")]
every_direction = pytest.mark.parametrize("aggregator", DIRECTIONS)


def steady(*args, **kwargs):
    """Layers in evaluation, where the bias before a normalisation has a gradient."""
    layers = DGN(*args, **kwargs)
    for layer in layers:
        layer.eval()
    return layers


def eigenvectors(graph, count=3):
    return draw(graph.num_nodes(), count, seed=6)


def efeat(graph, width=2):
    return draw(graph.num_edges(), width, seed=5)


class Plain(nn.Module):
    """A layer whose eigenvectors are constants, as they are in use."""

    def __init__(self, layer, eig_vec):
        super().__init__()
        self.layer = layer
        self.register_buffer("eig_vec", eig_vec)

    def forward(self, graph, feat, edge_feat=None):
        return self.layer(graph, feat, edge_feat, self.eig_vec)


@pytest.mark.parametrize("edge_width", [0, 2])
@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - {"empty", "no_nodes"}))
def test_zoo(name, edge_width, device):
    graph = zoo()[name](torch.int64)
    aggregators = ["dir1-av", "dir2-dx", "mean"]
    layers = steady(4, 4, aggregators, SCALERS, 2.5, edge_feat_size=edge_width)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    pair = tuple(Plain(layer, eigenvectors(graph, 2)) for layer in layers)
    assert_same(pair, graph, features(graph, 4), device, ulps=256, **given)


@every_direction
@pytest.mark.parametrize("edge_width", [0, 2])
def test_each_direction(aggregator, edge_width, device):
    """Gradients of the eigenvectors among them."""
    graph = regular()
    layers = steady(4, 3, [aggregator], ["identity"], 2.5, edge_feat_size=edge_width)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    assert_same(layers, graph, features(graph, 4), device, **given, eig_vec=eigenvectors(graph))


@every_idtype
@pytest.mark.parametrize("towers", [1, 2, 4])
@pytest.mark.parametrize("builder", [batched, regular, coo_only])
def test_towers_and_both_id_types(builder, towers, idtype, device):
    graph = builder(idtype)
    layers = steady(8, 4, [*DIRECTIONS, "max"], SCALERS, 2.5, num_towers=towers)
    pair = tuple(Plain(layer, eigenvectors(graph)) for layer in layers)
    feat = draw(graph.num_nodes(), 8, seed=49)  # of which no sum over the nodes cancels
    assert_same(pair, graph, feat, device, ulps=256)


def test_without_directions(device):
    """DGL asks for eigenvectors that nobody reads; the layer is PNA's."""
    graph = regular()
    layer = DGN(4, 4, ["mean", "std"], SCALERS, 2.5)[0].to(device)
    other = ours.PNAConv(4, 4, ["mean", "std"], SCALERS, 2.5).to(device)
    other.load_state_dict(layer.state_dict())
    feat = features(graph, 4).to(device)
    assert not layer.use_eig_vec
    torch.testing.assert_close(layer(graph, feat), other(graph, feat))


@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_no_edges(builder, device):
    graph = builder()
    layer = steady(4, 4, DIRECTIONS, SCALERS, 2.5)[0]
    feat, eig_vec = features(graph, 4), eigenvectors(graph)
    found = run(layer, graph, feat, device, torch.float32, eig_vec=eig_vec)
    assert found["out0"].shape == (graph.num_nodes(), 4)
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_where_all_are_on_one_level(dtype, device):
    """There is no direction, and no gradient of one; DGL's is infinite or of the order of 1e30."""
    graph = dgl.graph(([0, 1, 2, 3, 3], [1, 1, 3, 3, 2]), num_nodes=5)
    layer = steady(4, 4, ["dir1-av", "dir1-dx"], SCALERS, 2.5)[0].to(device, dtype)
    feat = features(graph, 4).to(device, dtype).requires_grad_()
    eig_vec = torch.ones(5, 1, device=device, dtype=dtype, requires_grad=True)
    out = layer(graph, feat, eig_vec=eig_vec)
    out.sum().backward()
    assert out.isfinite().all()
    assert not eig_vec.grad.any()
    for tower in layer.towers:
        tower.M.weight.data.mul_(2)
    torch.testing.assert_close(layer(graph, feat, eig_vec=eig_vec), out)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@every_direction
def test_derivatives(check, aggregator, device):
    graph = dgl.graph(([0, 1, 2, 3, 0, 2, 2], [1, 2, 3, 0, 2, 1, 1]))
    layer = steady(4, 4, [aggregator], ["amplification"], 2.5)[0].double().to(device)
    arguments = [draw(4, 4).double().to(device), eigenvectors(graph).double().to(device)]
    for value in arguments:
        value.requires_grad_()

    def call(feat, eig_vec):
        return layer(graph, feat, eig_vec=eig_vec)

    assert check(call, arguments, nondet_tol=1e-10)


def test_functions_of_mailboxes_are_dgls():
    mailbox, src, dst, own = draw(6, 5, 4), draw(6, 5, 3, seed=1), draw(6, 5, 3, seed=2), draw(6, 4)
    for index in range(3):
        torch.testing.assert_close(
            dgnconv.aggregate_dir_av(mailbox, src, dst, index),
            dgls.aggregate_dir_av(mailbox, src, dst, index),
        )
        torch.testing.assert_close(
            dgnconv.aggregate_dir_dx(mailbox, src, dst, own, index),
            dgls.aggregate_dir_dx(mailbox, src, dst, own, index),
        )


def test_path_by_hand(device):
    """Steps of 1 down and 3 up to node 2, whose own features are 0."""
    graph = dgl.graph(([0, 1], [2, 2]))
    layer = steady(1, 2, ["dir1-av", "dir1-dx"], ["identity"], 2.5, residual=False)[0].to(device)
    (tower,) = layer.towers
    layer.mixing_layer, tower.batchnorm = nn.Identity(), nn.Identity()
    with torch.no_grad():
        tower.M.weight.copy_(torch.tensor([[1.0, 0.0]]))
        tower.M.bias.zero_()
        tower.U.weight.copy_(torch.tensor([[0.0, 1, 0], [0, 0, 1]]))
        tower.U.bias.zero_()
    feat = torch.tensor([[8.0], [4.0], [0.0]], device=device)
    eig_vec = torch.tensor([[1.0], [5.0], [2.0]], device=device)
    out = layer(graph, feat, eig_vec=eig_vec) * 3**0.5
    expected = [0, 0, 0, 0, (8 + 3 * 4) / 4, (-8 + 3 * 4) / 4]
    assert out.flatten().tolist() == pytest.approx(expected)


@pytest.fixture
def registered():
    """A reducer of the user, in both libraries."""
    parts = (pnaconv, dgls)
    for part in parts:
        part.AGGREGATORS["median"] = lambda h: h.median(dim=1)[0]
    yield
    for part in parts:
        del part.AGGREGATORS["median"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("builder", [regular, isolated_rows])
def test_functions_of_the_user(builder, device):
    graph = builder()
    layers = steady(4, 4, ["median", "dir1-av", "dir2-dx"], SCALERS, 2.5, edge_feat_size=2)
    pair = tuple(Plain(layer, eigenvectors(graph)) for layer in layers)
    assert_same(pair, graph, features(graph, 4), device, edge_feat=efeat(graph))


def hook(layer):
    for tower in layer.towers:
        tower.M.register_forward_hook(lambda *given: torch.tanh(given[-1]))


@pytest.mark.parametrize("edge_width", [0, 2])
def test_hooks(edge_width, device):
    graph = regular()
    layers = steady(4, 4, [*DIRECTIONS, "std"], SCALERS, 2.5, edge_feat_size=edge_width)
    for layer in layers:
        hook(layer)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    pair = tuple(Plain(layer, eigenvectors(graph)) for layer in layers)
    assert_same(pair, graph, features(graph, 4), device, **given)


def test_a_tower_finds_eigenvectors_with_the_graph():
    """That is how DGL's tower is called; nothing is written."""
    graph = regular()
    layers = steady(4, 4, ["dir1-av"], SCALERS, 2.5)
    graph.ndata["eig"] = eigenvectors(graph)
    outputs = [layer.towers[0](graph, features(graph, 4)) for layer in layers]
    torch.testing.assert_close(*outputs)
    assert list(graph.ndata) == ["eig"]


@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_autocast_leaves_eigenvectors_as_they_are(scale, device):
    """Neighbours differ by less than a half type holds."""
    graph = regular()
    layer = steady(4, 4, ["dir1-av", "dir1-dx"], SCALERS, 2.5)[0].to(device)
    feat = features(graph, 4).to(device)
    eig_vec = (scale * (1 + 1e-3 * eigenvectors(graph, 1))).to(device)
    expected = layer(graph, feat, eig_vec=eig_vec)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        found = layer(graph, feat, eig_vec=eig_vec)
    torch.testing.assert_close(found.float(), expected, rtol=0.1, atol=0.1)


def test_no_memory_for_messages(device):
    graph = random_graph(200, 40_000)
    layer = DGN(32, 32, ["dir1-av", "dir1-dx", "mean"], SCALERS, 2.5)[0].to(device)
    feat = features(graph, 32).to(device).requires_grad_()
    eig_vec = eigenvectors(graph).to(device)

    def step():
        layer(graph, feat, eig_vec=eig_vec).sum().backward()

    step()  # what is made once
    assert peak_memory(step, device) < 0.7 * 4 * 32 * graph.num_edges()


@pytest.mark.parametrize("count", [1, 2])
def test_too_few_eigenvectors(count):
    graph = regular()
    layers = DGN(4, 4, ["dir3-av"], SCALERS, 2.5)
    calls = [partial(layer, graph, draw(10, 4), None, draw(10, count)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert type(mine) is type(other) is IndexError


def test_no_eigenvectors():
    error = raised(partial(DGN(4, 4, ["dir1-av"], SCALERS, 2.5)[0], regular(), draw(10, 4)))
    assert isinstance(error, TypeError)
    assert "DGNConv: expected `eig_vec` to be a tensor" in str(error)


def test_eigenvectors_of_other_nodes():
    graph = regular()
    layers = DGN(4, 4, ["dir1-av"], SCALERS, 2.5)
    calls = [partial(layer, graph, draw(10, 4), None, draw(9, 1)) for layer in layers]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    count = graph.num_src_nodes()
    layer = DGN(4, 4, ["dir1-av"], SCALERS, 2.5)[0]
    error = raised(partial(layer, graph, draw(count, 4), eig_vec=draw(count, 1)))
    assert isinstance(error, dgl.DGLError)
    assert "expected a homogeneous graph" in str(error)


def test_eigenvectors_of_the_laplacian(device):
    """As in DGL's example."""
    graph = dgl.to_bidirected(regular())
    graph = dgl.LapPE(k=3, feat_name="eig")(graph)
    layers = steady(4, 4, ["dir1-av", "dir2-dx", "sum"], SCALERS, 2.5)
    outputs = [
        layer(graph, features(graph, 4), eig_vec=graph.ndata["eig"]).detach() for layer in layers
    ]
    torch.testing.assert_close(*outputs)


def test_own_container(device):
    graph = regular()
    layer = DGN(4, 4, [*DIRECTIONS, "var"], SCALERS, 2.5)[0].to(device)
    feat, eig_vec = features(graph, 4).to(device), eigenvectors(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, eig_vec=eig_vec), layer(graph, feat, None, eig_vec))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    mine, other = DGN(4, 4, ["dir1-av"], SCALERS, 2.5)
    found = mine(graph, features(graph, 4), eig_vec=eigenvectors(graph))
    assert not graph.ndata
    assert not graph.edata
    torch.testing.assert_close(
        found, other(for_dgl(graph), features(graph, 4), eig_vec=eigenvectors(graph))
    )


def test_classes_are_related_as_in_dgl():
    assert issubclass(ours.DGNConv, ours.PNAConv)
    assert issubclass(theirs.DGNConv, theirs.PNAConv)
    assert issubclass(dgnconv.DGNConvTower, pnaconv.PNAConvTower)
