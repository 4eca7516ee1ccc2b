"""Blocks that are sampled from a graph on a device: those that DGL draws on the host."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from dgl_flash.structure.dgl_reader import kept_with
from tests.device_graphs.samples import draw

NUM = {"user": 40, "item": 30}
ENDS = {
    ("user", "knows", "user"): (40, 40, 200),
    ("user", "rates", "item"): (40, 30, 150),
    ("item", "rated-by", "user"): (30, 40, 150),
}


def homogeneous() -> Any:
    generator = torch.Generator().manual_seed(0)
    graph = dgl.graph(tuple(torch.randint(0, 60, (2, 400), generator=generator)), num_nodes=60)
    graph.ndata["h"], graph.edata["w"] = draw(60, 3), draw(400, 1)
    graph.edata["p"] = torch.rand(400, generator=generator)
    graph.edata["m"] = torch.rand(400, generator=generator) < 0.5
    return graph


def typed() -> Any:
    generator = torch.Generator().manual_seed(0)

    def ends(num_src: int, num_dst: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        src = torch.randint(0, num_src, (count,), generator=generator)
        return src, torch.randint(0, num_dst, (count,), generator=generator)

    graph = dgl.heterograph({etype: ends(*sizes) for etype, sizes in ENDS.items()}, NUM)
    for ntype, count in NUM.items():
        graph.nodes[ntype].data["h"] = draw(count, 2)
    graph.edges["rates"].data["w"] = draw(150, 1)
    return graph


@pytest.fixture(params=[1, 3], ids=["frontier", "fused"])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """DGL draws in another way where it may use one thread only."""
    before = dgl.utils.get_num_threads()
    dgl.utils.set_num_threads(request.param)
    yield request.param
    dgl.utils.set_num_threads(before)


def moved(value: Any, device: Any) -> Any:
    if isinstance(value, dict):
        return {key: moved(part, device) for key, part in value.items()}
    return None if value is None else value.to(device)


def assert_drawn(found: Any, graph: Any, seeds: Any, fanouts: list[int], home: Any) -> None:
    """Blocks of edges of the graph, with rows of its features, one block from another's sources."""
    inputs, outputs, blocks = found
    assert_equal(outputs, seeds, home)
    assert_equal(blocks[-1].dstdata[dgl.NID], seeds, home)
    assert_equal(inputs, blocks[0].srcdata[dgl.NID], home)
    for first, second in itertools.pairwise(blocks):
        assert_equal(first.dstdata[dgl.NID], second.srcdata[dgl.NID], home)
    for block, fanout in zip(blocks, fanouts, strict=True):
        assert (block.device, block.idtype) == (home, graph.idtype)
        num_types = len(graph.ntypes)
        for number, frame in enumerate(block._node_frames):
            assert_rows(frame, graph._node_frames[number % num_types], dgl.NID, home)
        for etype, frame in zip(block.canonical_etypes, block._edge_frames, strict=True):
            assert_rows(frame, graph._edge_frames[graph.get_etype_id(etype)], dgl.EID, home)
            ids = frame[dgl.EID].cpu()
            src, dst = (ends.cpu() for ends in block.edges(etype=etype))
            heads, tails = graph.find_edges(ids, etype=etype)
            ends = block.srcnodes[etype[0]].data, block.dstnodes[etype[2]].data
            assert torch.equal(ends[0][dgl.NID].cpu()[src], heads)
            assert torch.equal(ends[1][dgl.NID].cpu()[dst], tails)
            assert block.num_edges(etype) == 0 or block.in_degrees(etype=etype).max() <= fanout


def assert_rows(frame: Any, whole: Any, id_name: str, home: torch.device) -> None:
    assert set(frame) == {*whole, id_name}
    for name in whole:
        assert_equal(frame[name], whole[name][frame[id_name].cpu().long()], home)


def assert_equal(found: Any, expected: Any, home: torch.device) -> None:
    if isinstance(expected, dict):
        for key, part in found.items():
            assert_equal(part, expected.get(key, part[:0]), home)
    else:
        assert found.device == home
        assert torch.equal(found.cpu(), expected.cpu())


def draw_blocks(sampler: Any, graph: Any, seeds: Any, home: Any, excluded: Any = None) -> Any:
    """Twice, as the sampler keeps things for the graph that it drew from last."""
    given = graph.to(home), moved(seeds, home), moved(excluded, home)
    dgl.seed(7)
    found = [sampler.sample(*given) for _ in range(2)]
    for drawn in found:
        assert_drawn(drawn, graph, seeds, sampler.fanouts, home)
    if dgl.utils.get_num_threads() == 1:  # else no two runs of DGL agree
        dgl.seed(7)
        for drawn in found:
            expected = sampler.sample(graph, seeds, excluded)
            for mine, other in zip(drawn[2], expected[2], strict=True):
                assert_equal(mine.edata[dgl.EID], other.edata[dgl.EID], home)
                assert_equal(mine.srcdata[dgl.NID], other.srcdata[dgl.NID], home)
    return found[-1][2]


def test_ids_of_int32_on_the_host(threads):
    """There a plain DGL with several threads gives blocks of wrong edges."""
    graph, seeds = homogeneous().int(), torch.arange(20, dtype=torch.int32)
    with dgl_flash.enable_cuda():
        sampler = dgl.dataloading.NeighborSampler([3, 4])
        drawn = sampler.sample(graph, seeds)
    assert_drawn(drawn, graph, seeds, sampler.fanouts, torch.device("cpu"))


