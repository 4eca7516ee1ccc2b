"""What autograd, autocast and inference mode may do with the products and their results."""

from __future__ import annotations

import pytest
import torch

from dgl_flash import ops
from dgl_flash.ops.gradients import EAGER, Scaling
from dgl_flash.ops.rows import packed
from dgl_flash.structure.self_loops import with_self_loops
from tests.numerics import outputs_and_grads
from tests.ops.common import draw, every_dtype, on, skewed_graph, small_graph_of

N, E = 12, 40  # of small_graph_of
pytestmark = pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")


def relational(g, x, y):
    types = torch.arange(E, device=x.device) % 3
    weight = torch.ones(3, x.shape[1], 4, dtype=x.dtype, device=x.device)
    return ops.relational_sum(g, x, weight, types)


RESULTS = {
    "sum": lambda g, x, y: ops.copy_u_sum(g, x),
    "mean": lambda g, x, y: ops.copy_u_mean(g, x),
    "weighted": lambda g, x, y: ops.spmm(g, x, y[:, 0]),
    "elementwise": lambda g, x, y: ops.u_mul_e_sum(g, x, y),
    "of edges": lambda g, x, y: ops.copy_e_sum(g, y),
    "largest": lambda g, x, y: ops.copy_u_max(g, x),
    "smallest": lambda g, x, y: ops.u_mul_e_min(g, x, y),
    "statistics": lambda g, x, y: ops.statistics(g, x, ("mean", "max"))[1],
    "copy": lambda g, x, y: ops.copy_u(g, x),
    "map": lambda g, x, y: ops.u_mul_v(g, x, x),
    "dot": lambda g, x, y: ops.u_dot_v(g, x, x),
    "relational": relational,
    "segments": lambda g, x, y: ops.segment_reduce(torch.tensor([N - 2, 0, 2]), x),
    "typed": lambda g, x, y: ops.segment_mm(x, x[:, :, None], torch.tensor([N] + [0] * (N - 1))),
}
every_result = pytest.mark.parametrize("name", RESULTS)


def leaves(device, shape=(6,), dtype=torch.float32):
    kind = {"dtype": dtype, "device": device}
    return draw(N, *shape, seed=1, **kind).requires_grad_(), draw(
        E, *shape, seed=2, **kind
    ).requires_grad_()


@every_dtype
@every_result
def test_results_may_be_written_over(name, dtype, device):
    x, y = leaves(device, dtype=dtype)
    out = RESULTS[name](small_graph_of(), x, y)
    expected = 2 * out.detach() + 1
    out.mul_(2).add_(1)
    assert torch.equal(out, expected)
    out.sum().backward()


@every_result
def test_results_without_a_gradient_may_be_written_over_with_one(name, device):
    x, y = leaves(device)
    with torch.no_grad():
        out = RESULTS[name](small_graph_of(), x, y)
    out += torch.ones_like(out).requires_grad_()
    assert out.requires_grad


@pytest.mark.parametrize("shape", [(), (2, 3)], ids=str)
def test_results_of_any_shape_and_of_long_rows_may_be_written_over(shape, device):
    x = draw(300, *shape, dtype=torch.float32, device=device, seed=1).requires_grad_()
    out = ops.copy_u_sum(skewed_graph(), x)
    out += 1
    out.sum().backward()
    assert x.grad.isfinite().all()


