"""Sums by cuSPARSE on a GPU: values, streams, memory. The choice is in ``test_choose_spmm.py``.

Long rows are summed in pieces and in no fixed order, in 16 bits even rounded on the way: results
are judged by the sizes of what is summed, and never by their bits.
"""

from __future__ import annotations

import gc

import pytest
import torch

from dgl_flash import reference
from dgl_flash.kernels.memory import empty, poisoned_outputs
from dgl_flash.ops.choose_spmm import Sum
from dgl_flash.ops.spmm_cusparse import can_run, cusparse_sum
from dgl_flash.structure import GraphStructure, adjacency, structure
from tests.graphs import zoo
from tests.ops.common import draw, every_dtype, every_graph, skewed_graph
from tests.sync import no_device_sync

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda")
FLOAT = {"dtype": torch.float32, "device": DEVICE}
# Share of the sum of the sizes: a row of the same number over and over rounds the same way.
TOLERANCE = {torch.float64: 1e-13, torch.float32: 3e-5, torch.float16: 0.016, torch.bfloat16: 0.125}


def struct_of(graph) -> GraphStructure:
    return structure(graph, DEVICE)


def summed(struct, feat, weight=None):
    out = empty((struct.num_dst, *feat.shape[1:]), feat.dtype, feat.device)
    return cusparse_sum(struct.in_adj, feat, weight, out)


def assert_sum(found, struct, feat, weight=None):
    """Fail where an element is off by more than the roundings of so many terms explain."""
    operands = [None if operand is None else operand.double() for operand in (feat, weight)]
    exact = reference.spmm(struct, *operands)
    sizes = reference.spmm(struct, *(None if part is None else part.abs() for part in operands))
    assert found.dtype == feat.dtype
    facts = torch.finfo(feat.dtype)
    smallest = facts.tiny * facts.eps  # steps of the numbers that float16 cannot hold in full
    assert ((found.double() - exact).abs() <= TOLERANCE[feat.dtype] * sizes + smallest).all()


def check(struct, width, dtype, *, weighted):
    feat = draw(struct.num_src, width, dtype=dtype, device=DEVICE, seed=1)
    weight = draw(struct.num_edges, dtype=dtype, device=DEVICE, seed=2) if weighted else None
    with poisoned_outputs():
        for _ in range(2):
            assert_sum(summed(struct, feat, weight), struct, feat, weight)


@every_graph
@pytest.mark.parametrize("weighted", [False, True])
def test_every_graph_in_both_directions(name, weighted):
    struct = struct_of(zoo()[name](torch.int64))
    for seen in (struct, struct.reverse()):
        if name == "hub":  # more edges than entries
            assert not can_run(seen.in_adj, Sum(16, 4, int(weighted)))
            with pytest.raises(RuntimeError, match="cusparseCreateCsr: invalid value"):
                check(seen, 16, torch.float32, weighted=weighted)
        else:
            assert can_run(seen.in_adj, Sum(16, 4, int(weighted)))
            check(seen, 16, torch.float32, weighted=weighted)


@every_dtype
@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=["int32", "int64"])
@pytest.mark.parametrize(
    "name", ["block", "bipartite_up", "power_law", "isolated_rows", "permuted_edges"]
)
def test_every_dtype_and_index(dtype, index, name, monkeypatch):
    monkeypatch.setattr(adjacency, "choose_index_dtype", lambda *sizes: index)
    given = structure(zoo()[name](torch.int64))
    src, dst = (end.to(DEVICE) for end in given.edges())
    struct = GraphStructure.from_coo(src, dst, given.num_src, given.num_dst)
    assert struct.in_adj.index_dtype == index
    for weighted in (False, True):
        check(struct, 33, dtype, weighted=weighted)
        check(struct.reverse(), 33, dtype, weighted=weighted)


@every_dtype
@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 31, 32, 64, 100, 256, 512])
def test_every_width(dtype, width):
    check(struct_of(skewed_graph()), width, dtype, weighted=False)


