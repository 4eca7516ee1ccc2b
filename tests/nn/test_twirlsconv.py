"""TWIRLSConv and its propagation give DGL's outputs and gradients."""

from __future__ import annotations

import copy
from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import batched, bipartite_up, block, isolated_rows, random_graph, regular, zoo
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    for_dgl,
    homogeneous_graph,
    ours,
    raised,
    twins,
)

# Weights that depend on the features, an upper threshold that some edges exceed included.
ATTENTION = {"attention": True, "use_eta": True, "attn_bef": True, "tau": 0.5, "T": 3.0, "p": 0.7}


def any_dtype(layer):
    """Let DGL compute in float64 too: it makes its edge weights in torch's default dtype.

    And let it forget what it has propagated, which is what the features were in the first call.
    """
    forward = layer.forward

    def wrapped(graph, feat):
        if getattr(layer, "cacheable", False):
            layer.cached_unfolding = None
        default = torch.get_default_dtype()
        torch.set_default_dtype(feat.dtype)
        try:
            with graph.local_scope():
                return forward(graph, feat)
        finally:
            torch.set_default_dtype(default)

    layer.forward = wrapped
    return layer


def pair(name, *args, **kwargs):
    mine, other = twins(name, *args, **kwargs)
    return mine, any_dtype(other)


TWIRLS = partial(pair, "TWIRLSConv")
UNFOLDING = partial(pair, "TWIRLSUnfoldingAndAttention")


@homogeneous_graph
@pytest.mark.parametrize("options", [{}, ATTENTION], ids=["plain", "attention"])
def test_zoo(name, options, device):
    graph = zoo()[name](torch.int64)
    assert_same(TWIRLS(4, 3, 5, 4, **options), graph, draw(graph.num_nodes(), 4), device)


@every_idtype
@pytest.mark.parametrize("builder", [batched, regular])
def test_both_id_types(builder, idtype, device):
    graph = builder(idtype)
    assert_same(TWIRLS(4, 3, 5, 4, **ATTENTION), graph, draw(graph.num_nodes(), 4), device)


OPTIONS = [
    {"prop_step": 0},
    {"prop_step": 1, "attention": True},
    {"prop_step": 7, "attention": True},
    {"precond": False},
    {"precond": False, **ATTENTION},
    {"precond": False, "lam": 0.3, "alp": 0.2},
    {"lam": 0.3},
    {"lam": 0.3, **ATTENTION},
    {"lam": 2.0, "alp": 0.1},
    {"attention": True, "T": 2.0},
    {"attention": True, "tau": 1e-4, "p": 0.0},
    {"attention": True, "p": 2.0},
    {"attn_bef": True},
    {"attn_bef": True, "use_eta": True},
    {"num_mlp_before": 0},
    {"num_mlp_before": 0, "precond": False},
    {"num_mlp_before": 0, "num_mlp_after": 2, "attention": True},
    {"num_mlp_before": 0, "num_mlp_after": 0},
    {"num_mlp_after": 0},
    {"num_mlp_before": 3, "num_mlp_after": 2},
    {"num_mlp_before": 2, "num_mlp_after": 3, "norm": "layer"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options, device):
    graph = random_graph(12, 40)
    layers = TWIRLS(4, 3, 5, **{"prop_step": 4, **options})
    assert_same(layers, graph, draw(12, 4), device)


def test_batch_normalisation(device):
    """In training the gradients of biases before it are rounding errors, hence in evaluation."""
    graph, feat = random_graph(12, 40), draw(12, 4)
    mine, other = layers = TWIRLS(4, 3, 5, 4, 3, 2, norm="batch")
    mine.to(device)
    torch.testing.assert_close(mine(graph, feat.to(device)).cpu(), other(graph, feat))
    for key, value in other.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[key].cpu(), value)
    for layer in layers:
        layer.eval()
    assert_same(layers, graph, feat, device)


@pytest.mark.parametrize("drop", ["dropout", "attn_dropout", "inp_dropout"])
@pytest.mark.parametrize("before", [1, 0])
def test_dropout_draws_what_dgl_draws(drop, before):
    graph = random_graph(12, 40)
    options = {drop: 0.4, "attention": True, "attn_bef": True, "norm": "layer"}
    layers = twins("TWIRLSConv", 4, 3, 5, 4, before, 2, **options)
    outputs = []
    for layer in layers:
        torch.manual_seed(5)
        outputs.append(layer(graph, draw(12, 4)))
    torch.testing.assert_close(*outputs)
    kept = [layer.eval()(graph, draw(12, 4)) for layer in layers]
    torch.testing.assert_close(*kept)
    assert not torch.allclose(outputs[0], kept[0])


@pytest.mark.parametrize("name", ["isolated_rows", "regular", "power_law", "empty"])
@pytest.mark.parametrize("precond", [True, False])
@pytest.mark.parametrize("attention", [{}, {"attn_aft": 2, "init_att": True, "use_eta": True}])
def test_unfolding(name, precond, attention, device):
    graph = dgl.add_self_loop(for_dgl(zoo()[name](torch.int64)))
    layers = UNFOLDING(4, 0, 0.8, 4, precond=precond, **attention)
    assert_same(layers, graph, draw(graph.num_nodes(), 4), device)


