"""Products with the matrix of a type, by segments and by index, in runs and in tiles."""

from __future__ import annotations

import dgl_flash  # noqa: F401  (first: it lets `import dgl` succeed on a current torch)

# isort: split
import dgl
import pytest
import torch

from dgl_flash import ops
from dgl_flash.ops import typed_mm
from dgl_flash.structure import tiles
from tests.numerics import check_op, outputs_and_grads
from tests.ops.common import draw, every_dtype
from tests.sync import no_device_sync

LENGTHS = {
    "mixed": [2, 0, 30, 1, 0, 9, 0],
    "one type": [17],
    "no padding": [8, 0, 16],
    "empty at both ends": [0, 0, 5, 0],
    "all empty": [0, 0, 0],
    "skewed": [1, 400, 0, 3, 40],
}
every_length = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
every_kind = pytest.mark.parametrize("blocks", [0, 1, 2], ids=["full", "one block", "blocks"])


@pytest.fixture(params=["chosen", "tiles", "lowest tiles"], autouse=True)
def layout(request, monkeypatch):
    """What the device has, and what a GPU has; tiles of one row are never padded."""
    if request.param != "chosen":
        monkeypatch.setattr(tiles, "use_tiles", lambda device: True)
    if request.param == "lowest tiles":
        monkeypatch.setattr(typed_mm, "choose_height", lambda *sizes: 1)
    return request.param