def test_rows_of_several_dimensions():
    struct = struct_of(skewed_graph())
    for sizes in ((4, 8), ()):
        feat = draw(300, *sizes, seed=1, **FLOAT)
        assert_sum(summed(struct, feat), struct, feat)


@pytest.mark.parametrize("name", ["empty", "no_nodes"])
def test_nothing_to_sum(name):
    struct = struct_of(zoo()[name](torch.int64))
    with poisoned_outputs():
        out = summed(struct, torch.ones(struct.num_src, 8, device=DEVICE))
    assert torch.equal(out, torch.zeros_like(out))
    assert summed(struct, torch.ones(struct.num_src, 0, device=DEVICE)).shape[1] == 0


def test_two_graphs_in_turn_with_other_operands():
    structs = struct_of(skewed_graph(0)), struct_of(skewed_graph(1))
    for seed in range(3):
        feat, weight = draw(300, 16, seed=seed, **FLOAT), draw(2500, seed=9 - seed, **FLOAT)
        for given in (None, weight):
            for struct in structs:
                assert_sum(summed(struct, feat, given), struct, feat, given)


def test_a_side_stream_needs_no_synchronisation():
    struct = struct_of(skewed_graph())
    feat, weight = draw(300, 32, seed=1, **FLOAT), draw(2500, seed=2, **FLOAT)
    for given in (None, weight):
        summed(struct, feat, given)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        late = feat * 1, weight * 1  # ready only when the sleep is over
        found = [(summed(struct, late[0], given), given) for given in (None, late[1])]
    stream.synchronize()
    for out, given in found:
        assert_sum(out, struct, feat, given)


def test_no_sync_in_a_warm_call():
    struct = struct_of(skewed_graph())
    feat, weight = draw(300, 32, seed=1, **FLOAT), draw(2500, seed=2, **FLOAT)
    for given in (None, weight):
        summed(struct, feat, given)
    with no_device_sync():
        for given in (None, weight):
            summed(struct, feat, given)


def test_a_call_does_not_wait_for_the_device():
    struct = struct_of(skewed_graph())
    feat = draw(300, 32, seed=1, **FLOAT)
    summed(struct, feat)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    torch.cuda._sleep(200_000_000)
    summed(struct, feat)
    done.record()
    assert not done.query()  # the host is here, and the device still asleep
    torch.cuda.synchronize()


def test_capture_and_replay_with_new_inputs():
    struct = struct_of(skewed_graph())
    feat, weight = draw(300, 32, seed=1, **FLOAT), draw(2500, seed=2, **FLOAT)
    for given in (None, weight):
        summed(struct, feat, given)
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        results = [summed(struct, feat, given) for given in (None, weight)]
    feat.mul_(1.5)
    captured.replay()
    for out, given in zip(results, (None, weight), strict=True):
        assert_sum(out, struct, feat, given)


def test_only_a_vector_of_ones_is_kept():
    struct = struct_of(skewed_graph())
    feat, weight = draw(300, 32, seed=1, **FLOAT), draw(2500, seed=2, **FLOAT)
    summed(struct, feat, weight)
    assert not struct.in_adj.launches
    for width in (32, 16):
        summed(struct, feat[:, :width].contiguous())
    (ones,) = struct.in_adj.launches.values()
    assert torch.equal(ones, torch.ones_like(weight))
    del ones
    gc.collect()
    before = torch.cuda.memory_allocated()
    for given in (None, weight):
        summed(struct, feat, given)
    assert torch.cuda.memory_allocated() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current_one():
    struct = structure(skewed_graph(), "cuda:1")
    feat = draw(300, 32, seed=1, **FLOAT).to("cuda:1")
    assert torch.cuda.current_device() == 0
    found = summed(struct, feat)
    assert found.device.index == 1
    assert_sum(found, struct, feat)
