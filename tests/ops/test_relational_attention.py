"""Attention over typed edges, in runs and in tiles."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from dgl_flash import reference
from dgl_flash.demo.memory import peak_memory
from dgl_flash.ops.relational_attention import relational_attention
from dgl_flash.structure import graph as make_graph
from dgl_flash.structure import relations, structure, tiles
from tests.graphs import zoo
from tests.numerics import check_op, outputs_and_grads, pseudo_random
from tests.ops.common import (
    draw,
    every_dtype,
    every_graph,
    every_idtype,
    on,
    skewed_graph,
    small_graph_of,
)
from tests.sync import no_device_sync

# Keys of pairs are rounded, where the twin multiplies in one go.
ULPS = {torch.float64: 4000, torch.float32: 100, torch.float16: 8, torch.bfloat16: 8}


@pytest.fixture(params=["chosen", "tiles"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, and what a GPU has."""
    if request.param == "tiles":
        for module in (tiles, relations):
            monkeypatch.setattr(module, "use_tiles", lambda device: True)
    return request.param


def obvious(struct, q, k, v, key_weight, value_weight, etypes, scale=None):
    """A key and a value for each edge."""
    src, dst = struct.edges()
    keys = torch.einsum("ehi,ehio->eho", k[src], key_weight[etypes])
    values = torch.einsum("ehi,ehio->eho", v[src], value_weight[etypes])
    scores = (keys * q[dst]).sum(-1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    attention = reference.edge_softmax(struct, scores).unsqueeze(-1)
    out = q.new_zeros(struct.num_dst, *values.shape[1:])
    return out.index_add(0, dst, attention * values)


def types_of(struct, num_types=3):
    generator = torch.Generator().manual_seed(5)
    drawn = torch.rand(struct.num_edges, generator=generator) ** 3 * num_types
    return drawn.long().to(struct.device)


def inputs(struct, num_types=3, num_heads=2, **kind):
    return {
        "q": draw(struct.num_dst, num_heads, 4, seed=1, **kind),
        "k": draw(struct.num_src, num_heads, 3, seed=2, **kind),
        "v": draw(struct.num_src, num_heads, 5, seed=3, **kind),
        "key_weight": draw(num_types, num_heads, 3, 4, seed=4, **kind),
        "value_weight": draw(num_types, num_heads, 5, 6, seed=5, **kind),
    }


def run_both(graph, device, etypes, given):
    struct = on(device, graph)
    names = ("out", *(f"grad_{name}" for name in given))
    check_op(
        lambda **kw: relational_attention(graph, etypes=etypes, **kw),
        lambda **kw: obvious(struct, etypes=etypes, **kw),
        given,
        ulps=dict.fromkeys(names, ULPS[given["q"].dtype]),
    )


@every_graph
@every_idtype
def test_every_graph(name, idtype, device):
    graph = zoo()[name](idtype)
    struct = on(device, graph)
    run_both(graph, device, types_of(struct), inputs(struct, dtype=torch.float32, device=device))


@every_dtype
@pytest.mark.parametrize("num_heads", [1, 3])
def test_every_dtype(dtype, num_heads, device):
    graph = small_graph_of(60, 700)
    struct = on(device, graph)
    given = inputs(struct, num_heads=num_heads, dtype=dtype, device=device)
    run_both(graph, device, types_of(struct), given)


@pytest.mark.parametrize("scale", [None, 1.0, 0.3])
def test_long_rows_and_scales(scale, device):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float64, device=device)
    etypes = types_of(struct)
    torch.testing.assert_close(
        relational_attention(graph, etypes=etypes, scale=scale, **given),
        obvious(struct, etypes=etypes, scale=scale, **given),
    )


def test_more_relations_than_edges(device):
    graph = small_graph_of(60, 700)
    struct = on(device, graph)
    given = inputs(struct, num_types=2000, dtype=torch.float32, device=device)
    run_both(graph, device, types_of(struct, 2000), given)


@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
def test_gradcheck_to_second_order(device):
    graph = make_graph(([0, 1, 2, 0, 0, 1, 2, 2], [1, 1, 0, 0, 1, 2, 0, 1]), num_nodes=3)
    etypes = torch.tensor([0, 2, 2, 0, 0, 2, 0, 2], device=device)  # and no edge of type 1
    given = inputs(structure(graph, device), num_heads=2, dtype=torch.float64, device=device)
    leaves = [value[..., :2].clone() for value in given.values()]
    leaves = [value[..., :2, :] if value.dim() == 4 else value for value in leaves]
    leaves = [value.clone().requires_grad_() for value in leaves]

    def run(*values):
        return relational_attention(graph, *values, etypes).sin()

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


@pytest.mark.parametrize("alone", ["q", "k", "v", "key_weight", "value_weight"])
def test_a_gradient_alone(alone, device):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float64, device=device)
    etypes = types_of(struct)
    together = outputs_and_grads(
        lambda **kw: relational_attention(graph, etypes=etypes, **kw), given
    )
    given = {name: value.detach() for name, value in given.items()}
    leaf = given[alone].requires_grad_()
    out = relational_attention(graph, etypes=etypes, **given)
    (grad,) = torch.autograd.grad(out, leaf, pseudo_random(out))
    torch.testing.assert_close(grad, together[f"grad_{alone}"])


