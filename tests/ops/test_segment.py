"""Reductions and softmax over consecutive rows: values, gradients, errors; DGL's are the model."""

from __future__ import annotations

import gc

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl
import numpy as np
import pytest
import torch

from dgl_flash import ops
from dgl_flash.kernels.memory import poisoned_outputs
from dgl_flash.ops import segment
from dgl_flash.structure.segments import segment_offsets, segment_structure
from tests.numerics import check_op, outputs_and_grads
from tests.ops.common import draw, every_dtype
from tests.sync import no_device_sync

LENGTHS = {
    "mixed": [2, 0, 3, 1, 0, 40, 0],
    "one": [17],
    "empty at both ends": [0, 0, 5, 0],
    "all empty": [0, 0, 0],
    "none": [],
    "long": [1, 1500, 0, 300],
    "ones": [1] * 30,
}
every_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
every_reducer = pytest.mark.parametrize("reducer", ["sum", "mean", "max", "min"])


def obvious(lengths, value, reducer):
    """One segment after the other."""
    rows = []
    for part in value.split(lengths):
        if not part.shape[0]:
            rows.append(value.new_zeros(value.shape[1:]))
        elif reducer in ("sum", "mean"):
            rows.append(getattr(part, reducer)(0))
        else:
            rows.append(getattr(part, f"a{reducer}")(0))
    if rows:
        return torch.stack(rows) + 0 * value.sum()
    return value.new_zeros(0, *value.shape[1:]) * value.sum()


def obvious_softmax(lengths, value):
    return torch.cat([part.softmax(0) for part in value.split(lengths)] or [value])


