"""Maxima, minima and statistics of operands as they come: graphs, shapes, strides, modes."""

from __future__ import annotations

import dgl
import pytest
import torch

from dgl_flash import ops, reference
from dgl_flash.kernels.memory import poisoned_outputs
from dgl_flash.ops.choose_extremum import wants_lists
from dgl_flash.ops.winners import pick_forward, put_forward
from tests.graphs import random_graph, zoo
from tests.ops.common import (
    check_twins,
    draw,
    every_dtype,
    every_graph,
    every_idtype,
    on,
    only_cuda,
    skewed_graph,
    small_graph_of,
)
from tests.ops.test_autograd_contract import kept_by
from tests.ops.test_statistics import PNA, run_both
from tests.ops.test_winners import check, every_kind, every_reducer, operands, steps, won

KIND_OPS = {"none": "copy_lhs", "edges": "copy_rhs", "scalar": "mul", "head": "add"}


def sides_of(op, given):
    """Both sides of ``gspmm`` for one or two operands."""
    if op == "copy_lhs":
        return given[0], None
    return (None, given[0]) if op == "copy_rhs" else tuple(given)


def reduced(graph, op, reduce_op, given):
    return ops.gspmm(graph, op, reduce_op, *sides_of(op, given))


def crowd(num_nodes=30, num_edges=4000):
    """Many edges a row; the longest row of either direction is cut, even where lists are made."""
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    dst[:1500] = 7
    src[1000:2600] = 5
    order = torch.randperm(num_edges, generator=generator)
    return dgl.graph((src[order], dst[order]), num_nodes=num_nodes)


