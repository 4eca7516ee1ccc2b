"""PNAConv gives DGL's outputs and gradients, and finite ones where nothing varies."""

from __future__ import annotations

import importlib
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from dgl_flash.demo.memory import peak_memory
from dgl_flash.nn.conv import pnaconv
from tests.graphs import (
    batched,
    bipartite_up,
    block,
    coo_only,
    empty,
    isolated_rows,
    no_nodes,
    permuted_edges,
    random_graph,
    regular,
    self_loops,
    zoo,
)
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    features,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)

dgls = importlib.import_module("dgl.nn.pytorch.conv.pnaconv")


PNA = partial(twins, "PNAConv")
SCALERS = ["identity", "amplification", "attenuation"]
# Of equal neighbours, variances and moments are rounding, and their roots are that enlarged.
SMOOTH = ["mean", "sum", "max", "min"]
ROUGH = ["var", "std", "moment3", "moment4", "moment5"]
# Odd moments near 0 have steep roots, and sums over the nodes may cancel: by most seeds DGL itself
# misses float64 by hundreds of ulp. By these it does not.
STEADY_OF_4, STEADY_OF_8 = 8, 676
every_aggregator = pytest.mark.parametrize("aggregator", SMOOTH + ROUGH)


def steady(*args, **kwargs):
    """Layers in evaluation, where the bias before a normalisation has a gradient."""
    layers = PNA(*args, **kwargs)
    for layer in layers:
        layer.eval()
    return layers


def efeat(graph, width=2):
    return draw(graph.num_edges(), width, seed=5)


def distinct():
    """In-degrees of 3 to 5, no two in-edges of a node from the same source."""
    nodes = torch.arange(12)
    steps = [(nodes + step) % 12 for step in (1, 2, 5)]
    more = [torch.arange(0, 12, 2), torch.arange(0, 12, 4)]
    src = torch.cat([*steps, (more[0] + 7) % 12, (more[1] + 9) % 12])
    return dgl.graph((src, torch.cat([nodes.repeat(3), *more])))


@pytest.mark.parametrize("edge_width", [0, 2])
@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - {"empty", "no_nodes"}))
def test_zoo(name, edge_width, device):
    graph = zoo()[name](torch.int64)
    layers = steady(4, 4, SMOOTH, SCALERS, 2.5, edge_feat_size=edge_width)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    assert_same(layers, graph, features(graph, 4), device, **given)


@every_aggregator
@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("edge_width", [0, 2])
def test_each_aggregator_and_scaler(aggregator, scaler, edge_width, device):
    graph = distinct()
    layers = steady(4, 3, [aggregator], [scaler], 2.5, edge_feat_size=edge_width)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    assert_same(layers, graph, features(graph, 4), device, **given)


@every_idtype
@pytest.mark.parametrize("towers", [1, 2, 4])
def test_towers(towers, idtype, device):
    graph = distinct()
    graph = graph.int() if idtype == torch.int32 else graph.long()
    assert graph.idtype == idtype
    layers = steady(8, 4, SMOOTH + ROUGH, SCALERS, 2.5, num_towers=towers, edge_feat_size=2)
    feat = draw(graph.num_nodes(), 8, seed=STEADY_OF_8)
    assert_same(layers, graph, feat, device, edge_feat=efeat(graph))


@pytest.mark.parametrize("aggregators", [["max", "min"], ["var", "mean"], ["std"], ["sum"]])
def test_isolated_nodes(aggregators, device):
    graph = isolated_rows()
    assert_same(steady(4, 4, aggregators, SCALERS, 2.5), graph, features(graph, 4), device)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("out_size", [4, 6])
def test_residual(residual, out_size, device):
    graph = distinct()
    layers = steady(4, out_size, ["mean"], SCALERS, 1.5, num_towers=2, residual=residual)
    assert layers[0].residual is (residual and out_size == 4)
    assert_same(layers, graph, features(graph, 4), device)


def test_members_of_a_batch_have_their_own_sizes(device):
    graph = batched()
    assert len(graph.batch_num_nodes()) == 4
    layers = steady(4, 4, SMOOTH, ["amplification"], 2.5)
    assert_same(layers, graph, features(graph, 4), device)
    alone = dgl.graph(graph.edges(), num_nodes=graph.num_nodes())
    feat = features(graph, 4)
    layer = layers[0].cpu().float()
    assert not torch.allclose(layer(graph, feat), layer(alone, feat))


def test_training(device):
    """Batch statistics are those of DGL and are tracked; the biases before them do not count."""
    graph = distinct()
    layers = PNA(4, 4, SMOOTH, SCALERS, 2.5, num_towers=2)
    for layer in layers:
        for tower in layer.towers:
            tower.M.bias.requires_grad_(False)
            tower.U.bias.requires_grad_(False)
    assert_same(layers, graph, features(graph, 4), device, ulps=512)
    mine, other = (layer.cpu().float() for layer in layers)
    for layer in (mine, other):
        for tower in layer.towers:
            tower.batchnorm.reset_running_stats()
        layer(graph, features(graph, 4))
    for key, value in other.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[key], value, msg=key)


