"""RelGraphConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash
import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from dgl_flash.structure import relations, tiles
from tests.graphs import batched, bipartite_down, block, regular, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_graph,
    every_idtype,
    for_dgl,
    raised,
    twins,
)

RGCN = partial(twins, "RelGraphConv")
OPTIONS = [
    {},
    {"regularizer": "basis", "num_bases": 2},
    {"regularizer": "basis"},
    {"regularizer": "bdd", "num_bases": 2},
    {"bias": False},
    {"self_loop": False},
    {"bias": False, "self_loop": False},
    {"layer_norm": True},
    {"activation": torch.tanh},
    {"activation": nn.PReLU(), "layer_norm": True, "regularizer": "basis", "num_bases": 1},
]
every_option = pytest.mark.parametrize(
    "options", [pytest.param(option, id=str(i)) for i, option in enumerate(OPTIONS)]
)
every_norm = pytest.mark.parametrize("shape", [None, (1,), (4,)], ids=str)
# What DGL says of a graph without edges.
pytestmark = pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge")


@pytest.fixture(params=["chosen", "tiles", "chunks"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, what a GPU has, and what large graphs have."""
    if request.param == "chunks":
        monkeypatch.setattr(relations, "FEWEST_EDGES", 1)
    if request.param == "tiles":
        for module in (tiles, relations):
            monkeypatch.setattr(module, "use_tiles", lambda device: True)


def features(graph, width=6):
    return draw(graph.num_src_nodes(), width)


def types_of(graph, num_types=3, seed=5):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(graph.num_edges(), generator=generator) ** 2 * num_types).long()


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    layers = RGCN(6, 4, 3, self_loop=graph.num_src_nodes() >= graph.num_dst_nodes())
    assert_same(layers, graph, features(graph), device, etypes=types_of(graph))


@every_idtype
@pytest.mark.parametrize("types", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("builder", [batched, bipartite_down, block])
def test_all_id_types(builder, idtype, types, device):
    graph = builder(idtype)
    assert_same(RGCN(6, 4, 3), graph, features(graph), device, etypes=types_of(graph).to(types))


@every_option
@every_norm
@pytest.mark.parametrize("builder", [regular, block])
def test_options(options, shape, builder, device):
    graph = builder()
    norm = None if shape is None else draw(graph.num_edges(), *shape, seed=3)
    layers = RGCN(6, 4, 3, **options)
    assert_same(layers, graph, features(graph), device, etypes=types_of(graph), norm=norm)


@pytest.mark.parametrize("widths", [(16, 12), (12, 16), (1, 1)], ids=str)
def test_widths(widths, device):
    """Above a width of 8 DGL sorts the messages."""
    graph = regular()
    layers = RGCN(*widths, 3)
    assert_same(layers, graph, features(graph, widths[0]), device, etypes=types_of(graph))


@pytest.mark.parametrize("presorted", [False, True])
def test_sorted_edges(presorted, device):
    graph = regular()
    types = types_of(graph).sort().values
    layers = RGCN(6, 4, 3)
    assert_same(layers, graph, features(graph), device, etypes=types, presorted=presorted)


def test_relations_without_edges(device):
    graph = regular()
    types = 40 + 3 * types_of(graph)
    assert_same(RGCN(6, 4, 90), graph, features(graph), device, etypes=types)


def test_a_norm_of_one_dimension(device):
    """DGL's documentation has it, its code does not."""
    graph = regular()
    layer = RGCN(6, 4, 3)[0].to(device)
    feat, types = features(graph).to(device), types_of(graph)
    norm = draw(graph.num_edges(), seed=3).to(device)
    assert torch.equal(layer(graph, feat, types, norm), layer(graph, feat, types, norm[:, None]))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float16, torch.float64], ids=str)
def test_a_norm_of_another_dtype(dtype, device):
    graph = regular()
    feat, types = features(graph), types_of(graph)
    norm = (3 * draw(graph.num_edges(), 1, seed=3)).to(dtype)
    mine, other = RGCN(6, 4, 3)
    found = mine.to(device)(graph, feat.to(device), types, norm.to(device))
    expected = other(graph, feat, types, norm)
    # DGL multiplies in the dtype of the features.
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_relations_as_a_list(device):
    graph = regular()
    layer = RGCN(6, 4, 3)[0].to(device)
    feat, types = features(graph).to(device), types_of(graph)
    assert torch.equal(layer(graph, feat, types.tolist()), layer(graph, feat, types))