def kept_by(run, *operands):
    """Whether a function saves the memory of each of its operands for its backward pass."""
    pointers = set()

    def pack(tensor):
        pointers.add(tensor.untyped_storage().data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(*operands)
    return [operand.untyped_storage().data_ptr() in pointers for operand in operands]


@pytest.mark.parametrize("product", ["sum", "dot", "map"])
@pytest.mark.parametrize("needed", [(True, False), (False, True), (True, True), (False, False)])
def test_an_operand_is_kept_for_the_gradient_of_the_other_only(product, needed, device):
    struct = on(device, small_graph_of())
    kind = {"dtype": torch.float32, "device": device}
    sizes = {"sum": (N, E), "dot": (N, N), "map": (N, N)}[product]
    first, second = (
        draw(size, 6, seed=size, **kind).requires_grad_(grads)
        for size, grads in zip(sizes, needed, strict=True)
    )
    runs = {
        "sum": lambda a, b: EAGER.sum(struct, a, b, Scaling()),
        "dot": lambda a, b: EAGER.dot(struct, a, b, 2, Scaling()),
        "map": lambda a, b: EAGER.map(struct, "mul", a, b, Scaling()),
    }
    assert kept_by(runs[product], first, second) == [needed[1], needed[0]]


def test_what_a_sum_without_weights_needs_is_no_feature(device):
    x, _ = leaves(device)
    assert kept_by(lambda x: ops.copy_u_mean(small_graph_of(), x), x) == [False]


@pytest.mark.parametrize("side", ["src_scale", "dst_scale"])
def test_a_factor_that_was_written_to_is_noticed(side, device):
    x, _ = leaves(device)
    factor = torch.ones(N, device=device)
    out = ops.spmm(small_graph_of(), x, **{side: factor})
    factor.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_factors_made_in_inference_mode_serve_in_training(device):
    graph = small_graph_of()
    x, _ = leaves(device)
    with torch.inference_mode():
        factor = on(device, graph).degree_scale("src", -0.5, torch.float32)
        expected = ops.spmm(graph, x.detach(), src_scale=factor)
    out = ops.spmm(graph, x, src_scale=factor)
    assert torch.equal(out, expected)
    out.sum().backward()
    assert x.grad.isfinite().all()


def test_self_loops_added_in_inference_mode_serve_in_training(device):
    struct = on(device, small_graph_of())
    with torch.inference_mode():
        looped = with_self_loops(struct)
    assert not looped.in_adj.indptr.is_inference()
    x, _ = leaves(device)
    ops.copy_u_max(looped, x).sum().backward()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_quotients_under_autocast(dtype, device):
    """On CUDA autocast makes float32 of a reciprocal; the rows beside it have 16 bits."""
    if device.type == "cpu" and dtype == torch.float16:
        return  # autocast has bfloat16 only in older releases
    graph = small_graph_of()
    x, y = leaves(device)
    y = (y.detach().abs() + 1).requires_grad_()
    for run, other in ((ops.u_div_e_sum, y), (ops.u_div_v, y[:N]), (ops.e_div_u, y[:N])):
        given = {"lhs": y if run is ops.e_div_u else x, "rhs": other}
        expected = outputs_and_grads(lambda lhs, rhs, f=run: f(graph, lhs, rhs), given)
        with torch.autocast(device.type, dtype):
            found = outputs_and_grads(lambda lhs, rhs, f=run: f(graph, lhs, rhs), given)
        for name, value in expected.items():
            torch.testing.assert_close(found[name].float(), value, rtol=0.05, atol=0.1)


def test_a_second_operand_is_read_as_what_it_is():
    values = torch.arange(6.0).view(2, 3)
    assert packed(values).data_ptr() == values.data_ptr()
    assert packed(values, torch.float32).data_ptr() == values.data_ptr()
    half = packed(values.t(), torch.float16)
    assert half.dtype == torch.float16
    assert half.is_contiguous()
    assert torch.equal(half.float(), values.t())


@pytest.mark.parametrize("norm", ["none", "edge", "output"])
@pytest.mark.parametrize("second_order", [False, True])
def test_a_backward_pass_under_autocast_keeps_the_dtype_of_the_forward(norm, second_order, device):
    kind = {"dtype": torch.float32, "device": device}
    operands = [draw(N, 6, seed=1, **kind), draw(3, 6, 4, seed=2, **kind)]
    if norm != "none":
        operands.append(draw(E, *([4] if norm == "output" else []), seed=3, **kind))
    for operand in operands:
        operand.requires_grad_()
    feat, weight, *factors = operands
    types = torch.arange(E, device=device) % 3
    out = ops.relational_sum(small_graph_of(), feat, weight, types, *factors)
    loss = out.square().sum()
    expected = torch.autograd.grad(loss, operands, retain_graph=True, create_graph=second_order)
    with torch.autocast(device.type, torch.bfloat16):
        found = torch.autograd.grad(loss, operands, create_graph=second_order)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs)
