"""AGNNConv gives DGL's outputs and gradients."""

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
    empty,
    no_nodes,
    path,
    regular,
    zoo,
)
from tests.nn.common import (
    assert_compiles,
    assert_same,
    draw,
    every_graph,
    every_idtype,
    features,
    raised,
    twins,
)

AGNN = partial(twins, "AGNNConv")
ANY_DEGREE = {"allow_zero_in_degree": True}


@every_graph
def test_zoo(name, device):
    graph = zoo()[name](torch.int64)
    # The gradient of beta is one number, a sum over the graph that may cancel.
    assert_same(AGNN(1.5, **ANY_DEGREE), graph, features(graph, 4), device, ulps=256)


@every_idtype
@pytest.mark.parametrize("builder", [batched, bipartite_up, block])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(AGNN(**ANY_DEGREE), graph, features(graph, 4), device)


# Larger ones saturate the softmax of two edges, whose gradient is then what rounding leaves.
@pytest.mark.parametrize("beta", [0.0, 1.0, -3.0, 5.0])
@pytest.mark.parametrize("learn_beta", [True, False])
@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_beta(beta, learn_beta, builder, device):
    graph = builder()
    layers = AGNN(beta, learn_beta, True)
    found = assert_same(layers, graph, features(graph, 4), device)
    assert ("grad_beta" in found) == learn_beta


@pytest.mark.parametrize("builder", [regular, block, bipartite_up, bipartite_down])
@pytest.mark.parametrize("extra", [(3,), (1,), (2, 3)], ids=str)
def test_further_dimensions_are_heads(builder, extra, device):
    graph = builder()
    found = assert_same(AGNN(**ANY_DEGREE), graph, features(graph, 4, *extra), device)
    assert found["out0"].shape == (graph.num_dst_nodes(), *extra, 4)


@pytest.mark.parametrize("extra", [((3,), (1,)), ((1,), (3,)), ((2, 1), (3,)), ((), (3,))], ids=str)
def test_further_dimensions_broadcast(extra, device):
    feat = draw(3, *extra[0], 4), draw(5, *extra[1], 4, seed=1)
    assert_same(AGNN(**ANY_DEGREE), bipartite_up(), feat, device)


@pytest.mark.parametrize("builder", [regular, block, bipartite_up])
def test_one_number_a_node(builder, device):
    """The norm then is that of all nodes, which is what the last dimension means in DGL."""
    graph = builder()
    feat = draw(graph.num_src_nodes())
    if graph.is_block or graph.is_homogeneous:
        assert_same(AGNN(**ANY_DEGREE), graph, feat, device)
    else:
        pair = feat, draw(graph.num_dst_nodes(), seed=1)
        assert_same(AGNN(**ANY_DEGREE), graph, pair, device)


def test_a_tensor_on_a_block_is_the_pair_with_its_first_rows(device):
    graph = block()
    layer = AGNN(2.0)[0].to(device)
    feat = draw(graph.num_src_nodes(), 4).to(device)
    pair = feat, feat[: graph.num_dst_nodes()]
    torch.testing.assert_close(layer(graph, feat), layer(graph, pair))


def test_each_side_of_a_homogeneous_graph_is_used_for_itself(device):
    """In DGL the destinations overwrite the sources; a bipartite graph is what it means."""
    graph = regular()
    twin = dgl.heterograph({("a", "to", "b"): graph.edges()})
    feat = draw(10, 4).to(device), draw(10, 4, seed=1).to(device)
    layer = AGNN(3.0)[0].to(device)
    torch.testing.assert_close(layer(graph, feat), layer(twin, feat))


def test_rows_of_zeros_have_no_direction(device):
    """Their cosine is 0, and the gradient is finite."""
    feat = draw(10, 4)
    feat[[2, 5]] = 0
    assert_same(AGNN(2.0), regular(), feat, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_norms_of_half_types(dtype, scale, device):
    """Neither squares nor the least norm of DGL's fit into float16."""
    graph, layer = regular(), AGNN(2.0)[0]
    feat = (scale * draw(10, 4)).to(dtype)
    feat[3] = 0
    wanted = layer.double()(graph, feat.double())
    found = layer.to(device, dtype)(graph, feat.to(device))
    assert found.dtype == dtype
    tolerance = {"rtol": 2e-2, "atol": 2e-2 * scale}
    torch.testing.assert_close(found.cpu().double(), wanted, **tolerance)


def test_features_keep_their_dtype(device):
    """Whatever that of beta is; DGL takes float64 beside a float32 beta."""
    graph, feat = regular(), draw(10, 4).double()
    mine, other = AGNN(2.0)
    found = mine.to(device)(graph, feat.to(device))
    torch.testing.assert_close(found.cpu(), other(graph, feat))


def test_path_by_hand(device):
    out = AGNN(**ANY_DEGREE)[0].to(device)(path(), torch.eye(3, device=device))
    wanted = torch.tensor([[0.0, 0, 0], [1, 0, 0], [0, 1, 0]], device=device)
    torch.testing.assert_close(out, wanted)


def test_cosines_by_hand(device):
    """A source in the same direction weighs e / (1 + e), however long, an orthogonal one less."""
    graph = dgl.graph(([0, 1], [2, 2]))
    feat = torch.tensor([[100.0, 0], [0, 1.0], [3.0, 0]], device=device)
    out = AGNN(**ANY_DEGREE)[0].to(device)(graph, feat)
    e = torch.tensor(1.0).exp().item()
    assert out[2].tolist() == pytest.approx([100 * e / (1 + e), 1 / (1 + e)])


def test_nothing_there(device):
    layer = AGNN(**ANY_DEGREE)[0].to(device)
    assert layer(no_nodes(), torch.zeros(0, 4, device=device)).shape == (0, 4)
    assert not layer(empty(), draw(4, 4).to(device)).any()


def test_widths_that_differ_are_refused():
    feat = draw(3, 4), draw(5, 6)
    calls = [partial(layer, bipartite_up(), feat) for layer in AGNN(**ANY_DEGREE)]
    assert type(raised(calls[0])) is type(raised(calls[1])) is dgl.DGLError


def test_integers_are_refused():
    calls = [partial(layer, regular(), torch.ones(10, 4).long()) for layer in AGNN()]
    assert type(raised(calls[0])) is type(raised(calls[1])) is RuntimeError


def test_beta_is_a_parameter_or_a_buffer():
    assert dict(AGNN()[0].named_parameters()).keys() == {"beta"}
    assert dict(AGNN(learn_beta=False)[0].named_buffers()).keys() == {"beta"}


def test_own_container(device):
    graph, feat = regular(), draw(10, 4).to(device)
    layer = AGNN(2.0)[0].to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat), layer(graph, feat))


@pytest.mark.filterwarnings("ignore")
def test_compiles(device):
    assert_compiles(AGNN(2.0)[0].to(device), regular(), draw(10, 4).to(device))
