"""The cuGraph layers are DGL's around the aggregation, and DGL's usual layers in their results.

``tests/nn/cugraph_ops.py`` says what stands in for the package that DGL's own need. The usual
layers with the same weights are a second oracle, which does not depend on it.
"""

from __future__ import annotations

import importlib
import sys
from functools import partial

import dgl_flash
import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from tests.graphs import block, isolated_rows, regular, zoo
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    for_dgl,
    raised,
    run,
    twins,
)
from tests.numerics import assert_accurate

FEW_DESTINATIONS = sorted(zoo().keys() - TWO_NODE_SETS | {"block"})
every_graph = pytest.mark.parametrize("name", FEW_DESTINATIONS)
every_aggregator = pytest.mark.parametrize("aggr", ["mean", "sum", "min", "max"])
every_width = pytest.mark.parametrize("widths", [(6, 4), (4, 6), (1, 1), (33, 8)], ids=str)
BUILDERS = [regular, isolated_rows, block]
every_builder = pytest.mark.parametrize("builder", BUILDERS)
CLASSES = {
    "CuGraphSAGEConv": (6, 4),
    "CuGraphGATConv": (6, 4, 2),
    "CuGraphRelGraphConv": (6, 4, 3),
}
every_class = pytest.mark.parametrize("name", CLASSES)


def features(graph, width=6):
    return draw(graph.num_src_nodes(), width)


def types_of(graph, num_types=3):
    generator = torch.Generator().manual_seed(5)
    return (torch.rand(graph.num_edges(), generator=generator) ** 2 * num_types).long()


def more(name, graph):
    return {"etypes": types_of(graph)} if name == "CuGraphRelGraphConv" else {}


@pytest.mark.parametrize("cls", CLASSES)
@every_graph
def test_zoo(cls, name, device):
    graph = zoo()[name](torch.int64)
    layers = twins(cls, *CLASSES[cls])
    assert_same(layers, graph, features(graph), device, **more(cls, graph))


@every_class
@every_idtype
@every_builder
def test_id_types(name, idtype, builder, device):
    graph = builder(idtype)
    layers = twins(name, *CLASSES[name])
    assert_same(layers, graph, features(graph), device, **more(name, graph))


