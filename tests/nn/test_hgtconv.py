"""HGTConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch
from torch import nn

from dgl_flash.structure import relations, tiles
from tests.graphs import batched, bipartite_up, block, empty, isolated_rows, regular, zoo
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    for_dgl,
    raised,
    randomise,
    twins,
)

HGT = partial(twins, "HGTConv", dropout=0.0)
# DGL reads the features of both ends from one tensor.
one_tensor_graph = pytest.mark.parametrize(
    "name", sorted((zoo().keys() - TWO_NODE_SETS) | {"block"})
)
OPTIONS = [
    {},
    {"use_norm": True},
    {"in_size": 8},
    {"in_size": 8, "use_norm": True},
    {"num_heads": 1},
    {"num_heads": 1, "head_size": 1},
    {"num_heads": 8, "head_size": 3},
    {"num_ntypes": 1, "num_etypes": 1},
]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)
# What DGL says of a graph without edges.
pytestmark = pytest.mark.filterwarnings("ignore:The input graph for the user-defined edge")


@pytest.fixture(params=["chosen", "tiles"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, and what a GPU has."""
    if request.param == "tiles":
        for module in (tiles, relations):
            monkeypatch.setattr(module, "use_tiles", lambda device: True)


def build(in_size=6, head_size=4, num_heads=2, num_ntypes=2, num_etypes=3, **options):
    return HGT(in_size, head_size, num_heads, num_ntypes, num_etypes, **options)


def draw_types(count, num_types, seed):
    drawn = torch.rand(count, generator=torch.Generator().manual_seed(seed))
    return (drawn**2 * num_types).long()


def types_of(graph, num_ntypes=2, num_etypes=3):
    return {
        "ntype": draw_types(graph.num_src_nodes(), num_ntypes, seed=4),
        "etype": draw_types(graph.num_edges(), num_etypes, seed=5),
    }


def features(graph, width=6):
    return draw(graph.num_src_nodes(), width)


@one_tensor_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    # A key is rounded before it meets its query, in either library.
    assert_same(build(), graph, features(graph), device, ulps=256, **types_of(graph))


@every_idtype
@pytest.mark.parametrize("types", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("builder", [batched, block])
def test_all_id_types(builder, idtype, types, device):
    graph = builder(idtype)
    given = {name: value.to(types) for name, value in types_of(graph).items()}
    assert_same(build(), graph, features(graph), device, **given)


@every_option
@pytest.mark.parametrize("builder", [regular, isolated_rows, block])
def test_options(options, builder, device):
    graph = builder()
    counts = {key: options[key] for key in options if key.endswith("types")}
    feat = features(graph, options.get("in_size", 6))
    assert_same(build(**options), graph, feat, device, ulps=128, **types_of(graph, **counts))


@pytest.mark.parametrize("presorted", [False, True])
def test_a_heterograph_made_homogeneous(presorted, device):
    """Sorted by type, as is promised with `presorted`."""
    generator = torch.Generator().manual_seed(0)
    sizes = {"paper": 20, "author": 10, "venue": 3}
    relations_of = [
        ("paper", "cites", "paper"),
        ("author", "writes", "paper"),
        ("paper", "rev_writes", "author"),
        ("venue", "hosts", "paper"),
        ("author", "never", "venue"),
    ]
    edges = {
        (src, name, dst): tuple(
            torch.randint(sizes[end], (0 if name == "never" else 30,), generator=generator)
            for end in (src, dst)
        )
        for src, name, dst in relations_of
    }
    graph = dgl.to_homogeneous(dgl.heterograph(edges, sizes))
    given = {"ntype": graph.ndata[dgl.NTYPE], "etype": graph.edata[dgl.ETYPE]}
    layers = build(num_ntypes=3, num_etypes=5)
    assert_same(layers, graph, features(graph), device, presorted=presorted, **given)


def test_types_without_nodes_and_edges(device):
    graph = regular()
    given = {name: 7 + 2 * value for name, value in types_of(graph).items()}
    layers = build(num_ntypes=12, num_etypes=90)
    assert_same(layers, graph, features(graph), device, **given)


@pytest.mark.parametrize("builder", [empty, isolated_rows])
def test_nodes_without_in_edges_keep_their_input(builder, device):
    """Through the gate, and with the rows of zeros that the last matrix gives."""
    graph = builder()
    layer = build(in_size=8)[0].to(device)
    randomise(layer)
    feat, given = features(graph, 8).to(device), types_of(graph)
    out = layer(graph, feat, **given)
    alone = graph.in_degrees().to(device) == 0
    gate = layer.skip[given["ntype"].to(device)].sigmoid().unsqueeze(1)
    torch.testing.assert_close(out[alone], (feat * (1 - gate))[alone])


def test_dropout_comes_before_the_gate(device):
    graph = regular()
    mine, other = build(dropout=0.5)
    feat, given = features(graph), types_of(graph)
    results = []
    for layer, where in ((mine, graph), (other, for_dgl(graph))):
        torch.manual_seed(1)
        results.append(layer(where, feat, **given))
    torch.testing.assert_close(*results)
    assert_same((mine.eval(), other.eval()), graph, feat, device, **given)


def test_the_order_of_the_edges_does_not_matter(device):
    layer = build()[0].to(device)
    graph, order = regular(), torch.randperm(30)
    given = types_of(graph)
    src, dst = graph.edges()
    other = dgl.graph((src[order], dst[order]), num_nodes=10)
    feat = features(graph).to(device)
    torch.testing.assert_close(
        layer(other, feat, given["ntype"], given["etype"][order]), layer(graph, feat, **given)
    )


def test_types_that_change_between_calls(device):
    """What is cached with the tensor of types is right after it is written to."""
    graph = regular()
    layer = build()[0].to(device)
    feat = features(graph).to(device)
    ntype, etype = types_of(graph).values()
    before = layer(graph, feat, ntype, etype)
    etype.copy_(2 - etype)
    after = layer(graph, feat, ntype, etype)
    assert torch.equal(after, layer(graph, feat, ntype, etype.clone()))
    assert not torch.allclose(before, after)


def test_our_own_graph(device):
    graph = regular()
    layer = build()[0].to(device)
    feat, given = features(graph).to(device), types_of(graph)
    own = dgl_flash.graph(graph.edges(), num_nodes=10)
    assert torch.equal(layer(own, feat, **given), layer(graph, feat, **given))


def test_message_is_dgls(device):
    graph = regular()
    feat, given = features(graph), types_of(graph)
    results = []
    for layer in build():
        layer(graph, feat, **given)
        with graph.local_scope():
            for seed, name in enumerate("kqv"):
                graph.ndata[name] = draw(10, 2, 4, seed=seed)
            graph.edata["etype"] = given["etype"]
            graph.apply_edges(layer.message)
            results.append((graph.edata["a"], graph.edata["m"]))
    torch.testing.assert_close(*results)


def hooked(layer):
    for part in (*layer.relation_att, layer.linear_a, *layer.relation_msg):
        part.register_forward_hook(lambda *given: given[-1] * 1.5)


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, *args):
        return torch.tanh(self.base(*args))