@every_length
@every_reducer
@pytest.mark.parametrize("shape", [(5,), (), (2, 3), (64,)], ids=str)
def test_reduce(lengths, reducer, shape, device):
    value = draw(sum(lengths), *shape, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(lengths, dtype=torch.int64)
    check_op(
        lambda value: ops.segment_reduce(seglen, value, reducer),
        lambda value: obvious(lengths, value, reducer),
        {"value": value},
        ulps={"out": 16},  # torch sums in pairs
    )


@every_length
@pytest.mark.parametrize("shape", [(5,), (), (2, 3)], ids=str)
def test_softmax(lengths, shape, device):
    value = draw(sum(lengths), *shape, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(lengths, dtype=torch.int64)
    check_op(
        lambda value: ops.segment_softmax(seglen, value),
        lambda value: obvious_softmax(lengths, value),
        {"value": value},
        ulps={"out": 16, "grad_value": 64},
    )


@every_dtype
@every_reducer
def test_every_dtype(dtype, reducer, device):
    lengths = LENGTHS["mixed"]
    value = draw(sum(lengths), 7, dtype=dtype, device=device, seed=1)
    check_op(
        lambda value: ops.segment_reduce(torch.tensor(lengths), value, reducer),
        lambda value: obvious(lengths, value, reducer),
        {"value": value},
    )


@every_length
@every_reducer
def test_dgl_agrees(lengths, reducer, device):
    if reducer == "mean" and not sum(lengths):
        return  # DGL divides by zero
    seglen = torch.tensor(lengths, dtype=torch.int64)
    value = draw(sum(lengths), 5, dtype=torch.float32, device=device, seed=1)
    runs = [
        outputs_and_grads(lambda value, f=f: f(seglen, value, reducer), {"value": given})
        for f, given in (
            (ops.segment_reduce, value),
            (dgl.ops.segment_reduce, value.cpu()),
        )
    ]
    for name, found in runs[0].items():
        torch.testing.assert_close(found.cpu(), runs[1][name], rtol=1e-5, atol=1e-5)


def test_dgl_softmax_agrees(device):
    seglen = torch.tensor(LENGTHS["mixed"])
    value = draw(46, 5, dtype=torch.float32, device=device, seed=1)
    found = ops.segment_softmax(seglen, value).cpu()
    torch.testing.assert_close(found, dgl.ops.segment_softmax(seglen, value.cpu()))


@pytest.mark.parametrize("reducer", ["max", "min"])
def test_the_first_of_equal_extrema_gets_the_gradient(reducer, device):
    value = torch.tensor([1.0, 1.0, 2.0, 2.0], device=device, requires_grad=True)
    ops.segment_reduce(torch.tensor([2, 0, 2]), value, reducer).sum().backward()
    assert value.grad.tolist() == [1, 0, 1, 0]


def test_infinite_extrema_are_zero(device):
    inf = torch.inf
    value = torch.tensor([1.0, inf, -inf, -inf], device=device, requires_grad=True)
    out = ops.segment_reduce(torch.tensor([2, 2]), value, "max")
    assert out.tolist() == [0, 0]
    out.sum().backward()
    assert value.grad.tolist() == [0, 0, 0, 0]


def test_mean_of_nothing_is_zero(device):
    value = torch.zeros(0, 3, device=device)
    out = ops.segment_reduce(torch.tensor([0, 0]), value, "mean")
    assert torch.equal(out, torch.zeros(2, 3, device=device))


@every_reducer
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_lengths_of_either_type_on_either_device(reducer, dtype, device):
    lengths = LENGTHS["long"]
    value = draw(sum(lengths), 5, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(lengths, dtype=dtype)
    found = ops.segment_reduce(seglen.to(device), value, reducer)
    assert torch.equal(found, ops.segment_reduce(torch.tensor(lengths), value, reducer))


@every_reducer
def test_gradcheck_to_second_order(reducer, device):
    value = draw(6, 2, dtype=torch.float64, device=device, seed=1).requires_grad_()
    seglen = torch.tensor([2, 0, 3, 1])

    def reduce(value):
        return ops.segment_reduce(seglen, value, reducer).sin()

    assert torch.autograd.gradcheck(reduce, (value,))
    assert torch.autograd.gradgradcheck(reduce, (value,))


def test_softmax_gradcheck_to_second_order(device):
    value = draw(6, 2, dtype=torch.float64, device=device, seed=1).requires_grad_()
    seglen = torch.tensor([2, 0, 3, 1])
    assert torch.autograd.gradcheck(lambda x: ops.segment_softmax(seglen, x), (value,))
    assert torch.autograd.gradgradcheck(lambda x: ops.segment_softmax(seglen, x), (value,))


def test_non_contiguous_and_expanded(device):
    wide = draw(46, 64, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(LENGTHS["mixed"])
    for value in (wide[:, ::2], wide[:, 1:33], wide[:1].expand(46, 64)):
        expected = ops.segment_reduce(seglen, value.contiguous().clone())
        assert torch.equal(ops.segment_reduce(seglen, value), expected)


def test_two_runs_agree_bitwise(device):
    value = draw(1801, 40, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(LENGTHS["long"])
    assert torch.equal(ops.segment_reduce(seglen, value), ops.segment_reduce(seglen, value))


SPOILED = {
    "short": ((torch.tensor([2, 2]), torch.ones(6, 2)), ValueError, "sum up to .* 6, got .* 4"),
    "long": ((torch.tensor([5, 2]), torch.ones(6, 2)), ValueError, "sum up to .* 6, got .* 7"),
    "negative": ((torch.tensor([-2, 8]), torch.ones(6, 2)), ValueError, "at least 0, .* of -2"),
    "a list": (([2, 4], torch.ones(6, 2)), TypeError, "seglen.*list"),
    "floats": ((torch.tensor([2.0, 4.0]), torch.ones(6, 2)), TypeError, "seglen.*float32"),
    "matrix": ((torch.tensor([[2, 4]]), torch.ones(6, 2)), ValueError, "seglen"),
    "integers": ((torch.tensor([2, 4]), torch.ones(6).long()), TypeError, "value"),
    "a number": ((torch.tensor([2, 4]), torch.tensor(6.0)), ValueError, "value"),
}


@pytest.mark.parametrize("name", SPOILED)
@pytest.mark.parametrize("op", [ops.segment_reduce, ops.segment_softmax])
def test_spoiled_arguments(name, op):
    given, error, text = SPOILED[name]
    with pytest.raises(error, match=text):
        op(*given)


def test_unknown_reducer_is_named_as_dgl_does():
    for library in (ops, dgl.ops):
        with pytest.raises(dgl.DGLError, match=r"^reducer prod not recognized\.$"):
            library.segment_reduce(torch.tensor([2]), torch.ones(2), "prod")


def test_autocast(device):
    value = draw(46, 5, dtype=torch.float32, device=device, seed=1)
    with torch.autocast(device.type, torch.bfloat16):
        out = ops.segment_reduce(torch.tensor(LENGTHS["mixed"]), value)
    assert out.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which differ between releases
@every_reducer
def test_compiled(reducer, device):
    value = draw(46, 5, dtype=torch.float32, device=device, seed=1)
    seglen = torch.tensor(LENGTHS["mixed"])

    def run(value):
        normal = ops.segment_softmax(seglen, value + 1)
        return ops.segment_reduce(seglen, value * normal, reducer)

    torch._dynamo.reset()
    expected = outputs_and_grads(run, {"value": value})
    compiled = torch.compile(run, backend="aot_eager")
    for _ in range(2):
        found = outputs_and_grads(compiled, {"value": value})
        for name, result in expected.items():
            torch.testing.assert_close(found[name], result)


def test_building_reads_nothing_from_a_device():
    meta = torch.device("meta")
    for lengths in (torch.tensor([3, 4]), torch.tensor([3, 4], device=meta)):
        struct = segment_structure(lengths, 7, meta)
        assert (struct.num_src, struct.num_dst, struct.num_edges) == (7, 2, 7)


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([2, 3, 1], [0, 2, 5, 6]),
        ([2, 3, 0], [0, 2, 5, 6]),  # rows beyond the sum
        ([2, 9, 1], [0, 2, 6, 6]),
        ([9, 0, 9], [0, 6, 6, 6]),
        ([2, -1, 1], [0, 2, 2, 6]),
        ([0], [0, 6]),
    ],
    ids=str,
)
def test_wrong_lengths_that_nobody_sees_share_out_all_rows(lengths, expected):
    assert segment_offsets(torch.tensor(lengths), 6).tolist() == expected
    struct = segment_structure(torch.tensor(lengths), 6, torch.device("cpu"))
    assert struct.in_degrees().sum() == struct.num_edges == struct.in_adj.rows().numel()


def test_no_segments_for_rows_on_a_device():
    meta = torch.device("meta")
    none, value = torch.ones(0, dtype=torch.int64, device=meta), torch.ones(6, 2, device=meta)
    for op in (ops.segment_reduce, ops.segment_softmax):
        with pytest.raises(ValueError, match="`seglen` to sum up to the rows of `value`, 6"):
            op(none, value)


@pytest.mark.gpu
@every_reducer
@pytest.mark.parametrize("lengths", [[400, 700, 30], [400, 700, 9000], [400, -5, 30]], ids=str)
def test_gradients_of_wrong_lengths_on_a_gpu_are_those_of_the_result(lengths, reducer):
    value = draw(1400, 7, dtype=torch.float32, device=torch.device("cuda"), seed=1)
    right = segment_offsets(torch.tensor(lengths), 1400).diff()
    for op in (lambda n, x: ops.segment_reduce(n, x, reducer), ops.segment_softmax):
        with poisoned_outputs():
            found = outputs_and_grads(
                lambda value, f=op: f(torch.tensor(lengths, device="cuda"), value), {"value": value}
            )
        expected = outputs_and_grads(lambda value, f=op: f(right, value), {"value": value})
        for name, result in expected.items():
            torch.testing.assert_close(found[name], result)


@pytest.mark.gpu
def test_no_sync_with_lengths_on_the_cpu():
    seglen = torch.tensor(LENGTHS["long"])
    value = draw(1801, 40, dtype=torch.float32, device=torch.device("cuda"), seed=1)
    value.requires_grad_()
    ops.segment_reduce(seglen, value).sum().backward()  # compiles
    with no_device_sync():
        ops.segment_reduce(seglen, value).sum().backward()


@pytest.mark.gpu
def test_lengths_on_a_gpu_are_read_once():
    seglen = torch.tensor(LENGTHS["long"], device="cuda")
    value = draw(1801, 40, dtype=torch.float32, device=torch.device("cuda"), seed=1)
    first = ops.segment_reduce(seglen, value, "max")
    with no_device_sync():
        assert ops.segment_reduce(seglen, value, "max").shape == first.shape


@pytest.mark.gpu
def test_lengths_on_a_gpu_are_read_again_when_they_have_changed():
    lengths = torch.tensor([2, 1, 3], device="cuda")
    value = torch.arange(6.0, device="cuda")
    assert ops.segment_reduce(lengths, value, "sum").tolist() == [1, 2, 12]
    lengths.copy_(torch.tensor([1, 3, 2]))
    assert ops.segment_reduce(lengths, value, "sum").tolist() == [0, 6, 9]
    with torch.inference_mode():
        lengths = torch.tensor([2, 1, 3], device="cuda")
        assert ops.segment_reduce(lengths, value, "sum").tolist() == [1, 2, 12]
        lengths.copy_(torch.tensor([1, 3, 2]))
        assert ops.segment_reduce(lengths, value, "sum").tolist() == [0, 6, 9]


@pytest.mark.gpu
def test_a_captured_graph_makes_its_segments_of_the_lengths_of_its_replay():
    lengths = torch.tensor([50, 70], device="cuda")  # such that nobody need know the longest
    value = torch.arange(120.0, device="cuda")
    ops.segment_reduce(lengths, value, "sum")  # compiles, and keeps the structure
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = ops.segment_reduce(lengths, value, "sum")
    lengths.copy_(torch.tensor([70, 50]))
    graph.replay()
    assert out.tolist() == [value[:70].sum().item(), value[70:].sum().item()]


def test_lengths_are_read_again_when_they_have_changed(device):
    """Also through memory that torch does not watch."""
    memory = np.array([2, 1, 3])
    lengths = torch.from_numpy(memory)
    value = torch.arange(6.0, device=device)
    first = ops.segment_reduce(lengths, value, "sum")
    assert torch.equal(ops.segment_reduce(lengths, value, "sum"), first)
    memory[:] = [1, 3, 2]
    assert ops.segment_reduce(lengths, value, "sum").tolist() == [0, 6, 9]
    memory[0] = 2
    with pytest.raises(ValueError, match="sum up"):
        ops.segment_reduce(lengths, value, "sum")


def test_what_is_kept_goes_with_the_lengths(device):
    lengths = torch.tensor([2, 1, 3])
    with torch.inference_mode():
        ops.segment_reduce(lengths, torch.ones(6, device=device), "mean")
    value = torch.ones(6, device=device, requires_grad=True)
    ops.segment_reduce(lengths, value, "max").sum().backward()
    assert value.grad.tolist() == [1, 0, 1, 1, 0, 0]
    assert lengths in segment._kept
    gc.collect()
    before = len(segment._kept)
    del lengths
    gc.collect()
    assert len(segment._kept) == before - 1