@every_aggregator
@every_width
@every_builder
@pytest.mark.parametrize("bias", [True, False])
def test_sage(aggr, widths, builder, bias, device):
    graph = builder()
    layers = twins("CuGraphSAGEConv", *widths, aggr, bias=bias)
    assert_same(layers, graph, features(graph, widths[0]), device)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"residual": True},
        {"residual": True, "bias": False, "activation": torch.tanh},
        {"negative_slope": 0.7, "activation": nn.PReLU()},
    ],
    ids=["plain", "no bias", "residual", "activation", "slope"],
)
@pytest.mark.parametrize("widths", [(6, 4, 2), (6, 3, 2), (4, 8, 1), (5, 1, 3)], ids=str)
@every_builder
def test_gat(options, widths, builder, device):
    graph = builder()
    layers = twins("CuGraphGATConv", *widths, **options)
    assert_same(layers, graph, features(graph, widths[0]), device)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"regularizer": "basis", "num_bases": 2},
        {"regularizer": "basis", "num_bases": 5, "self_loop": False},
        {"self_loop": False, "bias": False, "num_bases": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("apply_norm", [False, True])
@pytest.mark.parametrize("widths", [(6, 4), (4, 6), (16, 12)], ids=str)
@every_builder
def test_rel_graph(options, apply_norm, widths, builder, device):
    graph = builder()
    layers = twins("CuGraphRelGraphConv", *widths, 3, apply_norm=apply_norm, **options)
    feat = features(graph, widths[0])
    assert_same(layers, graph, feat, device, etypes=types_of(graph))


def judge(found, layer, graph, feat, **kwargs):
    """Against a layer of DGL that is called as it is."""
    graph = for_dgl(graph)
    usual, exact = (
        run(layer, graph, feat, "cpu", dtype, **kwargs) for dtype in (torch.float32, torch.float64)
    )
    for key in ("out0", "grad_feat0"):
        assert_accurate(found[key].cpu(), usual[key], exact[key], what=key, ulps=64)
    return exact


@every_builder
@every_width
def test_the_usual_sage_layer(builder, widths, device):
    graph, width = builder(), widths[0]
    feat = features(graph, width)
    other, mine = theirs.SAGEConv(*widths, "mean"), ours.CuGraphSAGEConv(*widths)
    with torch.no_grad():
        other.fc_self.bias.copy_(draw(widths[1]))
        mine.linear.weight[:, :width] = other.fc_neigh.weight
        mine.linear.weight[:, width:] = other.fc_self.weight
        mine.linear.bias.copy_(other.fc_self.bias)
    found = run(mine, graph, feat, device, torch.float32)
    exact = judge(found, other, graph, feat)
    parts = exact["grad_fc_neigh.weight"], exact["grad_fc_self.weight"]
    torch.testing.assert_close(
        found["grad_linear.weight"].cpu().double(), torch.cat(parts, 1), rtol=1e-4, atol=1e-4
    )


@every_builder
@pytest.mark.parametrize("num_heads", [1, 3])
def test_the_usual_gat_layer(builder, num_heads, device):
    graph = builder()
    feat = features(graph)
    other = theirs.GATConv(6, 4, num_heads, allow_zero_in_degree=True, activation=torch.tanh)
    mine = ours.CuGraphGATConv(6, 4, num_heads, activation=torch.tanh)
    with torch.no_grad():
        other.bias.copy_(draw(4 * num_heads))
        mine.fc.weight.copy_(other.fc.weight)
        mine.bias.copy_(other.bias)
        mine.attn_weights.copy_(torch.cat([other.attn_l.flatten(), other.attn_r.flatten()]))
    found = run(mine, graph, feat, device, torch.float32)
    exact = judge(found, other, graph, feat)
    parts = exact["grad_attn_l"].flatten(), exact["grad_attn_r"].flatten()
    torch.testing.assert_close(
        found["grad_attn_weights"].cpu().double(), torch.cat(parts), rtol=1e-4, atol=1e-4
    )


@every_builder
@pytest.mark.parametrize("num_bases", [None, 2])
@pytest.mark.parametrize("self_loop", [False, True])
@pytest.mark.parametrize("apply_norm", [False, True])
def test_the_usual_rel_graph_layer(builder, num_bases, self_loop, apply_norm, device):
    """Same weights from the same seed; the mean of a relation is a factor of its edges."""
    graph = builder()
    feat, types = features(graph), types_of(graph)
    regularizer = None if num_bases is None else "basis"
    options = {"regularizer": regularizer, "num_bases": num_bases, "self_loop": self_loop}
    layers = []
    for make in (partial(ours.CuGraphRelGraphConv, apply_norm=apply_norm), theirs.RelGraphConv):
        torch.manual_seed(3)
        layers.append(make(6, 4, 3, **options))
    mine, other = layers
    drawn = [other.linear_r.W, *([other.loop_weight[None]] if self_loop else [])]
    assert torch.equal(mine.W, torch.cat(drawn))
    pairs = list(zip(graph.edges()[1].tolist(), types.tolist(), strict=True))
    norm = torch.tensor([[1 / pairs.count(pair)] for pair in pairs]) if apply_norm else None
    found = run(mine, graph, feat, device, torch.float32, etypes=types)
    judge(found, other, graph, feat, etypes=types, norm=norm)


@every_class
@pytest.mark.parametrize("max_in_degree", [None, 1, 8, 1000])
def test_max_in_degree_changes_nothing(name, max_in_degree, device):
    for graph in (regular(), block()):
        layer = twins(name, *CLASSES[name])[0].to(device)
        given = (graph, features(graph).to(device), *more(name, graph).values())
        assert torch.equal(layer(*given, max_in_degree), layer(*given))


@every_class
def test_dropout_draws_the_same_mask(name):
    graph = regular()
    option = {"dropout": 0.5} if name == "CuGraphRelGraphConv" else {"feat_drop": 0.5}
    results = []
    for layer, where in zip(
        twins(name, *CLASSES[name], **option), (graph, for_dgl(graph)), strict=True
    ):
        torch.manual_seed(1)
        results.append(layer(where, features(graph), **more(name, graph)))
    torch.testing.assert_close(*results)


@every_class
def test_our_own_graph(name, device):
    graph = regular()
    layer = twins(name, *CLASSES[name])[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=10)
    given = (features(graph).to(device), *more(name, graph).values())
    assert torch.equal(layer(own, *given), layer(graph, *given))


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32], ids=str)
@pytest.mark.parametrize("apply_norm", [False, True])
def test_dtypes_of_relations(dtype, apply_norm, device):
    graph = regular()
    layer = twins("CuGraphRelGraphConv", 6, 4, 3, apply_norm=apply_norm)[0].to(device)
    feat, types = features(graph).to(device), types_of(graph)
    expected = layer(graph, feat, types)
    assert torch.equal(layer(graph, feat, types.to(dtype)), expected)
    assert torch.equal(layer(graph, feat, types.tolist()), expected)


