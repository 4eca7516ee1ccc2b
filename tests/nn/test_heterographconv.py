"""HeteroGraphConv gives DGL's results and gradients, whosever layers it holds."""

from __future__ import annotations

from functools import partial

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from tests.graphs import two_relations
from tests.nn.common import draw, every_idtype, raised, randomise
from tests.numerics import pseudo_random

RELATIONS = {
    ("user", "follows", "user"): ([0, 1, 3, 3, 2], [1, 2, 0, 2, 2]),
    ("user", "rates", "item"): ([0, 1, 1, 2, 3, 0], [4, 0, 4, 2, 2, 2]),
    ("shop", "sells", "item"): ([0, 1, 2, 2], [5, 4, 4, 1]),
    ("item", "part of", "item"): ([], []),
    ("item", "pleases", "user"): ([0, 5, 2], [0, 0, 3]),
}
COUNTS = {"user": 4, "item": 6, "shop": 3}
WIDTHS = {"user": 5, "item": 5, "shop": 5}
OUT = 3


def graph_of(idtype=torch.int64):
    ends = {
        relation: tuple(torch.tensor(side, dtype=idtype) for side in pair)
        for relation, pair in RELATIONS.items()
    }
    return dgl.heterograph(ends, COUNTS)


def block_of(idtype=torch.int64):
    seeds = {"user": torch.tensor([0, 2], dtype=idtype), "item": torch.tensor([2, 4, 0]).to(idtype)}
    graph = graph_of(idtype)
    return dgl.to_block(dgl.in_subgraph(graph, seeds), seeds)


CONVS = {
    "GraphConv": lambda lib: lib.GraphConv(5, OUT, norm="right"),
    "SAGEConv": lambda lib: lib.SAGEConv(5, OUT, "mean"),
    "SAGEConv gcn": lambda lib: lib.SAGEConv((5, 5), OUT, "gcn"),
    "GATConv": lambda lib: lib.GATConv(5, OUT, 2, residual=True),
    "GATv2Conv": lambda lib: lib.GATv2Conv((5, 5), OUT, 2),
    "GINConv": lambda lib: lib.GINConv(nn.Linear(5, OUT), learn_eps=True),
}
every_conv = pytest.mark.parametrize("conv", [*CONVS])
CONVS["SAGEConv pool"] = lambda lib: lib.SAGEConv((5, 5), OUT, "pool")
AGGREGATORS = ("sum", "max", "min", "mean", "stack")
every_aggregator = pytest.mark.parametrize("aggregate", AGGREGATORS)
# Which library the container is from, and which the layers.
MIXES = {"ours": (ours, ours), "DGL's in ours": (ours, theirs), "ours in DGL's": (theirs, ours)}
every_mix = pytest.mark.parametrize("mix", MIXES)
# DGL's, about relations without edges.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not contain valid edges")


def container(library, parts, conv="GraphConv", keys=None, aggregate="sum"):
    torch.manual_seed(7)
    keys = [relation[1] for relation in RELATIONS] if keys is None else keys
    layer = library.HeteroGraphConv({key: CONVS[conv](parts) for key in keys}, aggregate)
    randomise(layer)
    return layer


def feats(graph, seed=0):
    return {
        ntype: draw(graph.num_src_nodes(ntype), WIDTHS[ntype], seed=seed + i)
        for i, ntype in enumerate(graph.srctypes)
    }


def pairs(graph):
    src = {ntype: value for ntype, value in feats(graph).items() if ntype != "shop"}
    dst = {t: draw(graph.num_dst_nodes(t), 5, seed=9) for t in graph.dsttypes if t != "user"}
    return src, dst


def run(layer, graph, inputs, *more, device="cpu", dtype=torch.float64):
    """Outputs in order, and all gradients."""
    layer = layer.to(device, dtype)
    layer.zero_grad(set_to_none=True)

    def leaf(value):
        if isinstance(value, tuple):
            return tuple(leaf(part) for part in value)
        return {k: v.detach().to(device, dtype).requires_grad_() for k, v in value.items()}

    inputs = leaf(inputs)
    outputs = layer(graph, inputs, *more)
    torch.autograd.backward(list(outputs.values()), [pseudo_random(o) for o in outputs.values()])
    sides = inputs if isinstance(inputs, tuple) else (inputs,)
    results = [(f"out {ntype}", out.detach().cpu()) for ntype, out in outputs.items()]
    leaves = [(f"{i} {k}", v) for i, side in enumerate(sides) for k, v in side.items()]
    for name, value in (*leaves, *layer.named_parameters()):
        grad = torch.zeros_like(value) if value.grad is None else value.grad
        results.append((name, grad.cpu()))
    return results