def test_one_operand_made_from_another(device):
    graph = make_graph(([0, 1, 2, 0], [1, 1, 0, 2]), num_nodes=3)
    etypes = torch.tensor([0, 1, 0, 1], device=device)
    weight = draw(2, 1, 2, 2, seed=1, dtype=torch.float64, device=device).requires_grad_()
    rows = weight.reshape(4, 1, 2)[:3]
    out = relational_attention(graph, rows, rows, rows, weight, weight, etypes)
    grads = (
        torch.autograd.grad(out, weight, pseudo_random(out), create_graph=again, retain_graph=True)
        for again in (False, True)
    )
    torch.testing.assert_close(*(grad for (grad,) in grads))


def test_two_runs_agree_bitwise(device):
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    etypes = types_of(struct)
    first, second = (
        outputs_and_grads(lambda **kw: relational_attention(graph, etypes=etypes, **kw), given)
        for _ in range(2)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name])


def test_strided_operands(device):
    graph = small_graph_of()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float64, device=device)
    etypes = types_of(struct)
    strided = {name: value.mT.contiguous().mT for name, value in given.items()}
    torch.testing.assert_close(
        relational_attention(graph, etypes=etypes, **strided),
        relational_attention(graph, etypes=etypes, **given),
    )


def test_pairs_are_sorted_once(device, monkeypatch):
    """For a graph and a tensor of types, whatever else changes, and kept no longer than both."""
    built = []
    build = relations._build

    def count(*args):
        built.append(args)
        return build(*args)

    monkeypatch.setattr(relations, "_build", count)
    graph = small_graph_of()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    etypes = types_of(struct)
    outputs = [relational_attention(graph, etypes=etypes, **given) for _ in range(2)]
    assert torch.equal(*outputs)
    assert len(built) == 1
    etypes.copy_(2 - etypes)
    changed = relational_attention(graph, etypes=etypes, **given)
    assert len(built) == 2
    assert torch.equal(changed, relational_attention(graph, etypes=etypes.clone(), **given))
    built.clear()
    gone = weakref.ref(struct._edges)
    del graph, struct
    gc.collect()
    assert gone() is None


def test_autocast(device):
    graph = small_graph_of()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    given = {name: value.requires_grad_() for name, value in given.items()}
    etypes = types_of(struct)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = relational_attention(graph, etypes=etypes, **given)
    assert out.dtype == torch.bfloat16
    expected = obvious(struct, etypes=etypes, **given)
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.2)
    out.sum().backward()
    assert all(value.grad.dtype == torch.float32 for value in given.values())


SPOILED = [
    ("q", lambda t: t.tolist(), TypeError, "`q`"),
    ("q", lambda t: t[:-1], ValueError, r"\(N_dst, H, D\)"),
    ("q", lambda t: t[..., :3], ValueError, "`key_weight`"),
    ("k", lambda t: t.double(), TypeError, "like `q`"),
    ("k", lambda t: t[:-1], ValueError, r"\(N_src, H, in\)"),
    ("v", lambda t: t[:, :1], ValueError, r"\(N_src, H, in\)"),
    ("v", lambda t: t[..., :3], ValueError, "`value_weight`"),
    ("key_weight", lambda t: t.half(), TypeError, "like `q`"),
    ("key_weight", lambda t: t[:, 0], ValueError, r"\(R, H, in, D\)"),
    ("value_weight", lambda t: t[:2], ValueError, "R = 3"),
    ("etypes", lambda t: t.float(), TypeError, "int32 or int64"),
    ("etypes", lambda t: t[:, None], ValueError, r"\(E,\)"),
    ("etypes", lambda t: t + 1, IndexError, "relational_attention: .* from 1 to 3"),
    ("etypes", lambda t: t - 1, IndexError, "from -1 to 1"),
]


@pytest.mark.parametrize(("name", "spoil", "error", "text"), SPOILED)
def test_wrong_arguments(name, spoil, error, text, device):
    graph = small_graph_of()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    given["etypes"] = (torch.arange(struct.num_edges) % 3).to(device)
    relational_attention(graph, **given)
    given[name] = spoil(given[name])
    with pytest.raises(error, match=text):
        relational_attention(graph, **given)


def test_too_few_types(device):
    graph = small_graph_of()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    with pytest.raises(Exception, match=r"number of edges\. Got 7 and 40") as caught:
        relational_attention(graph, etypes=types_of(struct)[:7], **given)
    assert type(caught.value).__name__ == "DGLError"


@pytest.mark.gpu
def test_a_known_graph_is_not_waited_for():
    device = torch.device("cuda")
    graph = skewed_graph()
    struct = on(device, graph)
    given = inputs(struct, dtype=torch.float32, device=device)
    leaves = {name: value.requires_grad_() for name, value in given.items()}
    etypes = types_of(struct)
    relational_attention(graph, etypes=etypes, **leaves).sum().backward()
    with no_device_sync():
        relational_attention(graph, etypes=etypes, **leaves).sum().backward()


@pytest.mark.gpu
def test_memory_grows_with_pairs_not_with_edges():
    device = torch.device("cuda")
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 2000, (2, 400_000), generator=generator)
    graph = structure(make_graph((src, dst), num_nodes=2000), device)
    etypes = (torch.arange(400_000) % 4).to(device)
    rows = torch.randn(2000, 4, 32, device=device, requires_grad=True)
    weight = torch.randn(4, 4, 32, 32, device=device, requires_grad=True)

    def step():
        relational_attention(graph, rows, rows, rows, weight, weight, etypes).sum().backward()

    step()
    pairs = 4 * 2000 * 4 * 32 * 4
    edges = 400_000 * 4 * 32 * 4
    assert peak_memory(step, device) < 20 * pairs < edges
