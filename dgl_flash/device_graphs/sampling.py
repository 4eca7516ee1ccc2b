"""Blocks of a graph on a device, sampled where the structure is: on the host.

DGL has a fast sampler for graphs on the host and none for others, which take a frontier and a block
a layer. A graph that only is said to be on a device has a twin on the host without features, from
which that sampler draws; its blocks then get the home and the features of the graph.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from dgl_flash.device_graphs.arrays import host_copy, upload
from dgl_flash.structure.dgl_reader import is_dgl_graph, kept_with
from dgl_flash.structure.homes import home_of, on_host, set_home

_TWIN = "host twin"


def sampler_methods() -> Iterator[tuple[Any, str, Any]]:
    """Class, name and replacement of the method that draws neighbours."""
    from dgl.dataloading import NeighborSampler

    draw = NeighborSampler.sample_blocks

    def sample_blocks(self: Any, g: Any, seed_nodes: Any, exclude_eids: Any = None) -> Any:
        """As DGL's; from the host twin of a graph that is on a device."""
        if not is_dgl_graph(g):  # one that is distributed, for instance
            return draw(self, g, seed_nodes, exclude_eids)
        if g.idtype != torch.int64 and self.fused:
            self = copy.copy(self)  # DGL's fast sampler takes ids for int64 and gives wrong blocks
            self.fused = False
        # A device for the blocks means nothing to the fast sampler, and much to the other one.
        if home_of(g._graph) is None or self.output_device is not None:
            return draw(self, g, seed_nodes, exclude_eids)
        _refuse_elsewhere(g, seed_nodes)
        twin = _twin(g, self.prob)
        seeds, excluded = _each(host_copy, seed_nodes), _each(host_copy, exclude_eids)
        blocks = draw(self, twin, seeds, excluded)[2]
        uploads = _Uploads(home_of(g._graph))
        for block in blocks:
            _settle_block(block, g, uploads)
        # What DGL gives, too: a tensor if there is one type of nodes, else one for each type.
        return blocks[0].srcdata[_nid()], seed_nodes, blocks

    yield NeighborSampler, "sample_blocks", sample_blocks


def _refuse_elsewhere(g: Any, seed_nodes: Any) -> None:
    """Refuse, as DGL does, ids that are not where the graph is said to be; the twin would not."""
    from dgl.utils import prepare_tensor_dict

    if isinstance(seed_nodes, Tensor):
        seed_nodes = dict.fromkeys(g.ntypes[:1], seed_nodes)
    prepare_tensor_dict(g, seed_nodes, "nodes")


class _Uploads:
    """Ids on their way to a device, each tensor once: a block begins where another one ended."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self._made: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def __call__(self, ids: Tensor) -> Tensor:
        key = ids.data_ptr(), ids.numel()
        if key not in self._made:
            # With its source, whose address would be another tensor's otherwise.
            self._made[key] = ids, upload(ids, self.device)
        return self._made[key][1]


def _twin(g: Any, prob: str | None) -> Any:
    """The graph on the host, with no features but the probabilities of edges; kept with it.

    The same object each time: the sampler keeps a scratch array for the graph it drew from last.
    """
    from dgl import DGLGraph

    kept = kept_with(g)
    if _TWIN not in kept:
        kept[_TWIN] = DGLGraph(on_host(g._graph), g.ntypes, g.etypes)
    twin = kept[_TWIN]
    for own, theirs in zip(twin._edge_frames, g._edge_frames, strict=True):
        if prob in theirs:
            own[prob] = host_copy(theirs[prob], whatever_size=True)
        else:
            own.clear()
    return twin


def _settle_block(block: Any, g: Any, uploads: _Uploads) -> None:
    """Give a block of the twin the home of the graph, and rows of its features."""
    from dgl import EID, utils

    ids = [uploads(frame[_nid()]) for frame in block._node_frames]
    num_types = len(g.ntypes)
    node_frames = utils.extract_node_subframes_for_block(g, ids[:num_types], ids[num_types:])
    edge_frames = []
    for own, theirs in zip(block._edge_frames, g._edge_frames, strict=True):
        if len(theirs.keys()):
            edge_ids = uploads(own[EID])
            frame = theirs.subframe(edge_ids)
            frame[EID] = edge_ids
        else:  # nobody may ask for the ids of edges that have no features: copied when read
            frame = own.to(uploads.device)
        edge_frames.append(frame)
    set_home(block._graph, uploads.device)
    utils.set_new_frames(block, node_frames=node_frames, edge_frames=edge_frames)


def _nid() -> str:
    from dgl import NID

    return str(NID)


def _each(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Change a tensor, or each one of a dictionary; None stays None."""
    if isinstance(value, Mapping):
        return {key: _each(change, part) for key, part in value.items()}
    return change(value) if isinstance(value, Tensor) else value