@pytest.mark.parametrize("name", [None, "p", "m"], ids=["uniform", "probabilities", "mask"])
@pytest.mark.parametrize("idtype", [torch.int32, torch.int64])
def test_draws_as_on_the_host(name, idtype, threads, home):
    graph = homogeneous()
    graph = graph.int() if idtype == torch.int32 else graph
    named = {"mask" if name == "m" else "prob": name}
    sampler = dgl.dataloading.NeighborSampler([3, 4], **named)
    blocks = draw_blocks(sampler, graph, torch.tensor([3, 50, 7], dtype=idtype), home)
    assert all(block.edata["m"].all() for block in blocks) or name != "m"


def test_draws_several_types(threads, home):
    sampler = dgl.dataloading.NeighborSampler([2, 3])
    seeds = {"user": torch.tensor([1, 4, 39]), "item": torch.tensor([0, 29])}
    draw_blocks(sampler, typed(), seeds, home)


def test_leaves_out_edges(threads, home):
    sampler = dgl.dataloading.NeighborSampler([5, 5])
    without = torch.arange(0, 400, 2)
    blocks = draw_blocks(sampler, homogeneous(), torch.arange(10), home, without)
    assert all((block.edata[dgl.EID] % 2).all() for block in blocks)
    seeds, knows = {"user": torch.arange(10)}, ("user", "knows", "user")
    blocks = draw_blocks(sampler, typed(), seeds, home, {knows: torch.arange(0, 200, 2)})
    assert all((block.edata[dgl.EID][knows] % 2).all() for block in blocks)


def test_reads_new_probabilities(home):
    """What was drawn by must be noticed when it is written to, or replaced."""
    graph = homogeneous().to(home)
    sampler = dgl.dataloading.NeighborSampler([-1], prob="p")
    seeds = torch.arange(60, device=home)
    assert sampler.sample(graph, seeds)[2][0].num_edges() == 400
    graph.edata["p"][::2] = 0
    assert sampler.sample(graph, seeds)[2][0].num_edges() == 200
    graph.edata["p"] = torch.zeros(400, device=home)
    assert sampler.sample(graph, seeds)[2][0].num_edges() == 0
    del graph.edata["p"]
    assert sampler.sample(graph, seeds)[2][0].num_edges() == 400


def test_notices_new_edges(home):
    graph = homogeneous().to(home)
    sampler = dgl.dataloading.NeighborSampler([-1])
    seeds = torch.tensor([5], device=home)
    before = sampler.sample(graph, seeds)[2][0].num_edges()
    graph.add_edges(torch.tensor([1, 2], device=home), torch.tensor([5, 5], device=home))
    assert sampler.sample(graph, seeds)[2][0].num_edges() == before + 2


def test_a_device_of_blocks_is_heeded(home):
    graph = homogeneous().to(home)
    sampler = dgl.dataloading.NeighborSampler([2], output_device=home)
    _, _, (block,) = sampler.sample(graph, torch.arange(5, device=home))
    assert block.device == home
    assert block.num_dst_nodes() == 5


@pytest.mark.parametrize("threads", [3], indirect=True, ids=["fused"])
def test_shares_the_ids_of_neighbouring_blocks(threads, home):
    graph = homogeneous().to(home)
    sampler = dgl.dataloading.NeighborSampler([2, 2])
    _, _, (first, second) = sampler.sample(graph, torch.arange(5, device=home))
    assert first.dstdata[dgl.NID].data_ptr() == second.srcdata[dgl.NID].data_ptr()


def test_edges_to_predict(threads, home):
    """Of the kind that excludes what it predicts, and draws others that are no edges."""
    graph = homogeneous()
    del graph.edata["w"], graph.edata["p"], graph.edata["m"]
    sampler = dgl.dataloading.as_edge_prediction_sampler(
        dgl.dataloading.NeighborSampler([-1]),
        exclude="self",
        negative_sampler=dgl.dataloading.negative_sampler.Uniform(2),
    )
    seeds = torch.tensor([4, 9, 11], device=home)
    inputs, positive, negative, (block,) = sampler.sample(graph.to(home), seeds)
    assert {inputs.device, positive.device, negative.device, block.device} == {home}
    assert (positive.num_edges(), negative.num_edges()) == (3, 6)
    assert not set(block.edata[dgl.EID].tolist()) & {4, 9, 11}


def test_the_host_twin_goes_with_the_graph(home):
    graph = homogeneous().to(home)
    dgl.dataloading.NeighborSampler([2]).sample(graph, torch.arange(5, device=home))
    (twin,) = [value for value in kept_with(graph).values() if isinstance(value, dgl.DGLGraph)]
    assert twin.device == torch.device("cpu")
    assert not twin.ndata
    assert graph.device == home
    copied = graph.to("cpu")
    assert not any(isinstance(value, dgl.DGLGraph) for value in kept_with(copied).values())


@pytest.mark.parametrize("make", [homogeneous, typed])
def test_seeds_must_be_where_the_graph_is(make, home):
    graph = make().to(home)
    seeds = torch.arange(5) if len(graph.ntypes) == 1 else {"user": torch.arange(5)}
    with pytest.raises(dgl.DGLError, match=f"to have device {home}. But got cpu"):
        dgl.dataloading.NeighborSampler([2]).sample(graph, seeds)


def test_leaves_other_graphs_to_dgl(threads):
    """Those that are distributed have neither an index nor what else is asked of a DGLGraph."""

    class Elsewhere:
        device = torch.device("cpu")

        def sample_neighbors(self, *given: Any, **named: Any) -> Any:
            raise LookupError("asked")

    with dgl_flash.enable_cuda(), pytest.raises(LookupError, match="asked"):
        dgl.dataloading.NeighborSampler([2]).sample(Elsewhere(), torch.arange(5))


def test_is_taken_back():
    with dgl_flash.enable_cuda():
        enabled = dgl.dataloading.NeighborSampler.sample_blocks
    assert dgl.dataloading.NeighborSampler.sample_blocks is not enabled
