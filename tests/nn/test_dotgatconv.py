"""DotGatConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import (
    batched,
    bipartite_down,
    bipartite_up,
    block,
    isolated_rows,
    path,
    regular,
    zoo,
)
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_compiles,
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    ours,
    raised,
    twins,
)

DOT = partial(twins, "DotGatConv")
ANY_DEGREE = {"allow_zero_in_degree": True}


def for_graph(graph, width=4):
    """Sizes that DGL takes, for what `features` gives: an int for a tensor, a pair for a pair."""
    return width if graph.is_block or graph.is_homogeneous else (width, width)


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    layers = DOT(for_graph(graph), 3, 2, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    layers = DOT(for_graph(graph), 3, 2, **ANY_DEGREE)
    assert_same(layers, graph, features(graph, 4), device)


@pytest.mark.parametrize("sizes", [(5, 7, 1), (5, 1, 3), (5, 16, 4)], ids=str)
@pytest.mark.parametrize("builder", [regular, block])
def test_sizes(sizes, builder, device):
    graph = builder()
    assert_same(DOT(*sizes), graph, features(graph, 5), device)


@pytest.mark.parametrize("builder", [bipartite_up, bipartite_down, block])
@pytest.mark.parametrize("widths", [(4, 6), (6, 4), (5, 5)], ids=str)
def test_pairs(builder, widths, device):
    graph = builder()
    feat = draw(graph.num_src_nodes(), widths[0]), draw(graph.num_dst_nodes(), widths[1], seed=1)
    assert_same(DOT(widths, 3, 2, **ANY_DEGREE), graph, feat, device)


@pytest.mark.parametrize("builder", [regular, block, bipartite_up, isolated_rows])
def test_attention(builder, device):
    graph = builder()
    layers = DOT(for_graph(graph), 3, 2, **ANY_DEGREE)
    found = assert_same(layers, graph, features(graph, 4), device, get_attention=True)
    assert found["out1"].shape == (graph.num_edges(), 2, 1)


def test_each_side_of_a_homogeneous_graph_is_used_for_itself(device):
    """In DGL the destinations overwrite the sources; a bipartite graph is what it means."""
    graph = regular()
    twin = dgl.heterograph({("a", "to", "b"): graph.edges()})
    feat = draw(10, 4).to(device), draw(10, 4, seed=1).to(device)
    layer = DOT((4, 4), 3, 2)[0].to(device)
    found = layer(graph, feat)
    torch.testing.assert_close(found, layer(twin, feat))
    assert not torch.allclose(found, layer(graph, (feat[1], feat[1])))


@pytest.mark.parametrize("builder", [regular, block])
def test_a_pair_for_one_width_and_a_tensor_for_two_are_refused(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(), 4)
    pair = feat, feat[: graph.num_dst_nodes()]
    for in_feats, given, text in ((4, pair, "one tensor"), ((4, 4), feat, "a pair")):
        mine, other = (raised(partial(layer, graph, given)) for layer in DOT(in_feats, 3, 2))
        assert type(mine) is type(other) is AttributeError
        assert f"DotGatConv: expected {text}" in str(mine)


def test_zero_in_degree():
    graph = isolated_rows()
    mine, other = (raised(partial(layer, graph, draw(9, 4))) for layer in DOT(4, 3, 2))
    assert (type(mine), str(mine)) == (type(other), str(other)) == (dgl.DGLError, str(other))


def test_path_by_hand(device):
    layer = DOT(1, 1, 1, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.fc.weight.fill_(2)
    out = layer(path(), torch.tensor([[1.0], [10.0], [100.0]], device=device))
    assert out.flatten().tolist() == pytest.approx([0, 2, 20])


def test_scores_are_divided_by_the_root_of_the_width(device):
    layer = DOT(4, 4, 1, **ANY_DEGREE)[0].to(device)
    with torch.no_grad():
        layer.fc.weight.copy_(torch.eye(4))
    feat = torch.tensor([[1.0, 0, 0, 0], [2.0, 0, 0, 0], [3.0, 0, 0, 0]], device=device)
    _, attention = layer(dgl.graph(([0, 1], [2, 2])), feat, get_attention=True)
    wanted = torch.tensor([3 / 2, 6 / 2]).softmax(0)
    torch.testing.assert_close(attention.flatten().cpu(), wanted)


def test_large_scores_stay_finite(device):
    graph, layer = regular(), DOT(4, 3, 2)[0].to(device)
    feat = (1e3 * draw(10, 4)).to(device).requires_grad_()
    layer(graph, feat).sum().backward()
    assert feat.grad.isfinite().all()


def test_features_with_further_dimensions_are_refused():
    """As in DGL, whose view makes them rows."""
    error = raised(partial(DOT(4, 3, 2)[0], regular(), draw(10, 7, 4)))
    assert isinstance(error, ValueError)
    assert "(70, 2, 3)" in str(error)


def test_own_container(device):
    graph, feat = regular(), draw(10, 4).to(device)
    layer = DOT(4, 3, 2)[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat), layer(graph, feat))


def test_blocks_and_bipartite_graphs_of_the_zoo_are_known():
    """What `for_graph` decides on."""
    for name in TWO_NODE_SETS:
        assert isinstance(for_graph(zoo()[name]()), int) == (name == "block")
    assert not hasattr(ours.DotGatConv, "set_allow_zero_in_degree")


@pytest.mark.filterwarnings("ignore")
def test_compiles(device):
    graph = regular()
    assert_compiles(DOT(4, 3, 2)[0].to(device), graph, draw(10, 4).to(device))