def adapted(layer):
    layer.relation_msg[1] = Adapter(layer.relation_msg[1])
    layer.linear_q = Adapter(layer.linear_q)


@pytest.mark.parametrize("builder", [regular, isolated_rows, block])
@pytest.mark.parametrize("change", [hooked, adapted])
def test_submodules_that_do_more_are_called(change, builder, device):
    graph = builder()
    layers = build()
    for layer in layers:
        change(layer)
    assert_same(layers, graph, features(graph), device, ulps=128, **types_of(graph))


def test_both_ways_are_the_same(device):
    """By pairs, and by calling the matrices on all edges."""
    graph = regular()
    layer = build()[0].to(device)
    randomise(layer)
    feat, given = features(graph).to(device), types_of(graph)
    expected = layer(graph, feat, **given)
    layer.relation_att[0].register_forward_hook(lambda *given: None)
    torch.testing.assert_close(layer(graph, feat, **given), expected)


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which differ between releases
def test_compiled(device):
    """Sorting by relation interrupts the traced graph; the results are the eager ones."""
    torch._dynamo.reset()
    layer = build()[0].to(device)
    compiled = torch.compile(layer, backend="aot_eager")
    for graph in (regular(), batched(), regular()):
        feat, given = features(graph).to(device), types_of(graph)
        results = []
        for call in (layer, compiled):
            layer.zero_grad()
            out = call(graph, feat, **given)
            out.square().sum().backward()
            results.append([out, *(parameter.grad.clone() for parameter in layer.parameters())])
        torch.testing.assert_close(*results)


def test_it_is_explained(device):
    graph = regular()
    layer = build()[0].to(device)
    given = {name: value.to(device) for name, value in types_of(graph).items()}
    found = dgl_flash.explain(layer, graph, features(graph).to(device), **given)
    ops = [choice.op for choice in found.choices]
    assert ops[:2] == ["relational_attention", "dot_attention"]
    assert found.fused == (device.type == "cuda")


@pytest.mark.parametrize("wrong", [3, -4])
def test_relations_out_of_range(wrong):
    graph = regular()
    given = types_of(graph)
    given["etype"][7] = wrong
    calls = [partial(layer, graph, features(graph), **given) for layer in build()]
    assert [type(raised(call)) for call in calls] == [IndexError, IndexError]


def test_too_few_relations():
    graph = regular()
    given = types_of(graph)
    given["etype"] = given["etype"][:7]
    mine, other = (raised(partial(layer, graph, features(graph), **given)) for layer in build())
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_wrong_types_of_nodes():
    graph = regular()
    layer, feat, (ntype, etype) = build()[0], features(graph), types_of(graph).values()
    for spoiled in (ntype[:-1], ntype[:, None], ntype.new_zeros(11)):
        with pytest.raises(ValueError, match=r"HGTConv: expected `ntype` of shape \(N,\) = \(10,"):
            layer(graph, feat, spoiled, etype)
    with pytest.raises(IndexError, match=r"\[0, 2\)"):
        layer(graph, feat, ntype + 1, etype)
    with pytest.raises(TypeError, match="int32 or int64"):
        layer(graph, feat, ntype.float(), etype)


def test_a_pair_is_refused():
    graph = regular()
    feat = features(graph)
    with pytest.raises(TypeError, match="one tensor"):
        build()[0](graph, (feat, feat), **types_of(graph))


def test_one_tensor_for_two_sets_of_nodes_is_refused():
    graph = bipartite_up()
    with pytest.raises(ValueError, match=r"`q` of shape \(N_dst, H, D\) = \(5, "):
        build()[0](graph, features(graph), **types_of(graph))
