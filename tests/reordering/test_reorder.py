"""`dgl_flash.reorder`: the same graph in another order, of every kind, there and back."""

from __future__ import annotations

import sys
from typing import Any

import dgl_flash
import dgl_flash.nn

# isort: split
import dgl
import pytest
import torch

from dgl_flash.structure import structure
from tests.graphs import two_relations, zoo
from tests.reordering.test_orders import shuffled_cliques
from tests.shared_data import shared_folder

METHODS = ["rcm", "degree", "community", "auto"]


def a_dgl_graph(idtype: torch.dtype = torch.int64) -> Any:
    struct, group = shuffled_cliques(12, 8)
    src, dst = (ends.to(idtype) for ends in struct.edges())
    graph = dgl.graph((src, dst), num_nodes=96)
    graph.ndata["group"], graph.ndata["x"] = group, torch.randn(96, 5)
    graph.edata["w"] = torch.rand(graph.num_edges(), 1)
    return graph


def a_graph() -> Any:
    given = a_dgl_graph()
    graph = dgl_flash.graph(given.edges(), num_nodes=96)
    for name, feat in given.ndata.items():
        graph.ndata[name] = feat
    graph.edata["w"] = given.edata["w"]
    return graph


GRAPHS = {
    "dgl": a_dgl_graph,
    "dgl int32": lambda: a_dgl_graph(torch.int32),
    "own": a_graph,
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", GRAPHS)
def test_is_the_same_graph(kind, method):
    graph = GRAPHS[kind]()
    before = [end.clone() for end in graph.edges()]
    found = dgl_flash.reorder(graph, method, progress=False)
    other = found.graph
    assert type(other) is type(graph)
    assert (other.idtype, other.device) == (graph.idtype, graph.device)
    assert (other.num_nodes(), other.num_edges()) == (graph.num_nodes(), graph.num_edges())
    for mine, given in zip(other.edges(order="eid"), graph.edges(order="eid"), strict=True):
        assert torch.equal(found.permutation[mine.long()], given.long())
    for name, feat in graph.ndata.items():
        assert torch.equal(other.ndata[name], found.apply(feat))
    assert torch.equal(other.edata["w"], graph.edata["w"])
    for now, then in zip(graph.edges(), before, strict=True):
        assert torch.equal(now, then)


@pytest.mark.parametrize("kind", GRAPHS)
def test_a_layer_gives_the_same(kind, device):
    torch.manual_seed(0)
    graph = GRAPHS[kind]()
    layer = dgl_flash.nn.GraphConv(5, 4, allow_zero_in_degree=True).to(device)
    found = dgl_flash.reorder(graph, progress=False)
    feat = graph.ndata["x"].to(device).requires_grad_()
    weight = graph.edata["w"].to(device)
    expected = layer(graph, feat, edge_weight=weight)
    out = found.undo(layer(found.graph, found.apply(feat), edge_weight=weight))
    torch.testing.assert_close(out, expected)
    (mine,) = torch.autograd.grad(out.square().sum(), feat)
    (other,) = torch.autograd.grad(expected.square().sum(), feat)
    torch.testing.assert_close(mine, other)


def test_a_structure_alone(device):
    struct = shuffled_cliques(12, 8)[0].to(device)
    found = dgl_flash.reorder(struct, "community", progress=False)
    assert isinstance(found.graph, dgl_flash.GraphStructure)
    assert found.graph.device == device
    for mine, given in zip(found.graph.edges(), struct.edges(), strict=True):
        assert torch.equal(found.permutation[mine], given)


def test_inverse_undoes(device):
    struct, _ = shuffled_cliques(12, 8)
    found = dgl_flash.reorder(struct.to(device), "rcm", progress=False)
    numbers = torch.arange(96, device=device)
    assert torch.equal(found.permutation[found.inverse], numbers)
    assert torch.equal(found.undo(found.apply(numbers)), numbers)
    assert torch.equal(found.apply(found.undo(numbers.cpu())), numbers.cpu())


@pytest.mark.parametrize("wrong", [torch.ones(95, 2), torch.ones(()), torch.ones(97)])
def test_rows_that_do_not_fit(wrong):
    found = dgl_flash.reorder(shuffled_cliques(12, 8)[0], "rcm", progress=False)
    for method in (found.apply, found.undo):
        with pytest.raises(ValueError, match="a row for each of 96 nodes, got shape"):
            method(wrong)


def test_auto_takes_what_gathers_least():
    found = dgl_flash.reorder(shuffled_cliques(40, 16)[0], progress=False)
    columns = {name: figures.num_columns for name, figures in found.statistics.items()}
    assert set(columns) == {"stored", "rcm", "degree", "community"}
    assert columns[found.method] == min(columns.values())
    assert found.predicted == columns[found.method] / columns["stored"] < 0.5


def test_auto_keeps_an_order_that_is_good():
    struct, group = shuffled_cliques(20, 64)
    order = torch.argsort(group, stable=True)
    places = torch.empty_like(order)
    places[order] = torch.arange(order.numel())
    src, dst = struct.edges()
    graph = dgl_flash.graph((places[src], places[dst]), num_nodes=1280)
    found = dgl_flash.reorder(graph, progress=False)
    assert found.method == "stored"
    assert found.predicted == 1
    assert torch.equal(found.permutation, torch.arange(1280))


def test_prints_a_table():
    found = dgl_flash.reorder(shuffled_cliques(40, 16)[0], progress=False)
    lines = str(found).splitlines()
    assert lines[0].split("  ")[0] == "order"
    assert [line.split()[0] for line in lines[1:]] == ["stored", "rcm", "degree", "community"]
    assert sum("(taken)" in line for line in lines) == 1
    assert lines[1].endswith("x 1.00")
    assert found._repr_html_().count("<tr>") == 5


@pytest.mark.parametrize("op", ["sum", "gatv2", "dot_attention"])
def test_measures_the_change(op, device):
    found = dgl_flash.reorder(shuffled_cliques(12, 8)[0].to(device), "rcm", progress=False)
    measured = found.measure(op, width=16, repeats=3)
    for timing in (measured.before, measured.after):
        assert 0 < timing.p20_ms <= timing.median_ms <= timing.p80_ms
    assert measured.ratio == measured.after.median_ms / measured.before.median_ms
    assert str(measured).startswith(f"{op}: ")


@pytest.mark.gpu
def test_measures_on_a_gpu_what_is_on_the_host():
    found = dgl_flash.reorder(shuffled_cliques(12, 8)[0], "rcm", progress=False)
    assert found.measure(width=16, repeats=2, device="cuda").ratio > 0


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"op": "max"}, "`op` to be one of sum, gatv2, dot_attention, got 'max'"),
        ({"op": "gatv2", "width": 6}, "multiple of 4 for attention"),
        ({"width": 0}, "`width` of at least 1"),
        ({"repeats": 0}, "`repeats` and"),
    ],
)
def test_what_cannot_be_measured(given, text):
    found = dgl_flash.reorder(shuffled_cliques(3, 4)[0], "rcm", progress=False)
    with pytest.raises(ValueError, match=text):
        found.measure(**given)


