"""HeteroGraphConv as a module, and the relations that it takes out of a graph once."""

from __future__ import annotations

import copy
import gc
import inspect
import io
import pickle
import weakref

import dgl_flash.nn as ours

# isort: split
import dgl
import dgl.nn as theirs
import pytest
import torch
from torch import nn

from dgl_flash.structure import structure
from dgl_flash.structure.relation_slices import relation_slices
from tests.graphs import two_relations
from tests.nn.common import draw, every_idtype
from tests.nn.test_heterographconv import block_of, container, feats, graph_of

# DGL's, about relations without edges.
pytestmark = pytest.mark.filterwarnings("ignore:.*does not contain valid edges")
VARIANTS = {
    "names": lambda lib: {"a": lib.GraphConv(4, 3), "b": lib.SAGEConv(4, 3, "pool")},
    "triples": lambda lib: {("u", "a", "v"): lib.GATConv(4, 3, 2), "b": nn.Linear(4, 3)},
    "nothing": lambda lib: {},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS)


class Recorder(nn.Module):
    """Keeps the graphs that it is given."""

    def __init__(self):
        super().__init__()
        self.graphs = []

    def forward(self, graph, pair):
        self.graphs.append(graph)
        return pair[1]


def recorded(graph):
    return ours.HeteroGraphConv({etype: Recorder() for etype in graph.etypes})


# The module


def test_signatures():
    for method in ("__init__", "forward", "_get_module"):
        mine, other = (
            [
                (p.name, p.default, p.kind)
                for p in inspect.signature(getattr(lib.HeteroGraphConv, method)).parameters.values()
            ]
            for lib in (ours, theirs)
        )
        assert mine == other
    names = [
        {key for key in vars(lib.HeteroGraphConv) if not key.startswith("_")}
        for lib in (ours, theirs)
    ]
    assert names[0] == names[1] == {"forward"}


def made(variant, **options):
    layers = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        layers.append(library.HeteroGraphConv(VARIANTS[variant](library), **options))
    return layers


@every_variant
def test_checkpoints_load_both_ways(variant):
    mine, other = made(variant)
    assert list(mine.state_dict()) == list(other.state_dict())
    assert repr(mine) == repr(other)
    assert all(map(torch.equal, mine.parameters(), other.parameters()))
    for source, target in ((mine, other), (other, mine)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(1)
        target.load_state_dict(source.state_dict(), strict=True)
        assert all(map(torch.equal, mine.parameters(), other.parameters()))


@every_variant
def test_attributes(variant):
    mine, other = made(variant)
    assert set(vars(mine)) == set(vars(other))
    assert list(mine.mod_dict) == list(other.mod_dict)
    assert list(mine.mods) == list(other.mods)
    assert all(map(callable, (mine.agg_fn, other.agg_fn)))
    given = VARIANTS[variant](ours)
    assert ours.HeteroGraphConv(given).mod_dict is given


def test_module_dicts():
    """DGL registers it twice, and then cannot look into it; ours can."""
    graph = two_relations()
    layers = [
        lib.HeteroGraphConv(nn.ModuleDict({e: lib.GraphConv(5, 3) for e in graph.etypes}))
        for lib in (ours, theirs)
    ]
    assert list(layers[0].state_dict()) == list(layers[1].state_dict())
    given = {ntype: draw(graph.num_nodes(ntype), 5) for ntype in graph.ntypes}
    assert set(layers[0](graph, given)) == {"user", "item"}


def through_file(layer):
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


@pytest.mark.parametrize("aggregate", ["sum", "max", "min", "mean", "stack"])
@pytest.mark.parametrize(
    "copier", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer)), through_file]
)
def test_copies(copier, aggregate):
    graph, layer = graph_of(), container(ours, ours, aggregate=aggregate)
    expected = layer(graph, feats(graph))
    size = len(pickle.dumps(layer))
    twin = copier(layer)
    assert all(twin.mod_dict[key] is twin.mods[key] for key in twin.mods)
    found = twin(graph, feats(graph))
    assert list(found) == list(expected)
    assert all(torch.equal(found[ntype], expected[ntype]) for ntype in expected)
    assert len(pickle.dumps(twin)) == pytest.approx(size, abs=50)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.zero_()
    again = layer(graph, feats(graph))
    assert all(torch.equal(again[ntype], expected[ntype]) for ntype in expected)


