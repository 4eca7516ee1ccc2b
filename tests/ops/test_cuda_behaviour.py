"""What a kernel must respect besides its values: streams, devices, capture, memory, the host."""

from __future__ import annotations

import gc
import time

import pytest
import torch

from dgl_flash import ops
from dgl_flash.kernels.launch import Kernel
from dgl_flash.structure import graph as make_graph
from dgl_flash.structure import structure
from tests.ops.common import draw, skewed_graph
from tests.sync import no_device_sync

pytestmark = pytest.mark.gpu
FLOAT = {"dtype": torch.float32}


def operands(device="cuda", num_heads=2, head_dim=32):
    kind = {**FLOAT, "device": torch.device(device)}
    src = draw(300, num_heads, head_dim, seed=1, **kind).requires_grad_()
    dst = draw(300, num_heads, head_dim, seed=2, **kind).requires_grad_()
    attn = (draw(num_heads, head_dim, seed=3, **kind) / head_dim**0.5).requires_grad_()
    return src, dst, attn


def train_step(graph, src, dst, attn, weight):
    """Every op once, forward and backward."""
    out = ops.gatv2(graph, src, dst, attn)
    alpha = ops.edge_softmax(graph, ops.u_dot_v(graph, out, dst))
    total = ops.spmm(graph, out, alpha) + ops.spmm(graph, src, weight, reduce="mean")
    mean, least = ops.statistics(graph, src, ("mean", "min"))
    total = total + ops.copy_u_max(graph, src) + ops.u_mul_e_max(graph, src, weight.view(-1, 1, 1))
    total = total + mean + least
    grads = torch.autograd.grad(total.square().sum(), (src, dst, attn, weight))
    return total.detach(), *grads


@pytest.fixture
def step():
    graph = skewed_graph()
    weight = draw(2500, seed=4, device=torch.device("cuda"), **FLOAT).requires_grad_()
    given = (*operands(), weight)
    return graph, given


def test_a_side_stream_needs_no_synchronisation(step):
    graph, given = step
    expected = train_step(graph, *given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = [leaf.detach() * 1 for leaf in given]  # ready only when the sleep is over
        found = train_step(graph, *(leaf.requires_grad_() for leaf in late))
    stream.synchronize()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


def test_capture_and_replay_with_new_inputs(step):
    graph, given = step
    static = [leaf.detach().clone().requires_grad_() for leaf in given]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        train_step(graph, *static)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = train_step(graph, *static)
    with torch.no_grad():
        for leaf, new in zip(static, given, strict=True):
            leaf.copy_(new * 1.5)
    captured.replay()
    expected = train_step(graph, *(leaf.detach().clone().requires_grad_() for leaf in static))
    for a, b in zip(results, expected, strict=True):
        assert torch.equal(a, b)


def test_no_sync_in_a_warm_step(step):
    graph, given = step
    train_step(graph, *given)
    with no_device_sync():
        train_step(graph, *given)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_tensors_on_another_device_than_the_current_one(step):
    graph, given = step
    expected = train_step(graph, *given)
    moved = [leaf.detach().to("cuda:1").requires_grad_() for leaf in given]
    assert torch.cuda.current_device() == 0
    for a, b in zip(train_step(graph, *moved), expected, strict=True):
        assert a.device.index == 1
        assert torch.equal(a.cpu(), b.cpu())


def test_launches_of_a_step(monkeypatch):
    graph = make_graph((torch.arange(100), torch.arange(100).roll(1)))
    names = []
    original = Kernel.launch

    def spy(self, *args):
        names.append(self.key.entry)
        return original(self, *args)

    monkeypatch.setattr(Kernel, "launch", spy)
    src, dst, attn = (t[:100].detach().requires_grad_() for t in operands())
    out = ops.gatv2(graph, src, dst, attn)
    assert names == ["gatv2_forward"]
    out.sum().backward()
    assert names[1:] == ["gatv2_backward_dst", "gatv2_backward_src", "merge_shares"]


def peak_beside_inputs(run):
    gc.collect()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    result = run()
    torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    del result
    return peak


def test_gatv2_allocates_nothing_of_the_size_of_the_edges():
    num_nodes, num_edges, heads, width = 20_000, 2_000_000, 4, 32
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    graph = make_graph((ends[0], ends[1]), num_nodes=num_nodes)
    kind = {**FLOAT, "device": torch.device("cuda")}
    src, dst = (draw(num_nodes, heads, width, seed=s, **kind).requires_grad_() for s in (1, 2))
    attn = draw(heads, width, seed=3, **kind).requires_grad_()
    ops.gatv2(graph, src, dst, attn).sum().backward()  # structure and plans are built here
    rows = num_nodes * heads * width * 4
    forward = peak_beside_inputs(lambda: ops.gatv2(graph, src, dst, attn))
    assert forward < 1.1 * rows  # output, log-sum-exp

    def both():
        out = ops.gatv2(graph, src, dst, attn)
        return torch.autograd.grad(out, (src, dst, attn), torch.ones_like(out))

    # Output, the incoming gradient, the two gradients that go back, shares of grad_attn, states:
    # only the shares (one row a block of eight or more) and the states are not asked for.
    assert peak_beside_inputs(both) < 4.5 * rows
    assert rows * 4.5 < num_edges * heads * 4 * 2  # far from (E, H), let alone (E, H, D)


def test_twenty_million_edges_fit_in_three_gigabytes():
    num_nodes, num_edges, heads, width = 100_000, 20_000_000, 8, 64
    generator = torch.Generator("cuda").manual_seed(0)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=generator, device="cuda")
    graph = make_graph((ends[0], ends[1]), num_nodes=num_nodes)
    shape = (num_nodes, heads, width)
    src, dst = (torch.randn(shape, device="cuda", requires_grad=True) for _ in range(2))
    attn = torch.randn(heads, width, device="cuda", requires_grad=True)
    ops.gatv2(graph, src, dst, attn).sum().backward()  # structure and plans are built here

    def both():
        out = ops.gatv2(graph, src, dst, attn)
        return torch.autograd.grad(out, (src, dst, attn), torch.ones_like(out))

    assert peak_beside_inputs(both) < 3 * 2**30  # an (E, H, D) tensor would take 38 GB