@pytest.mark.parametrize("name", ["empty", "no_nodes", "single_node", "self_loops"])
@pytest.mark.parametrize("method", METHODS)
def test_graphs_of_little(name, method):
    graph = zoo()[name](torch.int64)
    found = dgl_flash.reorder(graph, method, progress=False)
    assert found.graph.num_nodes() == graph.num_nodes()
    assert found.predicted <= 1
    assert str(found)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bipartite_up", "one set of nodes, got"),
        ("block", "before blocks are sampled from it"),
        ("two_relations", r"one type of edges, got 2; take one relation \(graph\[etype\]\)"),
        ("batched", "reorder its members and batch them afterwards"),
    ],
)
def test_graphs_that_have_no_one_order(name, text):
    with pytest.raises(dgl.DGLError, match=text):
        dgl_flash.reorder({**zoo(), "two_relations": two_relations}[name](), progress=False)


def test_own_graphs_that_have_no_one_order():
    graph = dgl_flash.graph(([0, 1], [1, 0]), num_src_nodes=2, num_dst_nodes=2)
    with pytest.raises(dgl.DGLError, match="one set of nodes"):
        dgl_flash.reorder(graph, progress=False)


def test_wrong_arguments():
    with pytest.raises(ValueError, match="one of rcm, degree, community, auto, got 'metis'"):
        dgl_flash.reorder(a_graph(), "metis")
    with pytest.raises(TypeError, match="reorder: expected a graph"):
        dgl_flash.reorder(torch.ones(3, 3), "rcm")


def test_a_graph_on_a_device(home):
    graph = a_dgl_graph().to(home)
    found = dgl_flash.reorder(graph, "community", progress=False)
    assert found.graph.device == found.permutation.device == home
    host = dgl_flash.reorder(a_dgl_graph(), "community", progress=False)
    assert torch.equal(found.permutation.cpu(), host.permutation)
    assert found.graph.ndata["x"].device == home


# Rows that windows gather in the order of communities over those in the order of the file.
REAL = {"amazon_computers": 0.45, "mesh_copter2": 0.55, "ppi_small": 0.8, "ca_astroph": 0.5}


@pytest.mark.parametrize("name", REAL)
def test_real_graphs_gain(name, monkeypatch):
    folder = shared_folder("data")
    if not (folder / f"{name}.npz").exists():
        pytest.skip(f"no {name}.npz in {folder}")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    import load_graph

    read = load_graph.load(name)
    graph = dgl_flash.graph((read["src"], read["dst"]), num_nodes=read["num_nodes"])
    found = dgl_flash.reorder(graph, progress=False)
    assert found.method == "community"
    assert found.predicted < REAL[name]
    assert structure(found.graph).num_edges == structure(graph).num_edges