def test_a_mean_over_many_edges_in_float16(device):
    """Their number is none of float16, its inverse is."""
    count = 100_000
    graph = dgl.graph((torch.zeros(count, dtype=torch.int64), torch.ones(count).long()))
    layer = ours.CuGraphRelGraphConv(4, 4, 1, self_loop=False, apply_norm=True).half().to(device)
    feat = torch.ones(2, 4, dtype=torch.float16, device=device)
    found = layer(graph, feat, torch.zeros(count, dtype=torch.int32))[1]
    torch.testing.assert_close(found, feat[0] @ layer.W[0], rtol=2e-2, atol=2e-2)


def test_a_linear_with_a_hook_is_called(device):
    graph = regular()
    layer = twins("CuGraphSAGEConv", 6, 4)[0].to(device)
    feat = features(graph).to(device)
    expected = layer(graph, feat)
    layer.linear.register_forward_hook(lambda *given: given[-1] * 2)
    torch.testing.assert_close(layer(graph, feat), 2 * expected)


@pytest.mark.parametrize("apply_norm", [False, True])
@pytest.mark.parametrize("wrong", [3, -4])
def test_relations_out_of_range(apply_norm, wrong):
    graph = regular()
    types = types_of(graph)
    types[7] = wrong
    layer = ours.CuGraphRelGraphConv(6, 4, 3, apply_norm=apply_norm)
    assert type(raised(partial(layer, graph, features(graph), types))) is IndexError
    assert type(raised(partial(layer, graph, features(graph), types[:7]))) is dgl.DGLError
    assert type(raised(partial(layer, graph, features(graph), types.float()))) is TypeError


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("CuGraphSAGEConv", (6, 4, "gcn")),
        ("CuGraphRelGraphConv", (6, 4, 3, "bdd", 2)),
        ("CuGraphRelGraphConv", (6, 4, 3, "basis")),
    ],
)
def test_wrong_options(name, arguments):
    mine, other = (raised(partial(getattr(lib, name), *arguments)) for lib in (ours, theirs))
    # A set is part of the text, and has any order.
    assert (type(mine), sorted(str(mine))) == (type(other), sorted(str(other)))


@every_class
@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (lambda feat: (feat, feat), TypeError),
        (lambda feat: feat[:-1], dgl.DGLError),
        (lambda feat: feat[0], dgl.DGLError),
        (lambda feat: feat.expand(2, -1, -1), dgl.DGLError),
        (lambda feat: feat.unsqueeze(1), ValueError),
    ],
)
def test_wrong_features(name, spoil, error):
    graph = regular()
    layer = twins(name, *CLASSES[name])[0]
    found = raised(partial(layer, graph, spoil(features(graph)), **more(name, graph)))
    assert type(found) is error
    if error is dgl.DGLError:
        assert str(found).startswith("Expect number of features to match number of nodes (len(u)).")
    else:
        assert str(found).startswith(f"{name}: expected `feat`")


@every_class
def test_destinations_have_to_be_sources(name):
    """As many rows as DGL reads of the features there would not exist."""
    graph = dgl_flash.graph(([0, 1], [1, 4]), num_src_nodes=2, num_dst_nodes=5)
    layer = twins(name, *CLASSES[name])[0]
    etypes = {"etypes": torch.tensor([0, 1])} if name == "CuGraphRelGraphConv" else {}
    found = raised(partial(layer, graph, draw(2, 6), **etypes))
    assert type(found) is ValueError
    assert "2 sources and 5 destinations" in str(found)


def bases():
    return [
        importlib.import_module(f"{package}.conv.cugraph_base").CuGraphBaseConv
        for package in ("dgl_flash.nn", "dgl.nn.pytorch")
    ]


def test_the_base_class():
    offsets = torch.tensor([0, 2, 2, 5])
    for size in (4, 7):
        found, expected = (base().pad_offsets(offsets, size) for base in bases())
        assert torch.equal(found, expected)
    for base in bases():
        assert type(raised(partial(base().pad_offsets, offsets, 3))) is RuntimeError
        assert type(raised(base().reset_parameters)) is NotImplementedError
        assert type(raised(partial(base(), 1, 2))) is NotImplementedError


@every_class
def test_no_package_is_asked_for(name):
    assert issubclass(getattr(ours, name), bases()[0])
    assert getattr(ours, name).MAX_IN_DEGREE_MFG == getattr(theirs, name).MAX_IN_DEGREE_MFG
    assert "pylibcugraphops" not in sys.modules
