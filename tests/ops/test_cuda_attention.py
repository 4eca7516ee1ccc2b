"""What the attention kernels must respect besides their values, with all that edges may bring."""

from __future__ import annotations

import pytest
import torch

from dgl_flash.kernels.launch import Kernel
from dgl_flash.structure import graph as make_graph
from tests.ops.attention import KINDS, every_kind
from tests.ops.common import draw, skewed_graph
from tests.ops.test_cuda_behaviour import peak_beside_inputs
from tests.sync import no_device_sync

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda")
every_option = pytest.mark.parametrize(
    "options", [{}, {"attn_drop": 0.5}, {"attn_drop": 0.5, "return_attention": True}], ids=str
)


def operands(kind, graph, num_heads=2, head_dim=32, numbers=True):
    given = KINDS[kind].inputs(graph, num_heads, head_dim, torch.float32, CUDA)
    if numbers:
        for name, seed in (("edge_bias", 8), ("edge_weight", 9)):
            size = graph.num_edges(), num_heads
            given[name] = draw(*size, dtype=torch.float32, device=CUDA, seed=seed)
    return {name: value.requires_grad_() for name, value in given.items()}


def step(kind, graph, given, options):
    found = KINDS[kind].op(graph, **given, **options)
    found = found if isinstance(found, tuple) else (found,)
    total = sum(part.square().sum() for part in found)
    return (*(part.detach() for part in found), *torch.autograd.grad(total, given.values()))


@every_option
@every_kind
def test_a_side_stream_needs_no_synchronisation(kind, options):
    graph = skewed_graph()
    given = operands(kind, graph)
    torch.manual_seed(1)
    expected = step(kind, graph, given, options)
    torch.manual_seed(1)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = {name: (value.detach() * 1).requires_grad_() for name, value in given.items()}
        found = step(kind, graph, late, options)
    stream.synchronize()
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)


@every_option
@every_kind
def test_no_sync_in_a_warm_step(kind, options):
    graph = skewed_graph()
    given = operands(kind, graph)
    step(kind, graph, given, options)
    with no_device_sync():
        step(kind, graph, given, options)


@every_kind
def test_every_replay_of_a_capture_drops_others(kind):
    graph = skewed_graph()
    given = operands(kind, graph)
    options = {"attn_drop": 0.5, "return_attention": True}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step(kind, graph, given, options)
    torch.cuda.current_stream().wait_stream(stream)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        out, attention, *grads = step(kind, graph, given, options)
    masks = []
    for _ in range(2):
        captured.replay()
        masks.append(attention != 0)
        weighted = KINDS[kind].op(
            graph,
            **{name: value for name, value in given.items() if name != "edge_weight"},
            edge_weight=given["edge_weight"] * masks[-1].squeeze(-1) * 2,
        )
        torch.testing.assert_close(out, weighted)  # the output belongs to the same mask
        assert all(grad.isfinite().all() for grad in grads)
    assert not torch.equal(*masks)
    assert all(abs(mask.double().mean() - 0.5) < 0.05 for mask in masks)


LAUNCHES = {
    "dot_attention": ["dot_attention_backward_dst", "dot_attention_backward_src"],
    "gat": ["gat_backward_dst", "gat_backward_src"],
    "gatv2": ["gatv2_backward_dst", "gatv2_backward_src", "merge_shares"],
}


@every_option
@every_kind
def test_launches(kind, options, monkeypatch):
    graph = make_graph((torch.arange(100), torch.arange(100).roll(1)))
    given = operands(kind, graph)
    names = []
    original = Kernel.launch

    def spy(self, *args):
        names.append(self.key.entry)
        return original(self, *args)

    monkeypatch.setattr(Kernel, "launch", spy)
    found = KINDS[kind].op(graph, **given, **options)
    forward = [f"{kind}_forward"]
    if options.get("return_attention"):
        forward.append(f"{kind}_attention")
        found = found[0] + found[1].sum()
    assert names == forward
    found.sum().backward()
    assert names[len(forward) :] == LAUNCHES[kind]


def big_graph(num_nodes, num_edges):
    generator = torch.Generator("cuda").manual_seed(0)
    ends = torch.randint(0, num_nodes, (2, num_edges), generator=generator, device="cuda")
    return make_graph((ends[0], ends[1]), num_nodes=num_nodes)


@pytest.mark.parametrize("drop", [0.0, 0.5])
@every_kind
def test_nothing_of_the_size_of_the_edges_is_allocated(kind, drop):
    num_nodes, num_edges, heads, width = 20_000, 2_000_000, 4, 32
    graph = big_graph(num_nodes, num_edges)
    given = operands(kind, graph, heads, width, numbers=False)

    def forward():
        return KINDS[kind].op(graph, **given, attn_drop=drop)

    def both():
        out = forward()
        return torch.autograd.grad(out, given.values(), torch.ones_like(out))

    both()  # structure and plans are built here
    rows = num_nodes * heads * width * 4
    assert peak_beside_inputs(forward) < 1.1 * rows  # output, log-sum-exp
    # Output, the incoming gradient, and the gradients that go back; besides these, shares of that
    # of the attention vector, and states.
    grads = sum(value.numel() for value in given.values()) * 4
    assert peak_beside_inputs(both) < 2.5 * rows + grads
    assert 2.5 * rows + grads < num_edges * heads * 4 * 2  # far from (E, H), let alone (E, H, D)


@pytest.mark.parametrize("kind", ["gat", "dot_attention"])
def test_twenty_million_edges_fit_in_three_gigabytes(kind):
    graph = big_graph(100_000, 20_000_000)
    given = operands(kind, graph, 8, 64, numbers=False)

    def both():
        out = KINDS[kind].op(graph, **given)
        return torch.autograd.grad(out, given.values(), torch.ones_like(out))

    both()  # structure and plans are built here
    assert peak_beside_inputs(both) < 3 * 2**30  # an (E, H, D) tensor would take 38 GB


@every_option
@every_kind
def test_memory_is_flat_over_steps(kind, options):
    graph = skewed_graph()
    given = operands(kind, graph)
    settled = 0
    for i in range(100):
        step(kind, graph, given, options)
        torch.cuda.synchronize()
        if i == 5:
            settled = torch.cuda.memory_allocated()
    assert torch.cuda.memory_allocated() <= settled + 2**20


@every_kind
def test_offsets_beyond_32_bits(kind):
    num_nodes, width, last = 9_000_000, 256, 1000  # N * D > 2^31
    ends = torch.arange(num_nodes - last, num_nodes)
    graph = make_graph((ends, ends.roll(1)), num_nodes=num_nodes)
    shapes = KINDS[kind].shapes(num_nodes, num_nodes, 1, width)
    rows = torch.zeros(num_nodes, 1, width, dtype=torch.bfloat16, device=CUDA)
    rows[-last:] = draw(last, 1, width, dtype=torch.bfloat16, device=CUDA, seed=1)
    given = {
        name: rows if shape == (num_nodes, 1, width) else rows.new_zeros(shape)
        for name, shape in shapes.items()
    }
    rows.requires_grad_()
    out = KINDS[kind].op(graph, **given)
    assert torch.equal(out[ends.roll(1).to(CUDA), 0], rows[-last:, 0])
    (grad,) = torch.autograd.grad(out, rows, torch.ones_like(out))
    assert torch.equal(grad[ends.to(CUDA)], torch.ones(last, 1, width, device=CUDA).bfloat16())
