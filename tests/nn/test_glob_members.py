"""What a graph is a batch of is read once, and anew when it changes."""

from __future__ import annotations

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from dgl_flash.structure.members import members_of
from tests.graphs import random_graph
from tests.nn.batches import batch_of, mixed
from tests.nn.common import ours
from tests.sync import no_device_sync


def test_members(device):
    graph = batch_of(2, 0, 3)
    found = members_of(graph, device)
    assert (found.num_members, found.num_nodes) == (3, 5)
    assert found.sizes.tolist() == [2, 0, 3]
    src, dst = found.struct.edges()
    assert src.tolist() == [0, 1, 2, 3, 4]
    assert dst.tolist() == [0, 0, 2, 2, 2]
    assert found.struct.device.type == device.type


def test_they_are_kept_with_the_graph(device):
    graph = mixed()
    found = members_of(graph, device)
    assert members_of(graph, device) is found
    with graph.local_scope():
        assert members_of(graph, device) is found
    assert members_of(mixed(), device) is not found


def test_they_do_not_keep_what_they_were():
    graph = random_graph(6, 12)
    pool = ours.SumPooling()
    feat = torch.arange(6.0).unsqueeze(1)
    assert pool(graph, feat).flatten().tolist() == [15]
    graph.set_batch_num_nodes(torch.tensor([2, 4]))
    assert pool(graph, feat).flatten().tolist() == [1, 14]
    graph.set_batch_num_nodes(torch.tensor([3, 3]))
    assert pool(graph, feat).flatten().tolist() == [3, 12]
    graph.batch_num_nodes().copy_(torch.tensor([5, 1]))
    assert pool(graph, feat).flatten().tolist() == [10, 5]
    graph.add_nodes(1)
    assert pool(graph, torch.ones(7, 1)).flatten().tolist() == [7]


def test_lengths_that_do_not_fit_are_refused():
    graph = random_graph(6, 12)
    graph.set_batch_num_nodes(torch.tensor([2, 3]))
    with pytest.raises(dgl.DGLError, match=r"SumPooling: expected the members .* 6 nodes"):
        ours.SumPooling()(graph, torch.ones(6, 1))


def test_a_graph_of_several_edge_types():
    """One set of nodes is enough."""
    graph = dgl.heterograph(
        {("n", "a", "n"): ([0, 1], [1, 2]), ("n", "b", "n"): ([2], [0])}, num_nodes_dict={"n": 3}
    )
    feat = torch.ones(3, 2)
    assert ours.SumPooling()(graph, feat).tolist() == [[3, 3]]


def test_read_in_inference_and_trained_afterwards(device):
    graph = mixed()
    feat = torch.ones(graph.num_nodes(), 2, device=device)
    with torch.inference_mode():
        ours.AvgPooling()(graph, feat)
    feat.requires_grad_()
    ours.AvgPooling()(graph, feat).sum().backward()
    assert feat.grad.isfinite().all()


def test_a_graph_made_in_inference(device):
    with torch.inference_mode():
        graph = mixed()
        out = ours.SumPooling()(graph, torch.ones(graph.num_nodes(), 1, device=device))
    assert out.flatten().tolist() == graph.batch_num_nodes().tolist()


def test_other_things_are_no_graphs():
    for thing in (None, 3, torch.ones(3)):
        with pytest.raises(TypeError, match=r"^members: expected a graph"):
            members_of(thing, "cpu")
    graph = dgl_flash.graph(([0, 1], [1, 0]))
    assert members_of(graph, "cpu").sizes.tolist() == [2]


@pytest.mark.gpu
def test_a_batch_on_the_gpu_is_read_once():
    """As of a graph there, which DGL's own wheel cannot make."""
    graph = mixed()
    sizes = graph.batch_num_nodes()
    graph._batch_num_nodes = {graph.ntypes[0]: sizes.cuda()}
    feat = torch.ones(graph.num_nodes(), 1, device="cuda")
    assert ours.SumPooling()(graph, feat).flatten().tolist() == sizes.tolist()
    found = members_of(graph, "cuda")
    assert found.sizes.tolist() == sizes.tolist()
    with no_device_sync():
        ours.SumPooling()(graph, feat)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "make",
    [
        ours.SumPooling,
        ours.AvgPooling,
        lambda: ours.SortPooling(3),
        lambda: ours.WeightAndSum(4),
        lambda: ours.SetTransformerEncoder(4, 2, 3, 5),
    ],
)
def test_the_host_waits_for_nothing(make):
    """A graph on the CPU that is new each time."""
    layer, graphs = make().cuda(), [mixed(), mixed()]
    feat = torch.ones(graphs[0].num_nodes(), 4, device="cuda")
    layer(graphs[0], feat)  # compiles
    with no_device_sync():
        layer(graphs[1], feat)