def test_dropout_draws_as_dgls():
    graph = distinct()
    outputs = []
    for layer in PNA(4, 4, ["mean"], ["identity"], 2.5, 0.5, 2):
        torch.manual_seed(11)
        outputs.append(layer(graph, features(graph, 4)))
    torch.testing.assert_close(*outputs)


@pytest.mark.parametrize("edge_width", [0, 2])
@pytest.mark.parametrize("builder", [empty, no_nodes])
def test_no_edges(builder, edge_width, device):
    """DGL does not find what it has not aggregated; here it is 0."""
    graph = builder()
    layer = steady(4, 4, SMOOTH + ROUGH, SCALERS, 2.5, edge_feat_size=edge_width)[0]
    feat = features(graph, 4)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    found = run(layer, graph, feat, device, torch.float32, **given)
    layer = layer.cpu()
    (tower,) = layer.towers
    padded = torch.cat([feat, torch.zeros(len(feat), tower.U.in_features - 4)], dim=1)
    expected = layer.mixing_layer(tower.batchnorm(tower.U(padded) / 2)) + feat
    torch.testing.assert_close(found["out0"].cpu(), expected.detach())
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("edge_width", [0, 2])
def test_where_nothing_varies(dtype, edge_width, device):
    """One in-edge, none, or the same one several times: finite in every dtype."""
    graph = dgl.graph(([0, 2, 2, 2, 3], [1, 0, 0, 0, 4]), num_nodes=6)
    layer = steady(4, 4, ROUGH, SCALERS, 2.5, edge_feat_size=edge_width)[0].to(device, dtype)
    feat = features(graph, 4).to(device, dtype).requires_grad_()
    given = [torch.ones(5, 2, device=device, dtype=dtype)] if edge_width else []
    out = layer(graph, feat, *given)
    out.sum().backward()
    assert out.isfinite().all()
    assert feat.grad.isfinite().all()


def test_far_from_zero(device):
    """What all messages share does not cost a variance its digits."""
    graph = distinct()
    layers = steady(4, 4, ["var", "std"], ["identity"], 2.5)
    feat = draw(12, 4)
    randomise(layers[0])
    expected = layers[0].double()(graph, 1000 + feat.double())
    layer = layers[0].float().to(device)
    found = layer(graph, (1000 + feat).to(device)).double().cpu()
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.fixture
def registered():
    """A reducer and a factor of the user, in both libraries."""
    parts = (pnaconv, dgls)
    for part in parts:
        part.AGGREGATORS["median"] = lambda h: h.median(dim=1)[0]
        part.SCALERS["double"] = lambda h, D, delta: 2 * D * h / delta
    yield
    for part in parts:
        del part.AGGREGATORS["median"], part.SCALERS["double"]


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize("builder", [distinct, isolated_rows, permuted_edges])
@pytest.mark.parametrize(
    ("aggregators", "scalers"),
    [
        (["median", "max"], ["identity"]),
        (["mean"], ["double", "attenuation"]),
    ],
    ids=["aggregator", "scaler"],
)
def test_functions_of_the_user(builder, aggregators, scalers, device):
    graph = builder()
    layers = steady(4, 4, aggregators, scalers, 2.5, edge_feat_size=2)
    feat = features(graph, 4)
    assert_same(layers, graph, feat, device, edge_feat=efeat(graph))


@pytest.mark.usefixtures("registered")
def test_functions_of_the_user_without_edges(device):
    layer = steady(4, 4, ["median"], ["double"], 2.5)[0].to(device)
    assert layer(empty(), draw(4, 4).to(device)).shape == (4, 4)


@pytest.mark.parametrize("method", ["message", "reduce_func"])
def test_methods_of_a_subclass_are_called(method, device):
    layers = steady(4, 4, ["mean", "max"], SCALERS, 2.5)
    for layer, part in zip(layers, (pnaconv, dgls), strict=True):

        class Louder(part.PNAConvTower):
            def message(self, edges):
                found = super().message(edges)
                return {"msg": 2 * found["msg"] if method == "message" else found["msg"]}

            def reduce_func(self, nodes):
                found = super().reduce_func(nodes)
                return {"h_neigh": found["h_neigh"] + (method != "message")}

        for tower in layer.towers:
            tower.__class__ = Louder
    graph = distinct()
    assert_same(layers, graph, features(graph, 4), device)


def hook(layer):
    for tower in layer.towers:
        tower.M.register_forward_hook(lambda *given: torch.tanh(given[-1]))


def hook_last(layer):
    for tower in layer.towers:
        tower.U.register_forward_hook(lambda *given: torch.tanh(given[-1]))


