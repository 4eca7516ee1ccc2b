"""DGL's documented interface gives on a device what it gives on the host."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from typing import Any

import dgl_flash

# isort: split
import dgl
import dgl.function as fn
import pytest
import torch
from torch import Tensor

from tests.device_graphs.samples import CALLS, a_batch, a_block, homogeneous, typed

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")
ON_THE_HOST = {"scipy", "metapath", "incidence", "in and out subgraph"}


def same(found: Any, expected: Any, device: torch.device | None) -> None:
    """The same values, ids in the same order, on a device (None: on any)."""
    if isinstance(expected, Tensor):
        assert device is None or found.device == device
        torch.testing.assert_close(found.cpu(), expected)
    elif isinstance(expected, dgl.DGLGraph):
        assert device is None or found.device == device
        assert type(found) is type(expected) and found.idtype == expected.idtype
        same(as_parts(found), as_parts(expected), device)
    elif isinstance(expected, Mapping):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()), device)
    elif isinstance(expected, (tuple, list)):
        assert len(found) == len(expected)
        for mine, other in zip(found, expected, strict=True):
            same(mine, other, device)
    else:
        assert found == expected


def as_parts(graph: Any) -> list[Any]:
    names = graph.ntypes, graph.canonical_etypes
    edges = [graph.edges("all", etype=etype) for etype in graph.canonical_etypes]
    nodes = [graph.num_nodes(ntype) for ntype in graph.ntypes]
    frames = [dict(frame) for frame in (*graph._node_frames, *graph._edge_frames)]
    return [*names, edges, nodes, frames]


@pytest.mark.parametrize("name", CALLS)
def test_a_call_gives_what_it_gives_on_the_host(name, home):
    build, call = CALLS[name]
    expected = call(build())
    found = call(build().to(home))
    on_host = any(part in name for part in ON_THE_HOST)
    same(found, expected, None if on_host else home)


@pytest.mark.parametrize("build", [homogeneous, typed, a_block, a_batch])
def test_there_and_back(build, home):
    graph = build()
    there = graph.to(home)
    assert there.device == home
    assert there.to(home) is there
    back = there.to("cpu")
    assert back.device.type == there.cpu().device.type == "cpu"
    same(there, graph, home)
    same(back, graph, torch.device("cpu"))


@pytest.mark.parametrize("build", [homogeneous, typed, a_block, a_batch])
def test_copies(build, home):
    there = build().to(home)
    same(copy.copy(there), build(), home)
    same(copy.deepcopy(there), build(), home)
    same(there.clone(), build(), home)


def test_a_graph_is_made_where_its_ids_are(home):
    src, dst = torch.tensor([0, 1], device=home), torch.tensor([1, 2], device=home)
    assert dgl.graph((src, dst)).device == home
    assert dgl.graph(([0, 1], [1, 2]), device=home).device == home
    made = dgl.heterograph({("a", "to", "b"): (src, dst)})
    assert made.device == made["to"].device == home
    assert dgl.rand_graph(5, 9, device=home).device == home


def test_features_of_another_device_are_refused_as_by_dgl(home):
    graph = homogeneous().to(home)
    with pytest.raises(dgl.DGLError, match="same device"):
        graph.ndata["z"] = torch.ones(6)
    with pytest.raises(dgl.DGLError):
        graph.in_degrees(torch.tensor([0]))


def test_a_maximum_of_nothing_is_0(home):
    """``dgl.ops`` on the host has infinity, and takes sums with it for infinite, too."""
    graph = homogeneous().to(home)
    found = dgl.ops.copy_u_max(graph, graph.ndata["h"])
    expected = dgl.ops.copy_u_max(homogeneous(), homogeneous().ndata["h"])
    assert expected.isinf().any()
    same(found, expected.nan_to_num(0, 0, 0), home)
    several = typed().to(home)
    messages = fn.copy_u("h", "m")
    several.multi_update_all(
        {"follows": (messages, fn.sum("m", "o")), "pleases": (messages, fn.max("m", "o"))}, "sum"
    )
    # Nobody pleases user 1, whom user 0 follows.
    same(several.nodes["user"].data["o"][1], several.nodes["user"].data["h"][0].cpu(), home)


@pytest.mark.gpu
def test_pickles():
    with dgl_flash.enable_cuda():
        for build in (homogeneous, typed, a_block, a_batch):
            there = build().to("cuda")
            same(pickle.loads(pickle.dumps(there)), build(), there.device)