@every_idtype
@every_graph
@every_kind
def test_every_graph(name, idtype, kind, device):
    graph = zoo()[name](idtype)
    given = operands(graph, kind, 2, 3, torch.float64, device)
    check(graph, device, kind, KIND_OPS.get(kind, "mul"), "max", given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@every_kind
def test_crowds(dtype, kind, device):
    """Gradients by lists: several slices of a row, pieces of rows and of sources."""
    graph = crowd()
    struct = on(device, graph)
    assert wants_lists(struct.in_adj)
    assert struct.in_adj.max_degree > 1024
    assert struct.out_adj.max_degree > 1024
    given = operands(graph, kind, 2, 5, dtype, device)
    check(graph, device, kind, KIND_OPS.get(kind, "mul"), "min", given)


@only_cuda
@pytest.mark.parametrize(
    ("width", "dtype"),
    [(257, torch.float64), (600, torch.float32), (1433, torch.float32), (1040, torch.bfloat16)],
    ids=str,
)
def test_wide_rows(width, dtype, device):
    """Slices of a row over blocks: of the result, of lists, and of bytes that are compared."""
    for graph in (crowd(), skewed_graph()):
        given = operands(graph, "none", 1, width, dtype, device)
        check(graph, device, "none", "copy_lhs", "max", given)
        run_both(graph, device, given["lhs"].flatten(1), PNA, False)
        given = operands(graph, "element", 1, width, dtype, device)
        check(graph, device, "element", "mul", "max", given)


SHAPES = [((), ()), ((5,), ()), ((), (5,)), ((2, 1, 3), (2, 4, 1)), ((0,), (0,))]


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("op", ["copy_lhs", "copy_rhs", "add", "sub", "mul", "div"])
def test_shapes_of_features(shapes, op, device):
    """None, one and many dimensions; whole numbers, of which 8 bits hold most sums."""
    graph = random_graph(40, 300, seed=2)
    lhs, rhs = (
        steps(size, *shape, seed=seed, dtype=torch.bfloat16) + 1
        for seed, (size, shape) in enumerate(zip((40, 300), shapes, strict=True))
    )
    rhs = 2**rhs  # a quotient and the product with a reciprocal are the same
    given = {"lhs": lhs, "rhs": rhs}
    given = {side: given[side] for side in ("lhs", "rhs") if op != f"copy_{'lr'[side == 'lhs']}hs"}
    check_twins(
        lambda g, **kw: reduced(g, op, "max", list(kw.values())),
        lambda s, **kw: reference.gspmm(s, op, "max", *sides_of(op, list(kw.values()))),
        graph,
        device,
        **{name: value.to(device) for name, value in given.items()},
    )


def strided(values):
    """The same values in other strides, at a misaligned address, and with a gap behind each row."""
    num_rows, *shape = values.shape
    turned = values.transpose(0, -1).contiguous().transpose(0, -1)
    shifted = values.new_empty(values.numel() + 1)[1:].view(num_rows, *shape).copy_(values)
    spaced = values.new_empty(num_rows, 2, *shape)[:, 1].copy_(values)
    return {"turned": turned, "shifted": shifted, "spaced": spaced}


every_stride = pytest.mark.parametrize("how", ["turned", "shifted", "spaced"])


@every_stride
@every_kind
def test_strides_do_not_matter(how, kind, device):
    graph = random_graph(40, 300, seed=2)
    given = list(operands(graph, kind, 2, 4, torch.float32, device).values())
    op = KIND_OPS.get(kind, "mul")
    out = reduced(graph, op, "max", given)
    grad = draw(*out.shape, dtype=out.dtype, device=device, seed=5)
    results = []
    for sides, incoming in (
        (given, grad),
        ([strided(side)[how] for side in given], strided(grad)[how]),
    ):
        leaves = [side.detach().requires_grad_() for side in sides]
        out = reduced(graph, op, "max", leaves)
        results.append([out.detach(), *torch.autograd.grad(out, leaves, incoming)])
    for mine, wanted in zip(*reversed(results), strict=True):
        assert torch.equal(mine, wanted)


@every_kind
def test_expanded_operands_and_gradients(kind, device):
    graph = random_graph(40, 300, seed=2)
    given = list(operands(graph, kind, 2, 4, torch.float32, device).values())
    op = KIND_OPS.get(kind, "mul")
    expanded = [side[:, :1].expand_as(side) for side in given]
    results = []
    for sides in (expanded, [side.contiguous() for side in expanded]):
        leaves = [side.detach().requires_grad_() for side in sides]
        out = reduced(graph, op, "max", leaves)
        results.append([out.detach(), *torch.autograd.grad(out.sum(), leaves)])
    again = reduced(graph, op, "max", leaves)
    grads = torch.autograd.grad(again, leaves, torch.ones_like(again))
    results.append([again.detach(), *grads])
    for mine, *others in zip(*results, strict=True):
        for other in others:
            assert torch.equal(mine, other)


@every_stride
@pytest.mark.parametrize("on_edges", [False, True])
def test_strides_of_what_moves(how, on_edges, device):
    struct = on(device, random_graph(40, 300, seed=2))
    winners = won(struct, 8)
    num_rows = struct.num_edges if on_edges else struct.num_src
    values = steps(num_rows, 8, seed=3, device=device)
    grad = steps(struct.num_dst, 8, seed=4, device=device)
    with poisoned_outputs():
        picked = pick_forward(struct, winners, strided(values)[how], on_edges)
        given = put_forward(struct, winners, strided(grad)[how], on_edges, 8)
        broad = put_forward(struct, winners, grad[:, :1].expand(-1, 8), on_edges, 8)
    assert torch.equal(picked, reference.pick_won(struct, winners, values, on_edges))
    assert torch.equal(given, reference.put_won(struct, winners, grad, on_edges, 8))
    expected = reference.put_won(struct, winners, grad[:, :1].repeat(1, 8), on_edges, 8)
    assert torch.equal(broad, expected)


@every_dtype
@every_reducer
@pytest.mark.parametrize("kind", ["none", "head"])
def test_the_same_without_gradients(dtype, reduce_op, kind, device):
    """Where no winners are kept."""
    graph, op = skewed_graph(), KIND_OPS[kind]
    leaves = list(operands(graph, kind, 2, 8, dtype, device).values())
    leaves[0][3] = float("nan")
    expected = reduced(graph, op, reduce_op, [side.requires_grad_() for side in leaves]).detach()
    assert expected.any()
    assert torch.equal(reduced(graph, op, reduce_op, [side.detach() for side in leaves]), expected)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert torch.equal(reduced(graph, op, reduce_op, leaves), expected)


@pytest.mark.parametrize("op", ["copy_lhs", "copy_rhs", "add", "sub", "mul", "div"])
@pytest.mark.parametrize(
    ("shapes", "reduce_op"),
    [(((2, 3), (2, 1)), "max"), (((3,), (3,)), "min"), (((2,), (1,)), "max")],
    ids=str,
)
def test_gradients_of_gradients(shapes, reduce_op, op, device):
    graph = small_graph_of(7, 20)
    kind = {"dtype": torch.float64, "device": device}
    both = [
        draw(size, *shape, seed=seed, **kind).abs().add_(0.5).requires_grad_()
        for seed, (size, shape) in enumerate(zip((7, 20), shapes, strict=True))
    ]
    given = {"copy_lhs": both[:1], "copy_rhs": both[1:]}.get(op, both)

    def run(*sides):
        return reduced(graph, op, reduce_op, sides).square()

    assert torch.autograd.gradcheck(run, given)
    assert torch.autograd.gradgradcheck(run, given)


@pytest.mark.parametrize("kind", ["scalar", "head", "element"])
def test_a_gradient_is_the_same_if_it_is_differentiated(kind, device):
    graph = skewed_graph()
    leaves = [
        side.requires_grad_()
        for side in operands(graph, kind, 2, 4, torch.float32, device).values()
    ]
    plain, again = (
        torch.autograd.grad(
            reduced(graph, "mul", "max", leaves).sum(), leaves, create_graph=differentiated
        )
        for differentiated in (False, True)
    )
    for mine, wanted in zip(again, plain, strict=True):
        assert mine.requires_grad
        torch.testing.assert_close(mine.detach(), wanted)


@only_cuda
@pytest.mark.parametrize("message", ["add", "mul"])
@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True)], ids=str)
def test_an_operand_is_kept_for_the_gradient_of_the_other_only(message, needed, device):
    graph = small_graph_of()
    sides = [
        draw(size, 6, dtype=torch.float32, device=device, seed=size).requires_grad_(wanted)
        for size, wanted in zip((12, 40), needed, strict=True)
    ]
    kept = kept_by(lambda *both: ops.gspmm(graph, message, "max", *both), *sides)
    assert kept == ([needed[1], needed[0]] if message == "mul" else [False, False])


