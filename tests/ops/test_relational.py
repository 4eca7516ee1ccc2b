"""Sums over typed edges: whole and in chunks, in runs and in tiles."""

from __future__ import annotations

import pytest
import torch

import dgl_flash
from dgl_flash import ops
from dgl_flash.demo.memory import peak_memory
from dgl_flash.structure import graph as make_graph
from dgl_flash.structure import relations, structure, tiles
from tests.graphs import zoo
from tests.numerics import check_op, outputs_and_grads, pseudo_random
from tests.ops.common import (
    EDGE_ULPS,
    draw,
    every_dtype,
    every_graph,
    every_idtype,
    on,
    skewed_graph,
    small_graph_of,
)
from tests.sync import no_device_sync

# A sum over a hub is made before the product here, and after it in the twin.
ULPS = {torch.float64: 4000, torch.float32: 64, torch.float16: 4, torch.bfloat16: 4}
every_norm = pytest.mark.parametrize("norm", ["none", "edge", "column", "output"])
every_kind = pytest.mark.parametrize("blocks", [0, 2], ids=["full", "blocks"])


@pytest.fixture(params=["chosen", "tiles"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, and what a GPU has."""
    if request.param == "tiles":
        for module in (tiles, relations):
            monkeypatch.setattr(module, "use_tiles", lambda device: True)
    return request.param


@pytest.fixture(params=[2**17, 70], ids=["whole", "chunks"])
def chunk_size(request, monkeypatch):
    monkeypatch.setattr(relations, "FEWEST_EDGES", request.param)
    return request.param


def obvious(struct, feat, weight, etypes, norm=None):
    """A message for each edge."""
    if weight.dim() == 4:
        weight = torch.stack([torch.block_diag(*matrix) for matrix in weight])
    src, dst = struct.edges()
    messages = torch.einsum("ei,eio->eo", feat[src], weight[etypes])
    if norm is not None:
        messages = messages * (norm if norm.dim() == 2 else norm[:, None])
    out = messages.new_zeros(struct.num_dst, messages.shape[1])
    return out.index_add(0, dst, messages)


def types_of(struct, num_types=3):
    generator = torch.Generator().manual_seed(5)
    drawn = torch.rand(struct.num_edges, generator=generator) ** 3 * num_types
    return drawn.long().to(struct.device)


def inputs(struct, blocks=0, norm="none", num_types=3, **kind):
    shape = (2, 3, 2) if blocks else (6, 4)
    given = {
        "feat": draw(struct.num_src, 6, seed=1, **kind),
        "weight": draw(num_types, *shape, seed=2, **kind),
    }
    shapes = {"edge": (), "column": (1,), "output": (4,)}
    if norm != "none":
        given["norm"] = draw(struct.num_edges, *shapes[norm], seed=3, **kind)
    return given


def run_both(graph, device, etypes, given):
    struct = on(device, graph)
    dtype = given["feat"].dtype
    names = ("out", "grad_feat", "grad_weight")
    check_op(
        lambda **kw: ops.relational_sum(graph, etypes=etypes, **kw),
        lambda **kw: obvious(struct, etypes=etypes, **kw),
        given,
        ulps=dict.fromkeys(names, ULPS[dtype]) | {"grad_norm": EDGE_ULPS[dtype]},
    )


@every_graph
@every_idtype
def test_every_graph(name, idtype, device):
    graph = zoo()[name](idtype)
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    run_both(graph, device, types_of(struct), given)


@every_norm
@every_kind
def test_norms_and_blocks(norm, blocks, device, chunk_size):
    graph = skewed_graph()
    struct = on(device, graph)
    chunks = relations.relations(struct, types_of(struct), 3).chunks
    assert (len(chunks) > 2) == (chunk_size < struct.num_edges)
    given = inputs(struct, blocks, norm, dtype=torch.float32, device=device)
    run_both(graph, device, types_of(struct), given)


@every_dtype
@every_norm
def test_every_dtype(dtype, norm, device, chunk_size):
    graph = small_graph_of(60, 700)
    struct = on(device, graph)
    given = inputs(struct, 0, norm, dtype=dtype, device=device)
    run_both(graph, device, types_of(struct), given)


def test_more_relations_than_edges(device, chunk_size):
    graph = small_graph_of(60, 700)
    struct = on(device, graph)
    given = inputs(struct, num_types=2000, dtype=torch.float32, device=device)
    run_both(graph, device, types_of(struct, 2000), given)


@pytest.mark.parametrize("norm", ["column", "output"])
@pytest.mark.parametrize("fewest", [2**17, 4])
def test_gradcheck_to_second_order(norm, fewest, device, monkeypatch):
    monkeypatch.setattr(relations, "FEWEST_EDGES", fewest)
    graph = make_graph(([0, 1, 2, 0, 0, 1, 2, 2], [1, 1, 0, 0, 1, 2, 0, 1]), num_nodes=3)
    etypes = torch.tensor([0, 2, 2, 0, 0, 2, 0, 2], device=device)  # and no edge of type 1
    given = inputs(structure(graph, device), 0, norm, dtype=torch.float64, device=device)
    given = {
        "feat": given["feat"][:, :2].clone().requires_grad_(),
        "weight": given["weight"][:, :2, :2].clone().requires_grad_(),
        "norm": given["norm"][:, :2].clone().requires_grad_(),
    }

    def run(*values):
        return ops.relational_sum(graph, *values[:2], etypes, values[2]).sin()

    assert len(relations.relations(structure(graph, device), etypes, 3).chunks) == (
        2 if fewest == 4 else 1
    )
    assert torch.autograd.gradcheck(run, tuple(given.values()))
    assert torch.autograd.gradgradcheck(run, tuple(given.values()), fast_mode=True)


@every_norm
@pytest.mark.parametrize("alone", ["feat", "weight", "norm"])
def test_a_gradient_alone(alone, norm, device, chunk_size):
    """Without that of the features, the backward goes along the edges, not against them."""
    if alone == "norm" and norm == "none":
        alone = "weight"
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, norm=norm, dtype=torch.float64, device=device)
    etypes = types_of(struct)
    together = outputs_and_grads(lambda **kw: ops.relational_sum(graph, etypes=etypes, **kw), given)
    leaf = given[alone].requires_grad_()
    out = ops.relational_sum(graph, etypes=etypes, **given)
    (grad,) = torch.autograd.grad(out, leaf, pseudo_random(out))
    torch.testing.assert_close(grad, together[f"grad_{alone}"])


def test_both_directions_are_sorted_once(device, monkeypatch):
    """And that against the edges only where the features have a gradient."""
    built = []
    build = relations._build

    def count(struct, *args):
        built.append(struct._dst_side)
        return build(struct, *args)

    monkeypatch.setattr(relations, "_build", count)
    graph = skewed_graph()
    struct = on(device, graph)
    etypes = types_of(struct)
    given = inputs(struct, dtype=torch.float32, device=device)

    def step(*names):
        leaves = {name: given[name].detach().requires_grad_(name in names) for name in given}
        ops.relational_sum(graph, etypes=etypes, **leaves).sum().backward()

    step("weight")
    assert built == [0]
    for _ in range(2):
        step("feat", "weight")
    assert built == [0, 1]


@every_norm
def test_gradients_that_are_to_be_differentiated_are_the_same(norm, device, chunk_size):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, norm=norm, dtype=torch.float64, device=device)
    leaves = [value.requires_grad_() for value in given.values()]
    out = ops.relational_sum(graph, etypes=types_of(struct), **given)
    first = torch.autograd.grad(out, leaves, pseudo_random(out), retain_graph=True)
    second = torch.autograd.grad(out, leaves, pseudo_random(out), create_graph=True)
    assert all(grad.requires_grad for grad in second)
    torch.testing.assert_close(second, first)


def test_one_operand_made_from_another(device):
    """What the weights add to their gradient by way of the features is added once."""
    graph = make_graph(([0, 1, 2, 0], [1, 1, 0, 2]), num_nodes=3)
    etypes = torch.tensor([0, 1, 0, 1], device=device)
    weight = draw(2, 2, 2, seed=1, dtype=torch.float64, device=device).requires_grad_()
    out = ops.relational_sum(graph, weight.reshape(4, 2)[:3], weight, etypes)
    grads = (
        torch.autograd.grad(out, weight, pseudo_random(out), create_graph=again, retain_graph=True)
        for again in (False, True)
    )
    torch.testing.assert_close(*(grad for (grad,) in grads))


def test_two_runs_agree_bitwise(device, chunk_size):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, norm="edge", dtype=torch.float32, device=device)
    etypes = types_of(struct)
    first, second = (
        outputs_and_grads(lambda **kw: ops.relational_sum(graph, etypes=etypes, **kw), given)
        for _ in range(2)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name])


def test_no_gradient_is_recorded_where_none_is_wanted(device, chunk_size):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    expected = ops.relational_sum(graph, etypes=types_of(struct), **given)
    leaf = given["feat"].requires_grad_()
    with torch.no_grad():
        out = ops.relational_sum(graph, leaf, given["weight"], types_of(struct))
    assert not out.requires_grad
    assert torch.equal(out, expected)


DGL_ERROR = type(dgl_flash.errors.dgl_error(""))
FEAT, WEIGHT = torch.ones(300, 6), torch.ones(3, 6, 4)
SPOILED = {
    "feat of integers": ({"feat": FEAT.long()}, TypeError, "feat"),
    "feat has too few rows": ({"feat": FEAT[:-1]}, ValueError, "feat"),
    "feat of vectors": ({"feat": FEAT[:, :, None]}, ValueError, "feat"),
    "weight too narrow": ({"weight": WEIGHT[:, :5]}, ValueError, "weight"),
    "weight of other dtype": ({"weight": WEIGHT.double()}, TypeError, "weight"),
    "types too few": (
        {"etypes": torch.zeros(7).long()},
        DGL_ERROR,
        r"^Expect number of features to match number of edges\. Got 7 and 2500 instead\.$",
    ),
    "types of two columns": ({"etypes": torch.zeros(2500, 1).long()}, ValueError, "etypes"),
    "types of floats": ({"etypes": torch.zeros(2500)}, TypeError, "etypes"),
    "types out of range": ({"etypes": torch.full((2500,), 3)}, IndexError, "from 3 to 3"),
    "norm too long": (
        {"norm": torch.ones(2501)},
        DGL_ERROR,
        "Got 2501 and 2500 instead",
    ),
    "norm of other width": ({"norm": torch.ones(2500, 3)}, ValueError, "norm"),
    "norm of other dtype": ({"norm": torch.ones(2500).double()}, TypeError, "norm"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_arguments(name):
    spoiled, error, text = SPOILED[name]
    given = {"feat": FEAT, "weight": WEIGHT, "etypes": torch.zeros(2500).long()} | spoiled
    with pytest.raises(error, match=text):
        ops.relational_sum(skewed_graph(), **given)


def test_autocast(device, chunk_size):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, norm="edge", dtype=torch.float32, device=device)
    leaves = [value.requires_grad_() for value in given.values()]
    with torch.autocast(device.type, torch.bfloat16):
        out = ops.relational_sum(graph, etypes=types_of(struct), **given)
    assert out.dtype == torch.bfloat16
    grads = torch.autograd.grad(out.float().sum(), leaves)
    assert all(grad.dtype == torch.float32 for grad in grads)


def message_step(num_nodes, num_edges, device, width=64):
    """A forward and backward, and the bytes that a message for each edge would take."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(num_nodes, (2, num_edges), generator=generator)
    graph = make_graph((ends[0], ends[1]), num_nodes=num_nodes)
    etypes = torch.randint(20, (num_edges,), generator=generator).to(device)
    kind = {"dtype": torch.float32, "device": device}
    feat = draw(num_nodes, width, seed=1, **kind).requires_grad_()
    weight = draw(20, width, width, seed=2, **kind).requires_grad_()

    def step():
        out = ops.relational_sum(graph, feat, weight, etypes)
        return torch.autograd.grad(out, (feat, weight), torch.ones_like(out))

    step()  # structures and plans are built here
    return step, num_edges * width * 4


def test_memory_is_far_below_that_of_the_messages(monkeypatch):
    monkeypatch.setattr(relations, "FEWEST_EDGES", 1000)
    monkeypatch.setattr(relations, "NUM_CHUNKS", 40)
    step, messages = message_step(1000, 40_000, torch.device("cpu"))
    assert peak_memory(step, torch.device("cpu")) < messages / 4


@pytest.mark.gpu
def test_memory_is_below_that_of_the_messages():
    step, messages = message_step(20_000, 500_000, torch.device("cuda"))
    assert peak_memory(step, torch.device("cuda")) < messages


@pytest.mark.gpu
def test_no_sync_in_a_warm_step(chunk_size):
    graph = skewed_graph()
    device = torch.device("cuda")
    given = inputs(on(device, graph), norm="edge", dtype=torch.float32, device=device)
    leaves = [value.requires_grad_() for value in given.values()]
    etypes = types_of(on(device, graph))

    def step():
        out = ops.relational_sum(graph, *leaves[:2], etypes, leaves[2])
        return torch.autograd.grad(out.square().sum(), leaves)

    step()
    with no_device_sync():
        step()
