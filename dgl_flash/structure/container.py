"""`dgl_flash.Graph`: a light graph for people without DGL, with DGL's names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.structure.frame import Columns, FrameView
from dgl_flash.structure.graph_structure import GraphStructure
from dgl_flash.structure.reading import GraphReading

_IN_PLACE = frozenset({"add_edges", "add_nodes", "remove_edges", "remove_nodes"})


class Graph(GraphReading):
    """A graph of one relation with features, as `dgl_flash.graph` builds it.

    Methods have DGL's names and meaning. The structure never changes: what changes it in DGL
    returns a new graph here. Features live in `ndata` (or `srcdata` and `dstdata`) and `edata`.

    Parameters
    ----------
    structure : GraphStructure
        The edges.
    kind : {"homogeneous", "bipartite", "block"}
        One set of nodes, two sets, or two of which the second begins the first.
    idtype : torch.dtype
        Dtype of the ids that the methods return.
    """

    def __init__(self, structure: GraphStructure, kind: str, idtype: torch.dtype):
        super().__init__(structure, kind, idtype)
        nodes: Columns = {}
        self._frames: dict[str, Columns] = {
            "src": nodes,
            "dst": nodes if kind == "homogeneous" else {},
            "edge": {},
        }

    def __getattr__(self, name: str) -> Any:
        if name in _IN_PLACE:
            raise AttributeError(
                f"Graph: {name} would change the graph in place, and its structure never changes; "
                "build another one with dgl_flash.graph(...)"
            )
        raise AttributeError(f"'Graph' object has no attribute {name!r}")

    def __repr__(self) -> str:
        if self._kind == "homogeneous":
            nodes = f"num_nodes={self.num_nodes()}"
        else:
            nodes = f"num_src_nodes={self.num_src_nodes()}, num_dst_nodes={self.num_dst_nodes()}"
        frames = ("ndata",) if self._kind == "homogeneous" else ("srcdata", "dstdata")
        lines = [f"Graph({nodes}, num_edges={self.num_edges()}, device={self.device}"]
        for frame in (*frames, "edata"):
            names = {name: tuple(feat.shape) for name, feat in getattr(self, frame).items()}
            lines.append(f"      {frame}={names}")
        return ",\n".join(lines) + ")"

    @property
    def ndata(self) -> FrameView:
        """Features of the nodes; a bipartite graph has `srcdata` and `dstdata` instead."""
        if not self.is_homogeneous:
            raise dgl_error("Graph: two sets of nodes; use srcdata or dstdata")
        return FrameView(self, "src")

    @property
    def srcdata(self) -> FrameView:
        """Features of the sources."""
        return FrameView(self, "src")

    @property
    def dstdata(self) -> FrameView:
        """Features of the destinations; those of the sources when they are one set."""
        return FrameView(self, "dst")

    @property
    def edata(self) -> FrameView:
        """Features of the edges, in edge-id order."""
        return FrameView(self, "edge")

    def _copy_frames(self) -> dict[str, Columns]:
        src = dict(self._frames["src"])
        dst = src if self.is_homogeneous else dict(self._frames["dst"])
        return {"src": src, "dst": dst, "edge": dict(self._frames["edge"])}

    @contextmanager
    def local_scope(self) -> Iterator[None]:
        """Forget, at the end of a ``with`` block, the features assigned and deleted within."""
        kept = self._frames
        self._frames = self._copy_frames()
        try:
            yield
        finally:
            self._frames = kept

    def clone(self) -> Graph:
        """Copy the graph: same structure and tensors, frames of its own."""
        return self._with_idtype(self._idtype)

    __copy__ = clone
    local_var = clone

    def _with_idtype(self, idtype: torch.dtype) -> Graph:
        other = Graph(self._structure, self._kind, idtype)
        other._frames = self._copy_frames()
        return other

    def int(self) -> Graph:
        """Return ids as int32 from now on."""
        return self._with_idtype(torch.int32)

    def long(self) -> Graph:
        """Return ids as int64 from now on."""
        return self._with_idtype(torch.int64)

    def to(self, device: torch.device | str) -> Graph:
        """Copy structure and features to a device; itself when it is there already."""
        structure = self._structure.to(device)
        if structure.device == self.device:
            return self
        other = Graph(structure, self._kind, self._idtype)
        frames = ("src", "edge") if self.is_homogeneous else ("src", "dst", "edge")
        for frame in frames:
            for name, feat in self._frames[frame].items():
                other._frames[frame][name] = feat.to(structure.device)
        return other

    def cpu(self) -> Graph:
        """Copy to the host."""
        return self.to("cpu")

    def cuda(self) -> Graph:
        """Copy to the current GPU."""
        return self.to("cuda")

    def reverse(self, copy_ndata: bool = True, copy_edata: bool = False) -> Graph:
        """Edges ``v -> u`` with the same ids.

        Parameters
        ----------
        copy_ndata, copy_edata : bool, optional
            Whether the features go along.

        Returns
        -------
        Graph
            Shares the structure; sources and destinations have changed roles.
        """
        if self.is_block:
            raise dgl_error("Reversing a block graph is not supported.")
        other = Graph(self._structure.reverse(), self._kind, self._idtype)
        if copy_ndata:
            other._frames["src"].update(self._frames["dst"])
            other._frames["dst"].update(self._frames["src"])
        if copy_edata:
            other._frames["edge"].update(self._frames["edge"])
        return other

    def add_self_loop(self, fill_data: float = 1.0) -> Graph:
        """Add an edge from each node to itself, after the edges that are there.

        Parameters
        ----------
        fill_data : float, optional
            Value of the edge features of the new edges.

        Returns
        -------
        Graph
            ``E + N`` edges. A node that had a self-loop has two of them, as in DGL.
        """
        self._require_one_set("add_self_loop")
        src, dst = self._structure.edges()
        loops = torch.arange(self.num_nodes(), device=self.device)
        other = self._with_edges(torch.cat([src, loops]), torch.cat([dst, loops]))
        for name, feat in self._frames["edge"].items():
            fill = feat.new_full((self.num_nodes(), *feat.shape[1:]), fill_data)
            other._frames["edge"][name] = torch.cat([feat, fill])
        return other

    def remove_self_loop(self) -> Graph:
        """Drop the edges from a node to itself; the others keep their order.

        Returns
        -------
        Graph
            Its edges are numbered anew.
        """
        self._require_one_set("remove_self_loop")
        src, dst = self._structure.edges()
        kept = torch.nonzero(src != dst).flatten()
        other = self._with_edges(src[kept], dst[kept])
        for name, feat in self._frames["edge"].items():
            other._frames["edge"][name] = feat[kept]
        return other

    def _require_one_set(self, method: str) -> None:
        if not self.is_homogeneous:
            raise dgl_error(f"Graph: {method} needs sources and destinations in one set of nodes")

    def _with_edges(self, src: Tensor, dst: Tensor) -> Graph:
        """Other edges between the same nodes, with their features."""
        nodes = self.num_nodes()
        other = Graph(GraphStructure.from_coo(src, dst, nodes, nodes), self._kind, self._idtype)
        other._frames["src"].update(self._frames["src"])
        return other