@pytest.mark.parametrize("finish", ["backward", "drop"])
def test_memory_is_flat_over_steps(finish):
    graph = skewed_graph()
    src, dst, attn = operands()
    for i in range(500):
        out = ops.gatv2(graph, src, dst, attn)
        if finish == "backward":
            torch.autograd.grad(out.sum(), (src, dst, attn))
        del out
        if i == 5:
            torch.cuda.synchronize()
            settled = torch.cuda.memory_allocated()
    torch.cuda.synchronize()
    # The autograd thread drops what it has handed over a moment after the caller goes on.
    deadline = time.monotonic() + 10
    while torch.cuda.memory_allocated() > settled and time.monotonic() < deadline:
        time.sleep(0.01)
    assert torch.cuda.memory_allocated() <= settled


def test_memory_is_flat_over_fresh_graphs():
    settled = 0
    kind = {**FLOAT, "device": torch.device("cuda")}
    feat = draw(30, 2, 8, seed=1, **kind).requires_grad_()
    attn = draw(2, 8, seed=2, **kind).requires_grad_()
    for i in range(2000):
        generator = torch.Generator().manual_seed(i)
        graph = make_graph(torch.randint(0, 30, (2, 80), generator=generator), num_nodes=30)
        ops.gatv2(graph, feat, feat, attn).sum().backward()
        if i == 50:
            torch.cuda.synchronize()
            settled = torch.cuda.memory_allocated()
    gc.collect()
    assert torch.cuda.memory_allocated() <= settled + 2**20


def test_offsets_beyond_32_bits():
    num_nodes, width = 9_000_000, 256  # N * D > 2^31
    device = torch.device("cuda")
    ends = torch.arange(num_nodes - 1000, num_nodes)
    graph = make_graph((ends, ends.roll(1)), num_nodes=num_nodes)
    feat = torch.zeros(num_nodes, width, dtype=torch.bfloat16, device=device)
    feat[-1000:] = draw(1000, width, dtype=torch.bfloat16, device=device, seed=1)
    out = ops.spmm(graph, feat)
    assert torch.equal(out[ends.roll(1).to(device)], feat[-1000:])
    rows = feat.view(num_nodes, 1, width).requires_grad_()
    attn = draw(1, width, dtype=torch.bfloat16, device=device, seed=2)
    attended = ops.gatv2(graph, rows, rows, attn)
    assert torch.equal(attended[ends.roll(1).to(device), 0], feat[-1000:])
    (grad,) = torch.autograd.grad(attended, rows, torch.ones_like(attended))
    assert torch.equal(grad[ends.to(device)], torch.ones(1000, 1, width, device=device).bfloat16())


