"""A compiled model is one graph, runs the same kernels and computes what the model computes."""

from __future__ import annotations

import copy

import dgl
import pytest
import torch
from torch import nn

import dgl_flash.nn as dglnn
from dgl_flash.ops import dispatch
from dgl_flash.structure import graph as make_graph
from tests.graphs import regular
from tests.nn.layers import LAYERS, every_layer, leaves, to

# Of torch's compiler, which differ from release to release.
pytestmark = pytest.mark.filterwarnings("ignore")
BACKENDS = ("eager", "aot_eager")


class Model(nn.Module):
    def __init__(self, **attention):
        super().__init__()
        self.attention = dglnn.GATv2Conv(16, 8, 4, **attention)
        self.convolution = dglnn.GraphConv(32, 7)

    def forward(self, graph, feat, edge_weight=None):
        hidden = torch.relu(self.attention(graph, feat).flatten(1))
        return self.convolution(graph, hidden, edge_weight=edge_weight)


def ends(num_nodes: int = 300, num_edges: int = 2000, seed: int = 0) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    src, dst = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    loops = torch.arange(num_nodes)
    return torch.cat([src, loops]), torch.cat([dst, loops])


GRAPHS = {"dgl": dgl.graph, "ours": make_graph}
every_graph = pytest.mark.parametrize("kind", GRAPHS)


def step(run, model, graph, feat, edge_weight=None):
    """Output and all gradients."""
    model.zero_grad()
    out = run(graph, feat, edge_weight)
    out.square().sum().backward()
    weights = [] if edge_weight is None else [edge_weight.grad.clone()]
    return [out.detach(), *(p.grad.clone() for p in model.parameters()), *weights]


def equal(results, expected, tolerance=0.0):
    """Bit for bit, unless the compiler computes in another order of its own."""
    for found, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=tolerance, atol=tolerance)


def check(compiled, model, graph, feat, tolerance=0.0):
    equal(step(compiled, model, graph, feat), step(model, model, graph, feat), tolerance)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    torch.manual_seed(0)


@every_graph
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_graph_without_a_break_equals_the_eager_model(device, backend, kind):
    graph = GRAPHS[kind](ends())
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    model(graph, feat)  # reads the structure
    check(torch.compile(model, backend=backend, fullgraph=True), model, graph, feat)


# A question to the values of a tensor, the grouping of edges by type, that of sets by size, and
# torch's LSTM.
BREAKING = {"EdgeWeightNorm", "GatedGraphConv", "RelGraphConv", "RelGraphConv basis", "TypedLinear"}
BREAKING |= {"HGTConv", "SAGEConv lstm", "Set2Set", "SetTransformerDecoder"}
BREAKING |= {"SetTransformerEncoder", "SetTransformerEncoder isab"}
BREAKING |= {"JumpingKnowledge lstm", "TransR"}
BREAKING |= {"CuGraphRelGraphConv", "CuGraphRelGraphConv basis", "DeepWalk", "MetaPath2Vec"}
# An order walks the rows of the graph in plain torch, which on a GPU asks for the current stream.
BREAKING_ON_CUDA = {"SortPooling"}


@every_layer
def test_every_layer_equals_itself(name, device):
    layer, graph = LAYERS[name], regular()
    module = layer.make().to(device)
    inputs = to(layer.inputs(graph), device)
    results = []
    breaking = BREAKING | (BREAKING_ON_CUDA if device.type == "cuda" else set())
    for run in (module, torch.compile(module, backend="aot_eager", fullgraph=name not in breaking)):
        module.zero_grad()
        given = to(inputs, device, grad=True)
        outputs = layer.call(run, graph, given)
        if layer.orders > 0:
            sum(out.square().sum() for out in outputs).backward()
        values = [*leaves(given), *module.parameters()]
        grads = [value.grad.clone() for value in values if value.grad is not None]
        results.append([*(out.detach() for out in outputs), *grads])
    equal(*results, tolerance=1e-5)