def test_unfolding_keeps_self_loops_as_they_are(device):
    graph = dgl.graph(([0, 1, 1, 1, 2], [1, 1, 1, 2, 0]))
    layers = UNFOLDING(4, 0.4, 1, 3, init_att=True)
    assert_same(layers, graph, draw(3, 4), device)


@pytest.mark.parametrize("lam", [1.0, 0.5])
def test_nodes_without_in_edges(lam, device):
    """With lam = 1 DGL divides by 0; here such a degree is 1. With lam < 1 there is no 0."""
    graph = isolated_rows()
    mine, other = UNFOLDING(4, 0.5, lam, 3)
    if lam < 1:
        assert_same((mine, other), graph, draw(9, 4), device)
    else:
        feat = draw(9, 4)
        out = mine.to(device)(graph, feat.to(device))
        assert out.isfinite().all()
        assert not other(graph, feat).isfinite().all()
        # A step halves what came before and adds half of the input, which is a fixed point.
        torch.testing.assert_close(out[8].cpu(), feat[8])


def test_the_graph_is_only_read():
    graph = regular()
    ours.TWIRLSUnfoldingAndAttention(4, 1, 1, 3, init_att=True)(graph, draw(10, 4))
    assert not graph.ndata
    assert not graph.edata
    assert graph.num_edges() == 30


@pytest.mark.parametrize("builder", [bipartite_up, block])
@pytest.mark.parametrize("name", ["TWIRLSConv", "TWIRLSUnfoldingAndAttention"])
def test_two_sets_of_nodes_are_refused(builder, name):
    graph = builder()
    layer = getattr(ours, name)(4, 1, 1, 3)
    error = raised(partial(layer, graph, draw(graph.num_src_nodes(), 4)))
    assert type(error) is dgl.DGLError
    assert "does not support unidirectional bipartite graphs" in str(error)
    if builder is bipartite_up and name == "TWIRLSConv":
        other = twins(name, 4, 1, 1, 3)[1]
        assert str(error) == str(raised(partial(other, graph, draw(3, 4))))


class TestCache:
    """Without parameters before it, a propagation is kept: for the same input, and only for it."""

    @staticmethod
    def layer(**options):
        torch.manual_seed(0)
        layer = ours.TWIRLSConv(4, 3, 5, 4, num_mlp_before=0, **options)
        calls = []
        layer.unfolding.register_forward_hook(lambda *_: calls.append(None))
        return layer, calls

    def test_the_same_input_is_propagated_once(self, device):
        layer, calls = self.layer()
        graph, feat = random_graph(12, 40), draw(12, 4).to(device)
        layer.to(device)
        for _ in range(3):
            layer(graph, feat).sum().backward()
        assert len(calls) == 1
        assert layer.cached_unfolding is not None

    def test_other_input_is_propagated_anew(self, device):
        layer, calls = self.layer()
        layer.to(device)
        graphs = [random_graph(12, 40, seed=seed) for seed in (0, 1)]
        feats = [draw(12, 4, seed=seed).to(device) for seed in (0, 1)]
        for graph in graphs:
            for feat in feats:
                expected = layer.mlp_aft(layer.unfolding(with_loops(graph), feat))
                assert torch.equal(layer(graph, feat), expected)
        assert len(calls) == 8
        feats[1].mul_(2)
        layer(graphs[1], feats[1])
        graphs[1].add_edges([0], [1])
        layer(graphs[1], feats[1])
        assert len(calls) == 10

    def test_gradients_pass_again_and_again(self):
        layer, calls = self.layer()
        graph, feat = random_graph(12, 40), draw(12, 4).requires_grad_()
        grads = []
        for _ in range(2):
            (grad,) = torch.autograd.grad(layer(graph, feat).sum(), feat)
            grads.append(grad)
        assert torch.equal(*grads)
        assert len(calls) == 2

    def test_dropped_edges_are_drawn_anew(self):
        layer, _ = self.layer(attn_bef=True, attn_dropout=0.5)
        graph, feat = random_graph(12, 40), draw(12, 4)
        assert not torch.equal(layer(graph, feat), layer(graph, feat))
        layer.eval()
        assert torch.equal(layer(graph, feat), layer(graph, feat))

    def test_copies_start_without_it(self):
        layer, _ = self.layer()
        graph, feat = random_graph(12, 40), draw(12, 4)
        expected = layer(graph, feat)
        twin = copy.deepcopy(layer)
        assert twin.cached_unfolding is None
        assert torch.equal(twin(graph, feat), expected)

    def test_inference_mode(self):
        layer, _ = self.layer()
        graph = random_graph(12, 40)
        with torch.inference_mode():
            feat = draw(12, 4)
            found = layer(graph, feat)
        torch.testing.assert_close(found, layer(graph, draw(12, 4)).detach())


def with_loops(graph):
    return dgl.add_self_loop(dgl.remove_self_loop(graph))


def test_our_container_and_our_structure():
    graph = random_graph(12, 40)
    layer = ours.TWIRLSConv(4, 3, 5, 4, **ATTENTION)
    feat = draw(12, 4)
    expected = layer(for_dgl(graph), feat)
    container = dgl_flash.graph(graph.edges(), num_nodes=12)
    assert torch.equal(layer(container, feat), expected)
    assert torch.equal(layer(dgl_flash.structure.structure(container), feat), expected)