def test_more_edges_times_heads_than_32_bits_count():
    num_nodes, degree, heads, last = 500_000, 68, 64, 1000
    num_edges = num_nodes * degree
    assert num_edges * heads > 2**31
    device = torch.device("cuda")
    src = torch.arange(num_edges, device=device) * 7919 % num_nodes
    dst = torch.arange(num_nodes, device=device).repeat_interleave(degree)
    graph = make_graph((src, dst), num_nodes=num_nodes)
    tail = draw(last, degree, heads, dtype=torch.bfloat16, device=device, seed=1)
    score = torch.zeros(num_edges, heads, dtype=torch.bfloat16, device=device)
    score[-last * degree :] = tail.flatten(0, 1)

    alpha = ops.edge_softmax(graph, score)
    expected = tail.float().softmax(1)
    found = alpha[-last * degree :].view(last, degree, heads)
    torch.testing.assert_close(found.float(), expected, rtol=8e-3, atol=1e-4)
    del score

    feat = draw(num_nodes, heads, 1, dtype=torch.bfloat16, device=device, seed=2)
    neighbours = feat[src[-last * degree :], :, 0].view(last, degree, heads).float()
    total = ops.spmm(graph, feat, alpha)[-last:, :, 0]
    summed = (found.float() * neighbours).sum(1)
    torch.testing.assert_close(total.float(), summed, rtol=8e-3, atol=2e-3)
    del alpha, found

    dots = ops.u_dot_v(graph, feat, feat)[-last * degree :].view(last, degree, heads)
    wanted = neighbours * feat[-last:, None, :, 0].float()
    torch.testing.assert_close(dots.float(), wanted, rtol=8e-3, atol=1e-4)


def test_more_nodes_than_a_float_counts():
    num_nodes, shift = 2**24 + 1001, 2**24 - 99  # ids on both sides of 2^24
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(0, 1100, (2, 5000), generator=generator)
    small = make_graph((src, dst), num_nodes=1100)
    large = make_graph((src + shift, dst + shift), num_nodes=num_nodes)
    kind = {**FLOAT, "device": torch.device("cuda")}
    feat = torch.zeros(num_nodes, 2, 4, device="cuda")
    rows = feat[shift : shift + 1100] = draw(1100, 2, 4, seed=1, **kind)
    attn = draw(2, 4, seed=2, **kind)
    results = []
    for graph, given in ((small, rows.clone()), (large, feat)):
        given.requires_grad_()
        out = ops.gatv2(graph, given, given, attn) + ops.spmm(graph, given, reduce="mean")
        (grad,) = torch.autograd.grad(out.square().sum(), given)
        results.append((out.detach()[-1100:], grad[-1100:]))
    (out, grad), (large_out, large_grad) = results
    assert shift + 1100 == num_nodes
    torch.testing.assert_close(large_out, out)
    torch.testing.assert_close(large_grad, grad)


def test_both_index_widths_agree():
    graph = skewed_graph()
    src, dst, attn = operands()
    struct = structure(graph, "cuda")
    wide = structure(graph, "cuda").in_adj
    assert struct.in_adj.indptr.dtype == torch.int32
    assert torch.equal(ops.gatv2(graph.int(), src, dst, attn), ops.gatv2(graph, src, dst, attn))
    assert wide is struct.in_adj


def test_a_kernel_on_misaligned_memory_after_an_error_in_the_arguments():
    graph = skewed_graph()
    src, dst, attn = operands()
    with pytest.raises(ValueError, match="attn"):
        ops.gatv2(graph, src, dst, attn[:, :-1])
    expected = ops.gatv2(graph, src, dst, attn)
    shifted = torch.empty(src.numel() + 1, device="cuda")[1:].view_as(src)
    shifted.copy_(src.detach())
    assert torch.equal(ops.gatv2(graph, shifted, dst, attn), expected)