def test_training_is_dgls():
    graph = graph_of()
    target = {ntype: draw(graph.num_nodes(ntype), 2, seed=8) for ntype in ("user", "item")}
    losses = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        first = library.HeteroGraphConv(
            {e: library.GATConv(5, 4, 1) for e in graph.etypes}, aggregate="mean"
        )
        second = library.HeteroGraphConv({e: library.SAGEConv(4, 2, "mean") for e in graph.etypes})
        model = nn.ModuleList([first, second])
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        history = []
        for _ in range(12):
            hidden = {k: v.flatten(1).relu() for k, v in first(graph, feats(graph)).items()}
            out = second(graph, hidden)
            loss = sum((out[k] - target[k]).square().mean() for k in target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            history.append(loss.detach())
        losses.append(torch.stack(history))
    torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
    assert losses[0][-1] < losses[0][0]


# Of torch's compiler, which differ between releases.
may_warn = pytest.mark.filterwarnings("ignore")


@may_warn
@pytest.mark.parametrize("conv", ["GraphConv", "GATConv"])
def test_a_known_graph_compiles_without_a_break(conv):
    torch._dynamo.reset()
    layer, graph = container(ours, ours, conv), graph_of()
    expected = layer(graph, feats(graph))
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with graph.local_scope():
        graph.nodes["user"].data["h"] = torch.ones(4)
        assert_close(compiled(graph, feats(graph)), expected)
    assert_close(compiled(graph, feats(graph)), expected)


@may_warn
def test_compiled_on_several_graphs():
    """Of those that are not known yet, and changed ones."""
    torch._dynamo.reset()
    layer = container(ours, ours)
    compiled = torch.compile(layer, backend="aot_eager")
    for graph in (graph_of(), block_of(), graph_of()):
        for _ in range(2):
            assert_close(compiled(graph, feats(graph)), layer(graph, feats(graph)))
    graph.add_edges([3, 3], [5, 1], etype="rates")
    assert_close(compiled(graph, feats(graph)), container(ours, ours)(graph, feats(graph)))


def assert_close(found, expected):
    assert list(found) == list(expected)
    for ntype, value in expected.items():
        torch.testing.assert_close(found[ntype], value)


def test_autocast_gives_dgls_dtypes(device):
    graph = graph_of()
    found, wanted = {}, {}
    for library, results in ((ours, found), (theirs, wanted)):
        layer = container(library, library, aggregate="sum")
        where = device if library is ours else "cpu"
        given = {ntype: value.to(where) for ntype, value in feats(graph).items()}
        with torch.autocast(torch.device(where).type, torch.bfloat16):
            results.update(layer.to(where)(graph, given))
    for ntype, value in wanted.items():
        if torch.device(device).type == "cpu":
            assert found[ntype].dtype == value.dtype
        torch.testing.assert_close(found[ntype].cpu().float(), value.float(), rtol=0.03, atol=0.03)


# The slices


@every_idtype
@pytest.mark.parametrize("make", [graph_of, block_of])
def test_a_slice_is_dgls(make, idtype):
    graph = make(idtype)
    for _ in range(2):
        slices = relation_slices(graph)
        assert [relation for relation, _ in slices] == graph.canonical_etypes
        for relation, found in slices:
            wanted = graph[relation]
            assert type(found) is type(wanted)
            assert set(vars(found)) == set(vars(wanted))
            for key, value in vars(wanted).items():
                if key != "_graph":
                    assert getattr(found, key) == value, key
            assert (found.device, found.idtype) == (wanted.device, wanted.idtype)
            assert found.formats() == wanted.formats()
            for mine, other in zip(found.edges("all"), wanted.edges("all"), strict=True):
                assert torch.equal(mine, other)


def test_structures_are_read_once(monkeypatch):
    graph = graph_of()
    layer = container(ours, ours)
    layer(graph, feats(graph))
    before = [structure(part) for _, part in relation_slices(graph)]
    monkeypatch.setattr(
        "dgl_flash.structure.dgl_reader._read", lambda *_: pytest.fail("read again")
    )
    layer(graph, feats(graph))
    layer(graph.local_var(), feats(graph))
    with graph.local_scope():
        after = [structure(part) for _, part in relation_slices(graph)]
    assert all(a is b for a, b in zip(before, after, strict=True))
    # And the graph itself answers with the same.
    assert all(
        structure(graph, etype=etype) is found
        for etype, found in zip(graph.canonical_etypes, before, strict=True)
    )


def test_a_structure_of_the_graph_is_that_of_its_slice():
    graph = graph_of()
    known = structure(graph, etype="rates")
    assert structure(dict(relation_slices(graph))["user", "rates", "item"]) is known


def test_a_changed_graph_is_sliced_anew():
    graph, layer = graph_of(), container(ours, ours)
    other = container(theirs, theirs)
    other.load_state_dict(layer.state_dict())

    def change(graph):
        layer(graph, feats(graph))
        before = dict(relation_slices(graph))["user", "rates", "item"]
        graph.add_edges([3, 3], [5, 1], etype="rates")
        after = dict(relation_slices(graph))["user", "rates", "item"]
        assert after.num_edges() == before.num_edges() + 2
        assert structure(after).num_edges == structure(before).num_edges + 2

    change(graph)
    for graph in (graph, dgl.remove_edges(graph, [0], "follows"), graph.int()):  # noqa: B020
        found, wanted = (lay(graph, feats(graph)) for lay in (layer, other))
        for ntype, value in wanted.items():
            torch.testing.assert_close(found[ntype], value)


def test_features_are_those_of_the_moment():
    graph = two_relations()
    given = {ntype: draw(graph.num_nodes(ntype), 5) for ntype in graph.ntypes}
    layer = recorded(graph)
    layer(graph, given)
    graph.edges["rates"].data["w"] = torch.ones(6)
    graph.nodes["user"].data["h"] = torch.zeros(4)
    layer(graph, given)
    with graph.local_scope():
        graph.nodes["item"].data["h"] = torch.zeros(6)
        layer(graph, given)
    layer(graph, given)
    seen = [
        (set(part.edata), set(part.srcdata), set(part.dstdata))
        for part in layer.mods["rates"].graphs
    ]
    # One frame is shared for as long as it is one.
    assert seen[1] == ({"w"}, {"h"}, set())
    assert seen[2] == ({"w"}, {"h"}, {"h"})
    assert seen[3] == ({"w"}, {"h"}, set())
    # What a layer writes goes where DGL puts it.
    part = layer.mods["rates"].graphs[-1]
    part.edata["own"] = torch.ones(6)
    assert "own" in graph.edges["rates"].data


def test_layers_may_change_their_slice():
    graph = two_relations()
    parts = dict(relation_slices(graph))
    parts["user", "rates", "item"].add_edges([0], [0])
    assert dict(relation_slices(graph))["user", "rates", "item"].num_edges() == 6
    assert graph.num_edges("rates") == 6


def test_two_views_of_one_index_keep_their_names():
    block = block_of()
    graph = dgl.block_to_graph(block)
    names = [f"other {etype}" for etype in graph.etypes]
    renamed = dgl.DGLGraph(graph._graph, (graph.srctypes, graph.dsttypes), names)
    assert renamed._graph is block._graph
    for whole in (block, graph, renamed, block, graph):
        slices = relation_slices(whole)
        for (found, part), relation in zip(slices, whole.canonical_etypes, strict=True):
            assert part.canonical_etypes == [relation] == [found]
            assert part.is_block == whole.is_block


@pytest.mark.parametrize("fmt", ["coo", "csr", "csc"])
def test_graphs_restricted_to_one_format(fmt):
    layer, graph = container(ours, ours), graph_of()
    expected = layer(graph, feats(graph))
    found = layer(graph.formats(fmt), feats(graph))
    for ntype, value in expected.items():
        torch.testing.assert_close(found[ntype], value)


def test_slices_keep_neither_graph_nor_features_alive():
    graph, layer = graph_of(), container(ours, ours)
    feat = torch.ones(4, 2)
    graph.nodes["user"].data["h"] = feat
    layer(graph, feats(graph))
    gone = weakref.ref(graph), weakref.ref(graph._graph), weakref.ref(feat)
    del feat
    graph.nodes["user"].data.pop("h")
    assert gone[2]() is None
    gc.disable()
    try:
        del graph
        assert gone[0]() is None
        assert gone[1]() is None
    finally:
        gc.enable()


def test_a_used_graph_is_copied_and_pickled_without_its_slices():
    size = len(pickle.dumps(graph_of()))
    graph, layer = graph_of(), container(ours, ours)
    expected = layer(graph, feats(graph))
    assert len(pickle.dumps(graph)) == pytest.approx(size, abs=200)
    for other in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph)), graph.clone()):
        found = layer(other, feats(other))
        assert all(torch.equal(found[ntype], value) for ntype, value in expected.items())


def test_nothing_is_assigned_to_frames():
    graph, layer = graph_of(), container(ours, ours, "GATConv")
    layer(graph, feats(graph))
    for frame in (*graph._node_frames, *graph._edge_frames):
        assert not list(frame)