def assert_equal(found, wanted):
    assert [name for name, _ in found] == [name for name, _ in wanted]
    for (name, value), (_, expected) in zip(found, wanted, strict=True):
        assert value.dtype == expected.dtype
        torch.testing.assert_close(value, expected, msg=lambda text, name=name: f"{name}: {text}")


def compare(graph, inputs, *more, mix="ours", device="cpu", **options):
    mine, other = container(*MIXES[mix], **options), container(theirs, theirs, **options)
    other.load_state_dict(mine.state_dict())
    found = run(mine, graph, inputs, *more, device=device)
    assert_equal(found, run(other, graph, inputs, *more))
    return dict(found)


# What it computes


@every_conv
@every_mix
@every_idtype
def test_graphs(conv, mix, idtype):
    graph = graph_of(idtype)
    found = compare(graph, feats(graph), mix=mix, conv=conv)
    assert [name for name in found if name.startswith("out")] == ["out item", "out user"]


@every_conv
@every_mix
@every_idtype
def test_blocks(conv, mix, idtype):
    block = block_of(idtype)
    compare(block, feats(block), mix=mix, conv=conv)


@every_conv
@every_mix
def test_pairs(conv, mix):
    """Without features of shops as sources, and of users as destinations."""
    for graph in (graph_of(), block_of()):
        found = compare(graph, pairs(graph), mix=mix, conv=conv)
        assert "out item" in found
        assert "out user" not in found


def test_on_the_device_of_the_features(device):
    for graph in (graph_of(), block_of()):
        compare(graph, feats(graph), device=device)


@every_mix
def test_a_maximum_over_no_edges(mix):
    """DGL hands its gradient to node 0."""
    graph = graph_of().edge_type_subgraph(["follows", "rates", "sells", "pleases"])
    compare(graph, feats(graph), mix=mix, conv="SAGEConv pool")
    empty = graph_of()["part of"]
    layer = container(ours, ours, "SAGEConv pool")
    layer.mods["part of"].fc_self.weight.data.zero_()
    grads = dict(run(layer, empty, {"item": draw(6, 5)}))
    assert not grads["0 item"].any()


@every_mix
def test_sources_that_are_not_fed(mix):
    graph = graph_of()
    given = feats(graph)
    del given["shop"]
    compare(graph, given, mix=mix)


def test_nothing_is_fed():
    assert container(ours, ours)(graph_of(), {}) == container(theirs, theirs)(graph_of(), {}) == {}


@every_mix
def test_canonical_keys(mix):
    """A triple wins over a name."""
    compare(graph_of(), feats(graph_of()), mix=mix, keys=list(RELATIONS))
    keys = [*RELATIONS, "rates", "sells"]
    found = compare(graph_of(), feats(graph_of()), mix=mix, keys=keys)
    assert not found["mods.rates.weight"].any()
    keys = ["follows", *list(RELATIONS)[1:]]
    compare(graph_of(), feats(graph_of()), mix=mix, keys=keys)


def test_one_name_for_several_relations():
    edges = {("a", "has", "b"): ([0, 1], [1, 1]), ("b", "has", "b"): ([0], [1])}
    graph = dgl.heterograph(edges, {"a": 2, "b": 2})
    given = {"a": draw(2, 5), "b": draw(2, 5, seed=1)}
    compare(graph, given, keys=["has"])
    compare(graph, given, keys=[("a", "has", "b"), "has"])


def test_homogeneous_graph():
    graph = dgl.graph(([0, 1, 2], [1, 2, 2]))
    compare(graph, {"_N": draw(3, 5)}, keys=["_E"])


@every_mix
def test_further_arguments(mix):
    """By the name of the type of edges, never by the triple."""
    graph, weight = graph_of(), draw(6, seed=3).double().abs()
    args = {"rates": (None, weight)}
    compare(graph, feats(graph), args, mix=mix)
    compare(graph, feats(graph), None, {"rates": {"edge_weight": weight}}, mix=mix)
    both = {"rates": (None,)}, {"rates": {"edge_weight": weight}}
    compare(graph, feats(graph), *both, mix=mix, keys=list(RELATIONS))
    ignored = {("user", "rates", "item"): (None, weight)}
    compare(graph, feats(graph), ignored, mix=mix)


# Aggregators


@every_aggregator
@every_mix
def test_aggregators(aggregate, mix):
    for graph in (graph_of(), block_of()):
        compare(graph, feats(graph), mix=mix, aggregate=aggregate)


def weigh(tensors, dsttype):
    return sum((i + len(dsttype)) * tensor for i, tensor in enumerate(tensors))


def test_callable_aggregator():
    compare(graph_of(), feats(graph_of()), aggregate=weigh)


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, tensors, dsttype):
        return torch.tensordot(self.weight[: len(tensors)], torch.stack(tensors), 1)