@pytest.mark.gpu
def test_cuda_graphs_of_the_compiler_go_around_the_ops():
    graph = GRAPHS["dgl"](ends())
    model, feat = Model().cuda(), torch.randn(300, 16, device="cuda")
    model(graph, feat)
    compiled = torch.compile(model, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):  # two steps to get ready, then replays
        torch.compiler.cudagraph_mark_step_begin()
        check(compiled, model, graph, feat, tolerance=1e-4)
        feat = feat.roll(1, 0)


@pytest.mark.gpu
def test_the_default_compiler_equals_the_eager_model():
    graph = GRAPHS["dgl"](ends())
    model, feat = Model().cuda(), torch.randn(300, 16, device="cuda")
    model(graph, feat)
    compiled = torch.compile(model, fullgraph=True)
    check(compiled, model, graph, feat, tolerance=1e-4)
    with dispatch.record() as choices:
        compiled(graph, feat)
    assert [(choice.op, choice.path) for choice in choices] == [
        ("gatv2", "fused"),
        ("spmm", "fused"),
    ]


@every_graph
def test_an_unknown_graph_breaks_outside_the_ops_and_only_once(device, kind):
    graph = GRAPHS[kind](ends())
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    found = torch._dynamo.explain(model)(graph, feat)
    for reason in found.break_reasons:
        files = [frame.filename for frame in reason.user_stack]
        assert not any("/dgl_flash/ops/" in name for name in files), reason
    torch._dynamo.reset()
    assert torch._dynamo.explain(model)(graph, feat).graph_break_count == 0


@every_graph
def test_other_graphs_take_their_own_edges(device, kind):
    model = Model().to(device)
    compiled = torch.compile(model, backend="aot_eager")
    graphs = [GRAPHS[kind](ends(300, 2000, seed)) for seed in (0, 1)]  # of the same sizes
    graphs += [GRAPHS[kind](ends(size, 7 * size, size)) for size in (100, 150, 201)]
    for graph in [*graphs, *graphs]:
        feat = torch.randn(graph.num_nodes(), 16, device=device)
        check(compiled, model, graph, feat)


def test_a_changed_graph_is_seen(device):
    graph = GRAPHS["dgl"](ends())
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    compiled = torch.compile(model, backend="aot_eager")
    check(compiled, model, graph, feat)
    before = compiled(graph, feat).detach()
    graph.add_edges(torch.arange(0, 100), torch.arange(100, 200))
    check(compiled, model, graph, feat)
    assert not torch.allclose(compiled(graph, feat), before)


def test_a_graph_may_go_before_its_backward(device):
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    compiled = torch.compile(model, backend="aot_eager")
    expected = step(model, model, make_graph(ends()), feat)
    equal(step(compiled, model, make_graph(ends()), feat), expected)


def test_edge_weights_get_their_gradient(device):
    graph = make_graph(ends())
    model, feat = Model().to(device), torch.randn(300, 16, device=device)
    weight = torch.rand(2300, device=device)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    leaves = [weight.clone().requires_grad_() for _ in range(2)]
    expected = step(model, model, graph, feat, leaves[0])
    equal(step(compiled, model, graph, feat, leaves[1]), expected)


def test_attention_dropout_and_attention_are_traced(device):
    graph = make_graph(ends())
    layer = dglnn.GATv2Conv(16, 8, 4, attn_drop=0.5).to(device)
    feat = torch.randn(300, 16, device=device)
    layer(graph, feat)  # reads the structure
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    dropped, attention = compiled(graph, feat, get_attention=True)
    assert 0.4 < (attention == 0).float().mean() < 0.6
    kept = copy.deepcopy(layer).eval()
    out, attention = torch.compile(kept, backend="aot_eager", fullgraph=True)(
        graph, feat, get_attention=True
    )
    equal((out, attention), kept(graph, feat, get_attention=True))
    assert not torch.allclose(dropped, out)


def test_zero_in_degrees_are_refused(device):
    graph = make_graph(([0, 1], [1, 2]))
    layer = dglnn.GraphConv(4, 2).to(device)
    layer.set_allow_zero_in_degree(False)
    with pytest.raises(Exception, match="0-in-degree"):
        torch.compile(layer, backend="eager")(graph, torch.ones(3, 4, device=device))
