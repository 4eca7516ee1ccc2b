"""Statistics of rows as they come: shapes, strides, modes, and what is no such rows."""

from __future__ import annotations

import dgl
import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import random_graph, two_relations, zoo
from tests.ops.common import draw, every_dtype, on, skewed_graph
from tests.ops.test_extremum_inputs import every_stride, strided
from tests.ops.test_statistics import ALL, PNA

on_either = pytest.mark.parametrize("on_edges", [False, True], ids=["sources", "edges"])


@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4), (0,), (3, 0)], ids=str)
@on_either
def test_shapes(shape, on_edges, device):
    graph = random_graph(40, 300, seed=2)
    size = 300 if on_edges else 40
    feat = draw(size, *shape, dtype=torch.float32, device=device, seed=1).requires_grad_()
    found = ops.statistics(graph, feat, ALL, on_edges=on_edges)
    assert {(tuple(part.shape), part.dtype) for part in found} == {((40, *shape), feat.dtype)}
    (grad,) = torch.autograd.grad(sum(part.sum() for part in found), feat)
    struct = on(device, graph)
    flat = feat.detach().reshape(size, feat[:1].numel()).double().requires_grad_()
    exact = reference.statistics(struct, flat, ALL, on_edges)
    (exact_grad,) = torch.autograd.grad(sum(part.sum() for part in exact), flat)
    for mine, wanted in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.flatten().double(), wanted.flatten(), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(grad.flatten().double(), exact_grad.flatten(), rtol=1e-2, atol=1e-2)


@every_stride
@on_either
def test_strides_do_not_matter(how, on_edges, device):
    graph = skewed_graph()
    size = 2500 if on_edges else 300
    feat = draw(size, 2, 4, dtype=torch.float32, device=device, seed=1)
    grads = [draw(300, 2, 4, dtype=torch.float32, device=device, seed=n) for n in range(4)]
    results = []
    for values, incoming in (
        (feat, grads),
        (strided(feat)[how], [strided(grad)[how] for grad in grads]),
    ):
        leaf = values.detach().requires_grad_()
        found = ops.statistics(graph, leaf, PNA, on_edges=on_edges)
        results.append([*found, *torch.autograd.grad(found, leaf, incoming)])
    for mine, wanted in zip(*reversed(results), strict=True):
        assert torch.equal(mine, wanted)


@on_either
def test_expanded_rows_and_gradients(on_edges, device):
    graph = skewed_graph()
    size = 2500 if on_edges else 300
    feat = draw(size, 1, dtype=torch.float32, device=device, seed=1)
    results = []
    for values in (feat.expand(-1, 6), feat.repeat(1, 6)):
        leaf = values.detach().requires_grad_()
        found = ops.statistics(graph, leaf, ("sum", "mean", "max", "min"), on_edges=on_edges)
        (grad,) = torch.autograd.grad(sum(part.sum() for part in found), leaf)
        assert torch.equal(grad, grad[:, :1].expand(-1, 6))
        results.append([*found, grad])
    for mine, wanted in zip(*results, strict=True):
        assert torch.equal(mine, wanted)


@every_dtype
@on_either
def test_the_same_without_gradients(dtype, on_edges, device):
    graph = skewed_graph()
    size = 2500 if on_edges else 300
    feat = draw(size, 8, dtype=dtype, device=device, seed=1).requires_grad_()
    expected = ops.statistics(graph, feat, ALL, on_edges=on_edges)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            found = ops.statistics(graph, feat, ALL, on_edges=on_edges)
        for mine, wanted in zip(found, expected, strict=True):
            assert torch.equal(mine, wanted.detach())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_autocast(dtype, device):
    if device.type == "cpu" and dtype == torch.float16:
        return  # autocast has bfloat16 only in older releases
    graph = skewed_graph()
    feat = draw(300, 8, dtype=torch.float32, device=device, seed=1).requires_grad_()
    half = feat.detach().to(dtype).requires_grad_()
    with torch.autocast(device.type, dtype):
        found = ops.statistics(graph, feat, PNA)
    (grad,) = torch.autograd.grad(sum(part.float().sum() for part in found), feat)
    expected = ops.statistics(graph, half, PNA)
    (wanted,) = torch.autograd.grad(sum(part.float().sum() for part in expected), half)
    assert {part.dtype for part in found} == {dtype}
    assert grad.dtype == torch.float32
    assert torch.equal(grad, wanted.float())
    for mine, other in zip(found, expected, strict=True):
        assert torch.equal(mine, other)