def replace(layer):
    for tower in layer.towers:
        torch.manual_seed(3)
        tower.M = nn.Sequential(nn.Linear(tower.M.in_features, tower.in_size), nn.Tanh())


def without_bias(layer):
    for tower in layer.towers:
        torch.manual_seed(3)
        tower.M = nn.Linear(tower.M.in_features, tower.in_size, bias=False)


@pytest.mark.parametrize("change", [hook, hook_last, replace, without_bias])
@pytest.mark.parametrize("edge_width", [0, 2])
def test_hooks_and_replacements(change, edge_width, device):
    graph = distinct()
    layers = steady(4, 4, SMOOTH + ROUGH, SCALERS, 2.5, num_towers=2, edge_feat_size=edge_width)
    for layer in layers:
        change(layer)
    given = {"edge_feat": efeat(graph)} if edge_width else {}
    feat = draw(graph.num_nodes(), 4, seed=STEADY_OF_4)
    assert_same(layers, graph, feat, device, **given)


@pytest.mark.parametrize("edge_feat", [False, True])
def test_no_memory_for_messages(edge_feat, device):
    """Means and variances; DGL holds the ends (E, 32), the messages (E, 16) and mailboxes."""
    graph = random_graph(200, 40_000)
    layers = PNA(16, 16, ["mean", "var", "sum"], SCALERS, 2.5, edge_feat_size=2 * edge_feat)
    feat = features(graph, 16).to(device).requires_grad_()
    given = [efeat(graph).to(device)] if edge_feat else []

    def step(layer):
        layer(graph, feat, *given).sum().backward()

    of_edges = 4 * 16 * graph.num_edges()
    layer = layers[0].to(device)
    step(layer)  # what is made once
    assert peak_memory(partial(step, layer), device) < (4.5 if edge_feat else 0.5) * of_edges


def both(*args, call=lambda layer: None, **kwargs):
    errors = []
    for library in (ours, theirs):
        errors.append(raised(lambda lib=library: call(lib.PNAConv(*args, **kwargs))))
    return [(type(error), str(error)) for error in errors]


@pytest.mark.parametrize("widths", [(4, 3), (3, 4)], ids=str)
def test_widths_that_are_no_multiples(widths):
    mine, other = both(*widths, ["mean"], ["identity"], 2.5, num_towers=3)
    assert mine == other
    assert mine[0] is AssertionError


@pytest.mark.parametrize(
    ("aggregators", "scalers"),
    [(["median"], ["identity"]), (["mean"], ["double"]), ([], ["identity"]), (["mean"], [])],
    ids=["aggregator", "scaler", "no aggregators", "no scalers"],
)
def test_unknown_names(aggregators, scalers):
    graph = regular()
    mine, other = both(
        4, 4, aggregators, scalers, 2.5, call=lambda layer: layer(graph, draw(10, 4))
    )
    assert mine == other


@pytest.mark.parametrize(
    ("nodes", "edges"),
    [((10, 4), None), ((9, 4), (30, 2)), ((10, 4), (29, 2))],
    ids=["no edge features", "nodes", "edges"],
)
def test_wrong_inputs(nodes, edges):
    graph = regular()
    edge_feat = None if edges is None else draw(*edges)
    mine, other = both(
        4,
        4,
        ["mean"],
        SCALERS,
        2.5,
        edge_feat_size=2,
        call=lambda layer: layer(graph, draw(*nodes), edge_feat),
    )
    assert mine == other


@pytest.mark.parametrize(("nodes", "edges"), [(3, 2), (4, 3)], ids=["nodes", "edges"])
def test_wrong_widths(nodes, edges):
    graph = regular()
    mine, other = both(
        4,
        4,
        ["mean"],
        SCALERS,
        2.5,
        edge_feat_size=2,
        call=lambda layer: layer(graph, draw(10, nodes), draw(30, edges)),
    )
    assert mine[0] is other[0] is RuntimeError


@pytest.mark.parametrize("builder", [block, bipartite_up])
def test_two_sets_of_nodes_are_refused(builder):
    graph = builder()
    layer = PNA(4, 4, ["mean"], SCALERS, 2.5)[0]
    error = raised(partial(layer, graph, draw(graph.num_src_nodes(), 4)))
    assert isinstance(error, dgl.DGLError)
    assert "expected a homogeneous graph" in str(error)


@pytest.mark.parametrize("builder", [self_loops, coo_only])
def test_own_container(builder, device):
    graph = builder()
    layer = PNA(4, 4, [*SMOOTH, "var"], SCALERS, 2.5)[0].to(device)
    feat = features(graph, 4).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat), layer(graph, feat))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    PNA(4, 4, ["mean"], SCALERS, 2.5)[0](graph, features(graph, 4))
    assert not graph.ndata
    assert not graph.edata
