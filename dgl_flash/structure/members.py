"""The graphs of a batch, as consecutive nodes of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.structure import structure
from dgl_flash.structure.dgl_reader import is_dgl_graph, kept_with
from dgl_flash.structure.graph_structure import GraphStructure, resolve_device
from dgl_flash.structure.segments import segment_structure
from dgl_flash.structure.traced import is_tracing, outside_trace


class Members:
    """The graphs of a batch; a graph that is no batch is the only member.

    Parameters
    ----------
    lengths : Tensor
        (B,), integer: the nodes of each member, as the graph has them.
    num_nodes : int
        Their sum.
    device : torch.device
        Where the structure is wanted.

    Attributes
    ----------
    struct : GraphStructure
        An edge from each node to its member; edge ids are nodes.
    num_nodes, num_members : int
        N and B.
    """

    __slots__ = ("_lengths", "_sizes", "_version", "num_members", "num_nodes", "struct")

    def __init__(self, lengths: Tensor, num_nodes: int, device: torch.device):
        self._lengths = lengths
        self._version = _version(lengths)
        self._sizes: Tensor | None = None
        self.num_nodes = num_nodes
        self.num_members = lengths.numel()
        if lengths.device != device:
            lengths = self.sizes
        self.struct = segment_structure(lengths, num_nodes, device)

    @property
    def sizes(self) -> Tensor:
        """(B,), int64, on the host; lengths on a GPU are read once."""
        if self._sizes is None:
            self._sizes = self._lengths.to("cpu", torch.int64)
        return self._sizes

    def are_of(self, lengths: Tensor) -> bool:
        """Whether they have been made of these lengths, which are still the same."""
        return self._lengths is lengths and self._version == _version(lengths)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def members_of(graph: Any, device: torch.device | str, *, op: str = "members") -> Members:
    """Read what a graph is a batch of, once per graph and device.

    Parameters
    ----------
    graph : DGLGraph, dgl_flash.Graph or GraphStructure
        With one set of nodes. Ours and structures are no batches.
    device : torch.device or str
        Where the structure is wanted.
    op : str, optional
        Name that starts the text of an error.

    Returns
    -------
    Members
        Kept with a DGL graph until that has other lengths; made anew for all else.

    Raises
    ------
    TypeError
        `graph` is not a graph.
    DGLError
        There are several sets of nodes, in DGL's words, or the lengths do not sum up to the nodes.
    """
    if is_tracing():
        return _known(graph, device) or _outside(graph, device, op=op)
    device = resolve_device(device)
    if not is_dgl_graph(graph):
        return Members(torch.tensor([_num_nodes(graph, op)]), _num_nodes(graph, op), device)
    lengths = graph.batch_num_nodes()
    kept = kept_with(graph)
    key = ("members", device)
    if key not in kept or not kept[key].are_of(lengths):
        kept[key] = _read(lengths, graph.num_nodes(), device, op)
    return kept[key]


_outside = outside_trace(members_of)


def _known(graph: Any, device: torch.device | str) -> Members | None:
    """What :func:`members_of` has answered before, read in a way that ``torch.compile`` follows."""
    lengths = getattr(graph, "_batch_num_nodes", None)
    if not is_dgl_graph(graph) or lengths is None or len(graph.ntypes) != 1:
        return None
    found = kept_with(graph).get(("members", resolve_device(device)))
    return found if found is not None and found._lengths is lengths[graph.ntypes[0]] else None


@torch.inference_mode(False)  # what is kept will be used in training too
def _read(lengths: Tensor, num_nodes: int, device: torch.device, op: str) -> Members:
    if lengths.device.type == "cpu" and int(lengths.sum()) != num_nodes:
        raise dgl_error(
            f"{op}: expected the members of the batch to have {num_nodes} nodes, those of the "
            f"graph, got {int(lengths.sum())}; see set_batch_num_nodes"
        )
    return Members(lengths, num_nodes, device)


def _num_nodes(graph: Any, op: str) -> int:
    struct: GraphStructure = structure(graph, op=op)
    if struct.num_src != struct.num_dst or not getattr(graph, "is_homogeneous", True):
        raise dgl_error("Node type name must be specified if there are more than one node types.")
    return struct.num_src