@every_graph
def test_a_graph_the_other_way_round(name, device):
    struct = on(device, zoo()[name](torch.int64))
    feat = draw(struct.num_dst, 4, dtype=torch.float32, device=device, seed=1)
    check_twins(
        lambda g, feat: ops.copy_u_max(struct.reverse(), feat),
        lambda s, feat: reference.gspmm(s.reverse(), "copy_lhs", "max", feat, None),
        zoo()[name](torch.int64),
        device,
        ulps={"grad_feat": 8},
        feat=feat,
    )


@pytest.mark.parametrize("op", ["copy_lhs", "add", "mul", "div"])
def test_autocast(op, device):
    """Both operands in 16 bits, and gradients in the dtype of the leaves."""
    graph = small_graph_of()
    leaves = [
        draw(size, 2, 4, dtype=torch.float32, device=device, seed=size).abs().add_(0.5)
        for size in (12, 40)
    ][: 1 if op == "copy_lhs" else 2]
    leaves = [leaf.requires_grad_() for leaf in leaves]
    halves = [leaf.detach().bfloat16().requires_grad_() for leaf in leaves]
    with torch.autocast(device.type, torch.bfloat16):
        found = reduced(graph, op, "max", leaves)
    grads = torch.autograd.grad(found.float().sum(), leaves)
    expected = reduced(graph, op, "max", halves)
    wanted = torch.autograd.grad(expected.float().sum(), halves)
    assert found.dtype == torch.bfloat16
    close = {"rtol": 0.02, "atol": 0.02}  # CUDA's autocast takes reciprocals in float32
    torch.testing.assert_close(found, expected, **close)
    for mine, other in zip(grads, wanted, strict=True):
        assert mine.dtype == torch.float32
        if op != "div":
            torch.testing.assert_close(mine, other.float(), **close)