def matrices(num_types, blocks, num_in=6, num_out=4, **kind):
    shape = (num_in, num_out) if not blocks else (blocks, num_in // blocks, num_out // blocks)
    return draw(num_types, *shape, seed=2, **kind)


def obvious(a, b, types):
    """A matrix for each row."""
    if b.dim() == 4:
        b = torch.stack([torch.block_diag(*matrix) for matrix in b])
    return torch.einsum("ni,nio->no", a, b[types])


def types_of(lengths, shuffled=False):
    types = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    if shuffled:
        types = types[torch.randperm(types.numel(), generator=torch.Generator().manual_seed(3))]
    return types


@every_length
@every_kind
def test_segments(lengths, blocks, device):
    kind = {"dtype": torch.float32, "device": device}
    given = {
        "a": draw(sum(lengths), 6, seed=1, **kind),
        "b": matrices(len(lengths), blocks, **kind),
    }
    types = types_of(lengths).to(device)
    for seglen in (torch.tensor(lengths), torch.tensor(lengths, dtype=torch.int32, device=device)):
        check_op(
            lambda a, b, seglen=seglen: ops.segment_mm(a, b, seglen),
            lambda a, b: obvious(a, b, types),
            given,
            ulps={"out": 16, "grad_a": 16, "grad_b": 64},
        )


@every_length
@every_kind
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_any_order(lengths, blocks, idtype, device):
    kind = {"dtype": torch.float32, "device": device}
    types = types_of(lengths, shuffled=True).to(device)
    check_op(
        lambda a, b: ops.gather_mm(a, b, idx_b=types.to(idtype)),
        lambda a, b: obvious(a, b, types),
        {
            "a": draw(sum(lengths), 6, seed=1, **kind),
            "b": matrices(len(lengths), blocks, **kind),
        },
        ulps={"out": 16, "grad_a": 16, "grad_b": 64},
    )


@every_dtype
@every_kind
def test_every_dtype(dtype, blocks, device):
    lengths = LENGTHS["skewed"]
    kind = {"dtype": dtype, "device": device}
    types = types_of(lengths, shuffled=True).to(device)
    check_op(
        lambda a, b: ops.gather_mm(a, b, idx_b=types),
        lambda a, b: obvious(a, b, types),
        {"a": draw(sum(lengths), 6, seed=1, **kind), "b": matrices(len(lengths), blocks, **kind)},
        ulps={"out": 16, "grad_a": 16, "grad_b": 64},
    )


@pytest.mark.parametrize("widths", [(1, 1), (3, 64), (100, 7)], ids=str)
def test_widths(widths, device):
    lengths = LENGTHS["mixed"]
    kind = {"dtype": torch.float32, "device": device}
    types = types_of(lengths).to(device)
    check_op(
        lambda a, b: ops.segment_mm(a, b, torch.tensor(lengths)),
        lambda a, b: obvious(a, b, types),
        {
            "a": draw(sum(lengths), widths[0], seed=1, **kind),
            "b": draw(len(lengths), *widths, seed=2, **kind),
        },
        ulps={"out": 16, "grad_a": 16, "grad_b": 64},
    )


def test_two_thousand_types(device):
    kind = {"dtype": torch.float32, "device": device}
    generator = torch.Generator().manual_seed(0)
    types = (torch.rand(5000, generator=generator) ** 4 * 2000).long().to(device)
    check_op(
        lambda a, b: ops.gather_mm(a, b, idx_b=types),
        lambda a, b: obvious(a, b, types),
        {"a": draw(5000, 6, seed=1, **kind), "b": draw(2000, 6, 4, seed=2, **kind)},
        ulps={"out": 16, "grad_a": 16, "grad_b": 64},
    )


@every_length
@pytest.mark.parametrize("widths", [(4, 3), (16, 9)], ids=str)
def test_dgl_agrees(lengths, widths, device):
    """Below and above a width of 8 DGL takes different ways."""
    kind = {"dtype": torch.float32, "device": device}
    given = {
        "a": draw(sum(lengths), widths[0], seed=1, **kind),
        "b": draw(len(lengths), *widths, seed=2, **kind),
    }
    types, seglen = types_of(lengths, shuffled=True), torch.tensor(lengths)
    for name, index in (("segment_mm", seglen), ("gather_mm", types)):
        runs = []
        for library, place in ((ops, device), (dgl.ops, torch.device("cpu"))):
            op = getattr(library, name)
            keyword = {"seglen_a": seglen} if index is seglen else {"idx_b": types.to(place)}
            inputs = {key: value.to(place) for key, value in given.items()}
            runs.append(outputs_and_grads(lambda a, b, f=op, k=keyword: f(a, b, **k), inputs))
        for key, found in runs[0].items():
            torch.testing.assert_close(found.cpu(), runs[1][key], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("blocks", [0, 2])
def test_gradcheck_to_second_order(blocks, device):
    kind = {"dtype": torch.float64, "device": device}
    a = draw(6, 4, seed=1, **kind).requires_grad_()
    b = matrices(3, blocks, 4, 2, **kind).requires_grad_()
    types = torch.tensor([2, 0, 2, 0, 0, 2], device=device)
    seglen = torch.tensor([2, 0, 4], device=device)
    for run in (
        lambda a, b: ops.gather_mm(a, b, idx_b=types).sin(),
        lambda a, b: ops.segment_mm(a, b, seglen).sin(),
    ):
        assert torch.autograd.gradcheck(run, (a, b))
        assert torch.autograd.gradgradcheck(run, (a, b))


def test_one_gradient_alone(device):
    kind = {"dtype": torch.float32, "device": device}
    a, b = draw(42, 6, seed=1, **kind), draw(7, 6, 4, seed=2, **kind)
    seglen = torch.tensor(LENGTHS["mixed"])
    both = outputs_and_grads(lambda a, b: ops.segment_mm(a, b, seglen), {"a": a, "b": b})
    for name in ("a", "b"):
        leaf = {"a": a, "b": b}[name].clone().requires_grad_()
        alone = outputs_and_grads(
            lambda x, n=name: ops.segment_mm(*((x, b) if n == "a" else (a, x)), seglen), {"x": leaf}
        )
        torch.testing.assert_close(alone["grad_x"], both[f"grad_{name}"])


def test_non_contiguous_and_expanded(device):
    kind = {"dtype": torch.float32, "device": device}
    seglen = torch.tensor(LENGTHS["mixed"])
    wide, b = draw(42, 12, seed=1, **kind), draw(7, 6, 4, seed=2, **kind)
    for a in (wide[:, ::2], wide[:, 1:7], wide[:1, :6].expand(42, 6)):
        for matrix in (b, draw(7, 4, 6, seed=2, **kind).transpose(1, 2), b[:1].expand(7, 6, 4)):
            found = ops.segment_mm(a, matrix, seglen)
            expected = ops.segment_mm(a.contiguous(), matrix.contiguous(), seglen)
            torch.testing.assert_close(found, expected)


def test_an_expanded_gradient(device):
    a = draw(42, 6, dtype=torch.float32, device=device, seed=1).requires_grad_()
    b = draw(7, 6, 4, dtype=torch.float32, device=device, seed=2).requires_grad_()
    ops.segment_mm(a, b, torch.tensor(LENGTHS["mixed"])).sum().backward()
    assert a.grad.isfinite().all()
    assert b.grad.isfinite().all()


def test_two_runs_agree_bitwise(device):
    kind = {"dtype": torch.float32, "device": device}
    a, b = draw(444, 6, seed=1, **kind), draw(5, 6, 4, seed=2, **kind)
    types = types_of(LENGTHS["skewed"], shuffled=True).to(device)
    first, second = (
        outputs_and_grads(lambda a, b: ops.gather_mm(a, b, idx_b=types), {"a": a, "b": b})
        for _ in range(2)
    )
    for name, value in first.items():
        assert torch.equal(value, second[name])


A, B = torch.ones(6, 3), torch.ones(2, 3, 4)
SEGLEN, IDX = torch.tensor([2, 4]), torch.tensor([0, 1, 1, 0, 0, 1])
SPOILED = {
    "a of integers": ((A.long(), B, SEGLEN, IDX), TypeError, "`a`"),
    "b of another dtype": ((A, B.double(), SEGLEN, IDX), TypeError, "`b`"),
    "b elsewhere": ((A, B.to("meta"), SEGLEN, IDX), ValueError, "`b` on cpu"),
    "b too wide": ((A, torch.ones(2, 5, 4), SEGLEN, IDX), ValueError, r"`b` .* in = 3"),
    "blocks too wide": ((A, torch.ones(2, 2, 2, 4), SEGLEN, IDX), ValueError, r"`b` .* in = 3"),
    "a vector": ((A[:, 0], B, SEGLEN, IDX), ValueError, "`a`"),
    "floats as index": ((A, B, SEGLEN.float(), IDX.float()), TypeError, "int32 or int64"),
    "lists": ((A, B, [2, 4], [0] * 6), TypeError, "list"),
    "too few": ((A, B, SEGLEN[:1], IDX[:4]), ValueError, "shape"),
    "a matrix as index": ((A, B, SEGLEN[None], IDX[None]), ValueError, "shape"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_spoiled_arguments(name):
    (a, b, seglen, idx), error, text = SPOILED[name]
    with pytest.raises(error, match=text):
        ops.segment_mm(a, b, seglen)
    with pytest.raises(error, match=text):
        ops.gather_mm(a, b, idx_b=idx)


def test_dimensions_of_b_are_named_as_dgl_does():
    with pytest.raises(ValueError, match=r"^segment_mm expects B to be a 3D tensor\.$"):
        ops.segment_mm(A, B[0], SEGLEN)
    with pytest.raises(ValueError, match=r"^Expected dimension of B is 3\. Got 2$"):
        ops.gather_mm(A, B[0], idx_b=IDX)


def test_lengths_must_sum_up():
    for lengths in ([2, 3], [2, 5]):
        with pytest.raises(ValueError, match=f"`a`, 6, got a sum of {sum(lengths)}"):
            ops.segment_mm(A, B, torch.tensor(lengths))


def test_no_length_is_negative():
    with pytest.raises(ValueError, match="`seglen_a` to be at least 0, got a length of -1"):
        ops.segment_mm(A, B, torch.tensor([7, -1]))


@every_kind
@pytest.mark.parametrize("second", ["segments", "indices"])
def test_no_types_and_no_rows(blocks, second, device):
    kind = {"dtype": torch.float32, "device": device}
    a, b = draw(0, 6, seed=1, **kind).requires_grad_(), matrices(0, blocks, **kind).requires_grad_()
    none = torch.zeros(0, dtype=torch.int64, device=device)
    run = ops.segment_mm(a, b, none) if second == "segments" else ops.gather_mm(a, b, idx_b=none)
    assert run.shape == (0, 4)
    run.sum().backward()
    assert (a.grad.shape, b.grad.shape) == (a.shape, b.shape)


@pytest.mark.parametrize("wrong", [2, -1])
def test_index_out_of_range(wrong):
    idx = IDX.clone()
    idx[3] = wrong
    with pytest.raises(IndexError, match=r"\[0, 2\), got values from"):
        ops.gather_mm(A, B, idx_b=idx)


def test_autocast_casts_both(device):
    with torch.autocast(device.type, torch.bfloat16):
        out = ops.segment_mm(A.to(device), B.to(device), SEGLEN)
    assert out.dtype == torch.bfloat16


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, which differ between releases
def test_compiled(device):
    kind = {"dtype": torch.float32, "device": device}
    a, b = draw(42, 6, seed=1, **kind), draw(7, 6, 4, seed=2, **kind)
    types = types_of(LENGTHS["mixed"], shuffled=True).to(device)
    seglen = torch.tensor(LENGTHS["mixed"])

    def run(a, b):
        return ops.gather_mm(a + 1, b, idx_b=types) * ops.segment_mm(a, b, seglen)

    torch._dynamo.reset()
    expected = outputs_and_grads(run, {"a": a, "b": b})
    compiled = torch.compile(run, backend="aot_eager")
    for _ in range(2):
        found = outputs_and_grads(compiled, {"a": a, "b": b})
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)


def test_nothing_is_read_from_a_device():
    """`meta` has no values to read: forward, backward and second order follow from sizes."""
    a = torch.ones(1000, 8, device="meta", requires_grad=True)
    b = torch.ones(5, 8, 4, device="meta", requires_grad=True)
    seglen, types = (torch.zeros(n, dtype=torch.int64, device="meta") for n in (5, 1000))
    for placed in (typed_mm._by_lengths(seglen, a, b), typed_mm._by_types(types, a, b)):
        out = typed_mm._multiply(a, b, *placed)
        grads = torch.autograd.grad(out.square().sum(), (a, b), create_graph=True)
        assert [grad.shape for grad in grads] == [a.shape, b.shape]
        torch.autograd.grad(sum(grad.square().sum() for grad in grads), (a, b))


@pytest.mark.gpu
def test_no_sync_and_no_launch_per_type():
    device = torch.device("cuda")
    kind = {"dtype": torch.float32, "device": device}
    a = draw(5000, 64, seed=1, **kind).requires_grad_()
    b = draw(500, 64, 64, seed=2, **kind).requires_grad_()
    types = torch.randint(500, (5000,), generator=torch.Generator().manual_seed(0)).to(device)
    lengths = torch.bincount(types, minlength=500)

    def step():
        out = ops.gather_mm(a, b, idx_b=types) + ops.segment_mm(a, b, lengths)
        out = out + ops.segment_mm(a, b, host_lengths)
        return torch.autograd.grad(out.square().sum(), (a, b))

    host_lengths = lengths.cpu()
    step()
    with no_device_sync():
        step()
    with torch.profiler.profile(acc_events=True) as profiler:
        step()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA
    kernels = [event for event in profiler.events() if event.device_type == on_device]
    assert 0 < len(kernels) < 250


@pytest.mark.gpu
def test_lengths_that_the_host_does_not_see_reach_no_further_than_the_rows():
    kind = {"dtype": torch.float32, "device": torch.device("cuda")}
    a, b = draw(50, 6, seed=1, **kind), draw(3, 6, 4, seed=2, **kind)
    for wrong, right in (
        ([10, 10, 10], [10, 10, 30]),
        ([40, 40, 40], [40, 10, 0]),
        ([10, -9, 10], [10, 0, 40]),
    ):
        lengths = torch.tensor(wrong, device="cuda"), torch.tensor(right)
        found, expected = (
            outputs_and_grads(lambda a, b, n=n: ops.segment_mm(a, b, n), {"a": a, "b": b})
            for n in lengths
        )
        for name, value in expected.items():
            torch.testing.assert_close(found[name], value)
