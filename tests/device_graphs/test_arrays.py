"""Ids on their way between device and host."""

from __future__ import annotations

import copy
import gc

import dgl
import pytest
import torch

from dgl_flash.device_graphs import arrays
from tests.device_graphs.samples import homogeneous


@pytest.fixture
def downloads(monkeypatch):
    """Sizes of the tensors that have been copied to the host."""
    seen, download = [], arrays._download

    def counting(data):
        seen.append(data.numel())
        return download(data)

    monkeypatch.setattr(arrays, "_download", counting)
    return seen


def test_what_came_from_the_host_is_not_copied_back(home, downloads):
    graph = homogeneous().to(home)
    src, _, eids = graph.edges("all")
    graph.out_degrees(src[:])  # a view is another tensor
    assert len(downloads) > 0
    downloads.clear()
    graph.find_edges(eids)
    graph.edge_subgraph(eids)
    assert downloads == []


def test_what_was_copied_once_is_remembered(home, downloads):
    graph = homogeneous().to(home)
    nodes = torch.tensor([1, 0], device=home)
    for _ in range(2):
        assert graph.in_edges(nodes, form="eid").tolist() == [0, 3, 5, 2, 4]
    assert len(downloads) == 1


def test_what_has_been_written_to_is_copied_again(home):
    graph = homogeneous().to(home)
    _, _, eids = graph.edges("all")
    assert graph.find_edges(eids)[0].tolist() == [0, 1, 2, 2, 4, 4, 0, 3]
    eids[:4] += 1
    assert graph.find_edges(eids)[0].tolist() == [1, 2, 2, 4, 4, 4, 0, 3]
    view = eids[:2]
    assert graph.find_edges(view)[0].tolist() == [1, 2]
    eids.zero_()
    assert graph.find_edges(view)[0].tolist() == [0, 0]


def test_copies_remember_nothing(home):
    graph = homogeneous().to(home)
    eids = graph.edges("all")[2]
    eids += 1
    other = copy.deepcopy(eids)
    assert other.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    other -= 1
    assert graph.find_edges(copy.deepcopy(other))[0].tolist() == [0, 1, 2, 2, 4, 4, 0, 3]
    assert not vars(eids).keys() - {"host"}  # the emulation has one of its own


def test_what_is_remembered_goes_with_the_tensor(home):
    graph = homogeneous().to(home)
    gc.collect()
    before = len(arrays._host_copies)
    for _ in range(20):
        graph.edges("all")
    gc.collect()
    assert len(arrays._host_copies) <= before + 2


def test_degrees_of_all_nodes_wait_for_nothing(home, downloads):
    graph = homogeneous().to(home)
    assert graph.in_degrees().tolist() == [2, 3, 1, 2, 0, 0]
    graph.nodes()
    assert downloads == []


def test_a_sampled_block_waits_once(home, downloads):
    """For the seeds; all else is known on the host."""
    graph = homogeneous().to(home)
    sampler = dgl.dataloading.MultiLayerFullNeighborSampler(3)
    sampler.sample(graph, torch.tensor([0, 1], device=home))
    assert len(downloads) == 1


def test_inference_mode(home):
    with torch.inference_mode():
        graph = homogeneous().to(home)
        eids = graph.edges("all")[2]
        eids += 0
        assert graph.find_edges(eids)[0].tolist() == [0, 1, 2, 2, 4, 4, 0, 3]


def test_nothing_of_no_edges(home):
    graph = homogeneous().to(home)
    assert graph.in_edges(torch.tensor([5], device=home), form="eid").tolist() == []
    assert graph.in_edges(torch.tensor([5], device=home), form="eid").device == home


def test_sets_of_ids(home):
    """Whose methods DGL has for the GPU only."""
    ids = dgl.utils.Filter(torch.tensor([3, 2, 9], dtype=torch.int32, device=home))
    test = torch.tensor([0, 2, 8, 9], dtype=torch.int32, device=home)
    assert ids.find_included_indices(test).tolist() == [1, 3]
    assert ids.find_excluded_indices(test).tolist() == [0, 2]
    assert ids.find_included_indices(test).device == home
    assert ids.find_included_indices(test).dtype == torch.int32


@pytest.mark.parametrize("replace", [False, True])
def test_edges_are_left_out(replace, home):
    """As where links are to be predicted, which must not be seen."""
    graph = homogeneous().to(home)
    out = torch.tensor([0, 3], device=home)
    sampled = dgl.sampling.sample_neighbors(
        graph, torch.tensor([1], device=home), 20, replace=replace, exclude_edges=out
    )
    assert set(sampled.edata[dgl.EID].tolist()) == {5}