def test_aggregator_that_learns():
    mine, other = container(ours, ours, aggregate=Mixer()), container(theirs, theirs)
    other.agg_fn = Mixer()
    assert "agg_fn.weight" in mine.state_dict()
    other.load_state_dict(mine.state_dict())
    given = graph_of(), feats(graph_of())
    assert_equal(sorted(run(mine, *given)), sorted(run(other, *given)))


def test_a_list_for_the_aggregator():
    """The results in the order of the relations, also if it is replaced later."""
    layer, seen = container(ours, ours), []
    layer.agg_fn = lambda tensors, ntype: seen.append((ntype, type(tensors), len(tensors)))
    assert layer(graph_of(), feats(graph_of())) == {"item": None, "user": None}
    assert seen == [("item", list, 3), ("user", list, 2)]


@every_aggregator
def test_function_of_an_aggregator(aggregate):
    mine, other = (lib.hetero.get_aggregate_fn(aggregate) for lib in (ours, theirs))
    assert mine([], "user") is other([], "user") is None
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int32):
        for count in (1, 2, 70):
            parts = [(3 * draw(4, 2, seed=i)).to(dtype) for i in range(count)]
            kept = [part.clone() for part in parts]
            wanted = (
                raised(partial(other, parts, "user"))
                if (aggregate, dtype) == ("mean", torch.int32)
                else other(parts, "user")
            )
            if isinstance(wanted, Exception):
                found = raised(partial(mine, parts, "user"))
                assert (type(found), str(found)) == (type(wanted), str(wanted))
                continue
            found = mine(parts, "user")
            assert found.dtype == wanted.dtype
            assert found.is_contiguous()
            torch.testing.assert_close(found, wanted)
            assert all(map(torch.equal, parts, kept))
            assert all(found.data_ptr() != part.data_ptr() for part in parts)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_sum_of_several_dtypes(aggregate):
    mine, other = (lib.hetero.get_aggregate_fn(aggregate) for lib in (ours, theirs))
    orders = [
        (torch.float16, torch.float32, torch.float64),
        (torch.float64, torch.float16, torch.float16),
        (torch.bfloat16, torch.float16),
        (torch.int32, torch.float32),
        (torch.float32, torch.int64, torch.bool),
    ]
    for dtypes in orders:
        parts = [(3 * draw(4, 2, seed=i)).to(dtype) for i, dtype in enumerate(dtypes)]
        found, wanted = mine(parts, "user"), other(parts, "user")
        assert found.dtype == wanted.dtype
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_sums_of_thousands_are_as_exact_as_torchs(aggregate):
    mine, other = (lib.hetero.get_aggregate_fn(aggregate) for lib in (ours, theirs))
    parts = [draw(64, 8, seed=i) + 1 for i in range(2000)]
    exact = other([part.double() for part in parts], "user")
    errors = [(fn(parts, "user") - exact).abs().max() for fn in (mine, other)]
    assert errors[0] <= 2 * errors[1] + 4 * torch.finfo(torch.float32).eps * exact.abs().max()


@every_aggregator
def test_gradients_of_an_aggregator(aggregate):
    fn = ours.hetero.get_aggregate_fn(aggregate)
    leaves = [draw(3, 2, seed=i).double().requires_grad_() for i in range(40)]
    few = leaves[:3]
    assert torch.autograd.gradcheck(lambda *parts: fn(list(parts), "user"), few)
    assert torch.autograd.gradgradcheck(lambda *parts: fn(list(parts), "user"), few)
    grads = [
        torch.autograd.grad(lib.hetero.get_aggregate_fn(aggregate)(leaves, "user").exp().sum(), few)
        for lib in (ours, theirs)
    ]
    torch.testing.assert_close(*grads)


def test_ties_of_a_maximum_are_dgls():
    parts = [torch.ones(2, requires_grad=True) for _ in range(6)]
    for aggregate in ("max", "min"):
        for library, some in ((ours, parts[:3]), (theirs, parts[3:])):
            library.hetero.get_aggregate_fn(aggregate)(some, "user").sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(parts[:3], parts[3:], strict=True))


def test_results_of_a_layer_are_left_alone():
    """What a layer has saved for its backward may be what it returned."""
    graph = two_relations()
    given = {ntype: draw(graph.num_nodes(ntype), 5) for ntype in graph.ntypes}
    results = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        mods = {e: library.GraphConv(5, OUT, activation=torch.relu) for e in graph.etypes}
        layer = library.HeteroGraphConv(mods)
        out = {ntype: value.mul_(2) for ntype, value in layer(graph, given).items()}
        sum(value.sum() for value in out.values()).backward()
        results.append([parameter.grad for parameter in layer.parameters()])
    torch.testing.assert_close(*results)