def test_the_order_of_the_edges_does_not_matter(device):
    layer = RGCN(6, 4, 3)[0].to(device)
    graph = regular()
    types, order = types_of(graph), torch.randperm(30)
    src, dst = graph.edges()
    other = dgl.graph((src[order], dst[order]), num_nodes=10)
    feat = features(graph).to(device)
    torch.testing.assert_close(layer(other, feat, types[order]), layer(graph, feat, types))


def test_dropout_comes_last(device):
    graph = regular()
    mine, other = RGCN(6, 4, 3, dropout=0.5)
    feat, types = features(graph), types_of(graph)
    results = []
    for layer, where in ((mine, graph), (other, for_dgl(graph))):
        torch.manual_seed(1)
        results.append(layer(where, feat, types))
    torch.testing.assert_close(*results)
    assert_same((mine.eval(), other.eval()), graph, feat, device, etypes=types)


def test_types_that_change_between_calls(device):
    """What is cached with the tensor of types is right after it is written to."""
    graph = regular()
    layer = RGCN(6, 4, 3)[0].to(device)
    feat, types = features(graph).to(device), types_of(graph).to(device)
    layer(graph, feat, types)
    types.copy_(2 - types)
    assert torch.equal(layer(graph, feat, types), layer(graph, feat, types.clone()))


def test_our_own_graph(device):
    graph = regular()
    mine = RGCN(6, 4, 3)[0].to(device)
    feat, types = features(graph).to(device), types_of(graph)
    own = dgl_flash.graph(graph.edges(), num_nodes=10)
    assert torch.equal(mine(own, feat, types), mine(graph, feat, types))


def test_message_is_dgls(device):
    graph = regular()
    mine, other = RGCN(6, 4, 3)
    feat, types = features(graph), types_of(graph)
    results = []
    for layer in (mine, other):
        layer(graph, feat, types)
        with graph.local_scope():
            graph.ndata["h"] = feat
            graph.edata["etype"] = types
            graph.edata["norm"] = draw(30, 1, seed=3)
            graph.apply_edges(layer.message)
            results.append(graph.edata["m"])
    torch.testing.assert_close(*results)


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which differ between releases
def test_compiled(device):
    """Sorting by relation interrupts the traced graph; the results are the eager ones."""
    torch._dynamo.reset()
    layer = RGCN(6, 4, 3)[0].to(device)
    compiled = torch.compile(layer, backend="aot_eager")
    for graph in (regular(), batched(), regular()):
        feat, types = features(graph).to(device), types_of(graph).to(device)
        for _ in range(2):
            results = []
            for call in (layer, compiled):
                layer.zero_grad()
                out = call(graph, feat, types)
                out.square().sum().backward()
                results.append([out, *(parameter.grad.clone() for parameter in layer.parameters())])
            torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    "arguments",
    [(6, 4, 3, "other"), (6, 4, 3, "bdd"), (6, 4, 3, "bdd", 4), (6, 4, 3, "other", 2)],
    ids=str,
)
def test_wrong_options(arguments):
    mine, other = (raised(lambda nn=nn: nn.RelGraphConv(*arguments)) for nn in (ours, theirs))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("name", ["etypes", "norm"])
def test_too_few(name):
    graph = regular()
    given = {"etypes": types_of(graph), "norm": draw(30, 1)}
    given[name] = given[name][:7]
    calls = [partial(layer, graph, features(graph), **given) for layer in RGCN(6, 4, 3)]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("wrong", [3, -4])
def test_relations_out_of_range(wrong):
    graph = regular()
    types = types_of(graph)
    types[7] = wrong
    calls = [partial(layer, graph, features(graph), types) for layer in RGCN(6, 4, 3)]
    assert [type(raised(call)) for call in calls] == [IndexError, IndexError]


def test_a_pair_is_refused():
    graph = regular()
    feat = features(graph)
    error = raised(lambda: RGCN(6, 4, 3)[0](graph, (feat, feat), types_of(graph)))
    assert type(error) is TypeError
    assert "one tensor" in str(error)