@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
@pytest.mark.parametrize("names", [("max",), ("mean", "max"), ("sum", "min", "max"), PNA], ids=str)
def test_torch_func_differentiates(names, device):
    graph = skewed_graph()
    feat = draw(300, 3, dtype=torch.float64, device=device, seed=1).requires_grad_()

    def loss(values):
        return sum(part.square().sum() for part in ops.statistics(graph, values, names))

    (expected,) = torch.autograd.grad(loss(feat), feat)
    torch.testing.assert_close(torch.func.grad(loss)(feat.detach()), expected)


@pytest.mark.filterwarnings("ignore")
@on_either
def test_a_compiled_model_is_one_graph(on_edges, device):
    torch._dynamo.reset()
    struct = on(device, random_graph(9, 40, seed=3))
    size = 40 if on_edges else 9
    feat = draw(size, 3, dtype=torch.float64, device=device, seed=1).requires_grad_()

    def run(graph, values):
        found = ops.statistics(graph, values, ("max", "mean", "min", "sum"), on_edges=on_edges)
        return sum(part.square().sum() for part in found)

    expected = torch.autograd.grad(run(struct, feat), feat)
    compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
    found = torch.autograd.grad(compiled(struct, feat), feat)
    torch.testing.assert_close(found, expected)


def test_names_in_any_order_and_kind_of_sequence(device):
    graph = skewed_graph()
    feat = draw(300, 3, dtype=torch.float32, device=device, seed=1)
    found = dict(zip(ALL, ops.statistics(graph, feat, ALL), strict=True))
    backwards = list(reversed(ALL))
    for name, part in zip(backwards, ops.statistics(graph, feat, backwards), strict=True):
        assert torch.equal(part, found[name])
    for default, name in zip(ops.statistics(graph, feat), PNA, strict=True):
        torch.testing.assert_close(default, found[name])


def test_our_own_graphs_blocks_and_structures_are_taken(device):
    for name in ("block", "bipartite_up", "csc_only"):
        graph = zoo()[name](torch.int32)
        feat = draw(graph.num_src_nodes(), 3, dtype=torch.float32, device=device, seed=1)
        expected = ops.statistics(graph, feat, PNA)
        for mine, wanted in zip(
            ops.statistics(on(device, graph), feat, PNA), expected, strict=True
        ):
            assert mine.shape == (graph.num_dst_nodes(), 3)
            assert torch.equal(mine, wanted)


WRONG = {
    "no graph": ("graph", TypeError, "statistics"),
    "relations": (two_relations(), dgl.DGLError, "edge type"),
    "no tensor": ([[1.0]], TypeError, "`feat` to be a torch.Tensor"),
    "a number": (torch.tensor(1.0), ValueError, r"\(N_src, \*\)"),
    "sparse": (torch.eye(300).to_sparse(), ValueError, "dense"),
    "whole numbers": (torch.zeros(300, 3, dtype=torch.int64), TypeError, "feat.float()"),
    "complex": (torch.zeros(300, 3, dtype=torch.complex64), TypeError, "feat.float()"),
    "one name": ("mean", ValueError, "different ones of"),
}


@pytest.mark.parametrize("case", WRONG)
def test_spoiled_arguments(case):
    value, error, text = WRONG[case]
    given = {"graph": skewed_graph(), "feat": torch.zeros(300, 3)}
    spoiled = {"no graph": "graph", "relations": "graph", "one name": "names"}.get(case, "feat")
    with pytest.raises(error, match=text):
        ops.statistics(**given | {spoiled: value})
