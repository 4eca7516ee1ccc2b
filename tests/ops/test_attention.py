"""What all kinds of attention have in common: terms of edges, attention output, derivatives."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from dgl_flash.ops.dispatch import record
from tests.graphs import zoo
from tests.numerics import check_op
from tests.ops.attention import KINDS, every_kind, mask_of
from tests.ops.common import (
    EDGE_ULPS,
    LAYOUT_GRAPHS,
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_half,
    every_idtype,
    every_kind_of_row,
    every_layout,
    every_shape,
    every_tail,
    on,
    only_cuda,
    skewed_graph,
    small_graph_of,
)

SMALL = {"dtype": torch.float32}


def twins(kind, graph, device, given, **options):
    chosen = KINDS[kind]
    check_twins(
        lambda g, **kw: chosen.op(g, **kw, **options),
        lambda s, **kw: chosen.twin(s, **kw, **options),
        graph,
        device,
        ulps=EDGES.get(next(iter(given.values())).dtype),
        nothing=NOTHING,
        **given,
    )


# Where all edges of every row have scores of one slope, the gradients of GAT's numbers are zero.
NOTHING = 1e-13


# The gradient to one number of an edge, or of a node with few edges, is little more than one dot
# product, whose terms may cancel. In the skewed graph it is judged by what is usual in a row of
# 1,500 edges, a thousandth of what an edge has that is alone.
NUMBERS = ("out1", "grad_edge_bias", "grad_edge_weight", "grad_el", "grad_er")
EDGES = {
    dtype: dict.fromkeys(NUMBERS, 4 * allowed if dtype == torch.float32 else allowed)
    for dtype, allowed in EDGE_ULPS.items()
}
# Two dot products stand behind each term of these.
for name in ("grad_q", "grad_k"):
    EDGES[torch.float32][name] = 12.0


@every_idtype
@every_graph
@every_kind
def test_every_graph(kind, name, idtype, device):
    graph = zoo()[name](idtype)
    twins(kind, graph, device, KINDS[kind].inputs(graph, 2, 16, torch.float32, device))


@every_half
@every_kind_of_row
@pytest.mark.parametrize("head_dim", [7, 64])
@every_kind
def test_every_kind_of_row_in_16_bits(kind, name, dtype, head_dim, device):
    graph = zoo()[name](torch.int64)
    twins(kind, graph, device, KINDS[kind].inputs(graph, 2, head_dim, dtype, device))


@every_shape
@every_kind
def test_every_shape(kind, num_heads, head_dim, dtype, device):
    graph = skewed_graph()
    twins(kind, graph, device, KINDS[kind].inputs(graph, num_heads, head_dim, dtype, device))


@every_layout
@every_dtype
@every_tail
@every_kind
def test_every_layout(kind, rows, dtype, num_heads, head_dim, device):
    graph = LAYOUT_GRAPHS[rows]()
    twins(kind, graph, device, KINDS[kind].inputs(graph, num_heads, head_dim, dtype, device))


@every_dtype
@every_kind
def test_nan_reaches_what_depends_on_it(kind, dtype, device):
    graph = skewed_graph()
    given = KINDS[kind].inputs(graph, 2, 64, dtype, device)
    struct = on(device, graph)
    for name, operand in given.items():
        damaged = operand.clone()
        damaged[(5, 0)[: damaged.dim() - 1] if name != "attn" else (0, 0)] = float("nan")
        values = {**given, name: damaged}
        out = KINDS[kind].op(graph, **values)
        assert torch.equal(out.isnan(), KINDS[kind].twin(struct, **values).isnan()), name


def with_terms(kind, graph, num_heads, head_dim, dtype, device, bias=2, weight=2):
    """Operands with numbers of edges, each one for all heads (1) or one for each (2)."""
    given = KINDS[kind].inputs(graph, num_heads, head_dim, dtype, device)
    num_edges = graph.num_edges()
    for name, how, seed in (("edge_bias", bias, 7), ("edge_weight", weight, 8)):
        if how:
            width = 1 if how == 1 else num_heads
            given[name] = draw(num_edges, width, dtype=dtype, device=device, seed=seed)
    return given


@every_dtype
@pytest.mark.parametrize(("bias", "weight"), [(1, 0), (2, 0), (0, 1), (0, 2), (1, 2), (2, 1)])
@every_kind
def test_numbers_of_edges(kind, bias, weight, dtype, device):
    graph = skewed_graph()
    given = with_terms(kind, graph, 3, 8, dtype, device, bias=bias, weight=weight)
    twins(kind, graph, device, given)


@every_graph
@every_kind
def test_numbers_of_edges_on_every_graph(kind, name, device):
    graph = zoo()[name](torch.int64)
    given = with_terms(kind, graph, 2, 16, torch.float32, device)
    twins(kind, graph, device, given, return_attention=True)


@only_cuda
@every_layout
@every_tail
@every_kind
def test_numbers_of_edges_with_every_layout(kind, rows, num_heads, head_dim, device):
    graph = LAYOUT_GRAPHS[rows]()
    given = with_terms(kind, graph, num_heads, head_dim, torch.float32, device)
    twins(kind, graph, device, given, return_attention=True)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 1), (1, 1)], ids=str)
@every_kind
def test_shapes_of_numbers_of_edges(kind, shape, device):
    graph = skewed_graph()
    given = KINDS[kind].inputs(graph, 2, 8, torch.float64, device)
    numbers = draw(2500, *shape, dtype=torch.float64, device=device, seed=7)
    found = KINDS[kind].op(graph, **given, edge_bias=numbers, edge_weight=numbers)
    full = numbers.reshape(2500, -1).expand(2500, 2)
    expected = KINDS[kind].op(graph, **given, edge_bias=full, edge_weight=full)
    torch.testing.assert_close(found, expected)


@every_dtype
@every_kind_of_row
@every_kind
def test_the_attention_of_every_kind_of_row(kind, name, dtype, device):
    graph = zoo()[name](torch.int64)
    given = KINDS[kind].inputs(graph, 3, 7, dtype, device)
    twins(kind, graph, device, given, return_attention=True)


@every_kind
def test_the_attention_alone_has_gradients(kind, device):
    graph = skewed_graph()
    given = with_terms(kind, graph, 2, 16, torch.float32, device)
    chosen = KINDS[kind]
    struct = on(device, graph)
    check_op(
        lambda **kw: chosen.op(graph, **kw, return_attention=True)[1],
        lambda **kw: chosen.twin(struct, **kw, return_attention=True)[1],
        given,
        ulps={**EDGES[torch.float32], "out": EDGE_ULPS[torch.float32]},
    )


@pytest.mark.parametrize("attention", [False, True])
@every_kind
def test_gradcheck_to_second_order(kind, attention, device):
    graph = small_graph_of()
    given = with_terms(kind, graph, 2, 3, torch.float64, device)
    leaves = [t.requires_grad_() for t in given.values()]

    def run(*args):
        named = dict(zip(given, args, strict=True))
        return KINDS[kind].op(graph, **named, return_attention=attention)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@every_kind
def test_one_gradient_alone(kind, device):
    graph = skewed_graph()
    given = with_terms(kind, graph, 2, 16, torch.float64, device)
    struct = on(device, graph)
    for wanted in given:
        alone = {k: v.clone().requires_grad_(k == wanted) for k, v in given.items()}
        KINDS[kind].op(graph, **alone).square().sum().backward()
        twin = {k: v.clone().requires_grad_(k == wanted) for k, v in given.items()}
        KINDS[kind].twin(struct, **twin).square().sum().backward()
        torch.testing.assert_close(alone[wanted].grad, twin[wanted].grad)


@every_kind
def test_two_runs_agree_bitwise(kind, device):
    graph = skewed_graph()
    given = with_terms(kind, graph, 3, 40, torch.float32, device)
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        leaves = {k: v.clone().requires_grad_() for k, v in given.items()}
        out, attention = KINDS[kind].op(graph, **leaves, attn_drop=0.3, return_attention=True)
        (out.square().sum() + attention.square().sum()).backward()
        runs.append([out.detach(), attention.detach(), *(t.grad for t in leaves.values())])
    for a, b in zip(*runs, strict=True):
        assert torch.equal(a, b)


@every_kind
def test_results_may_be_written_over(kind, device):
    graph = skewed_graph()
    given = {
        k: v.requires_grad_()
        for k, v in with_terms(kind, graph, 2, 8, torch.float32, device).items()
    }
    out, attention = KINDS[kind].op(graph, **given, return_attention=True)
    out.mul_(2).add_(1)
    if device.type == "cuda":  # elsewhere, as in DGL, the sum keeps it for its backward pass
        attention.mul_(2)
    (out.sum() + attention.sum()).backward()
    assert all(t.grad.isfinite().all() for t in given.values())


@every_dtype
@pytest.mark.parametrize("drop", [0.1, 0.6])
@every_kind
def test_dropout_is_a_mask_of_edges_and_heads(kind, drop, dtype, device):
    """The op equals its reference under the same mask, gradients included."""
    graph = skewed_graph()
    chosen = KINDS[kind]
    given = with_terms(kind, graph, 2, 16, dtype, device)
    struct = on(device, graph)
    # A 16-bit mask would round 1 / (1 - p), which the op does not.
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    mask = mask_of(struct, 2, wide, drop, seed=3)

    def op(**kw):
        torch.manual_seed(3)
        return chosen.op(graph, **kw, attn_drop=drop, return_attention=True)

    def twin(**kw):
        return chosen.twin(struct, **kw, keep=mask, return_attention=True)

    check_op(op, twin, given, ulps=EDGES[dtype])


@only_cuda
@every_layout
@every_tail
@every_kind
def test_dropout_with_every_layout(kind, rows, num_heads, head_dim, device):
    graph = LAYOUT_GRAPHS[rows]()
    chosen = KINDS[kind]
    given = chosen.inputs(graph, num_heads, head_dim, torch.float32, device)
    struct = on(device, graph)
    mask = mask_of(struct, num_heads, torch.float32, 0.5, seed=3)

    def op(**kw):
        torch.manual_seed(3)
        return chosen.op(graph, **kw, attn_drop=0.5)

    check_op(
        op, lambda **kw: chosen.twin(struct, **kw, keep=mask), given, ulps=EDGES[torch.float32]
    )


@every_kind
def test_dropout_has_second_derivatives(kind, device):
    graph = small_graph_of()
    given = KINDS[kind].inputs(graph, 2, 3, torch.float64, device)
    leaves = [t.requires_grad_() for t in given.values()]

    def run(*args):
        torch.manual_seed(3)
        return KINDS[kind].op(graph, **dict(zip(given, args, strict=True)), attn_drop=0.5)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)


@every_kind
def test_all_dropped_is_nothing(kind, device):
    graph = skewed_graph()
    given = {
        k: v.requires_grad_()
        for k, v in KINDS[kind].inputs(graph, 2, 8, torch.float32, device).items()
    }
    out, attention = KINDS[kind].op(graph, **given, attn_drop=1.0, return_attention=True)
    assert not out.any()
    assert not attention.any()
    out.sum().backward()
    assert not any(t.grad.any() for t in given.values())


@every_kind
def test_dropout_is_reproducible_and_off_without_it(kind, device):
    graph = skewed_graph()
    given = KINDS[kind].inputs(graph, 2, 8, torch.float32, device)
    outs = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        outs.append(KINDS[kind].op(graph, **given, attn_drop=0.5))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])
    assert not torch.equal(outs[0], KINDS[kind].op(graph, **given, attn_drop=0.5))
    generator = torch.cuda.get_rng_state if device.type == "cuda" else torch.get_rng_state
    state = generator()
    KINDS[kind].op(graph, **given)
    assert torch.equal(state, generator())


@every_kind
def test_dropout_under_checkpointing(kind, device):
    """The mask of the recomputed forward is that of the first."""
    graph = skewed_graph()
    given = KINDS[kind].inputs(graph, 2, 8, torch.float32, device)

    def run(*args):
        return KINDS[kind].op(graph, **dict(zip(given, args, strict=True)), attn_drop=0.5)

    grads = []
    for wrap in (lambda f, *a: f(*a), lambda f, *a: checkpoint(f, *a, use_reentrant=False)):
        torch.manual_seed(1)
        leaves = [t.clone().requires_grad_() for t in given.values()]
        out = wrap(run, *leaves)
        grads.append((out.detach(), *torch.autograd.grad(out.square().sum(), leaves)))
    for a, b in zip(*grads, strict=True):
        assert torch.equal(a, b)


@every_kind
def test_all_options_run_fused(kind, device):
    graph = skewed_graph()
    given = with_terms(kind, graph, 2, 16, torch.float32, device)
    with record() as choices:
        KINDS[kind].op(graph, **given, attn_drop=0.5, return_attention=True)
    assert choices[0].op == kind
    assert choices[0].path == ("fused" if device.type == "cuda" else "reference")


@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
@every_kind
def test_heads_wider_than_the_kernels(kind, device):
    graph = small_graph_of()
    given = with_terms(kind, graph, 2, 513, torch.float32, device)
    twins(kind, graph, device, given, return_attention=True)


@every_kind
def test_spoiled_numbers_of_edges(kind, device):
    graph = skewed_graph()
    given = KINDS[kind].inputs(graph, 2, 8, torch.float32, device)
    good = draw(2500, 2, **SMALL, device=device, seed=1)
    expected = KINDS[kind].op(graph, **given)
    for name in ("edge_bias", "edge_weight"):
        for spoiled, error in (
            (good[:-1], ValueError),
            (good[:, :1].expand(2500, 3), ValueError),
            (good.double(), TypeError),
            (good.long(), TypeError),
            (good.tolist(), TypeError),
            (good.to("meta"), ValueError),
        ):
            with pytest.raises(error, match=rf"{kind}: expected `{name}`"):
                KINDS[kind].op(graph, **given, **{name: spoiled})
    for drop in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=rf"{kind}: expected `attn_drop`"):
            KINDS[kind].op(graph, **given, attn_drop=drop)
    assert torch.equal(KINDS[kind].op(graph, **given), expected)
