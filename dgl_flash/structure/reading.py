"""The reading half of the container: sizes, ids and degrees under DGL's names."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error
from dgl_flash.structure.graph_structure import GraphStructure

_ALL = "__ALL__"  # the value of dgl.ALL


class GraphReading:
    """Methods that only read; :class:`Graph` adds features, scopes and moves.

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
        self._structure = structure
        self._kind = kind
        self._idtype = idtype

    @property
    def device(self) -> torch.device:
        """Device of structure and features."""
        return self._structure.device

    @property
    def idtype(self) -> torch.dtype:
        """Dtype of the ids that methods return; the kernels choose their own."""
        return self._idtype

    @property
    def is_block(self) -> bool:
        """Whether the destinations are the first sources."""
        return self._kind == "block"

    @property
    def is_homogeneous(self) -> bool:
        """Whether sources and destinations are one set of nodes."""
        return self._kind == "homogeneous"

    @property
    def ntypes(self) -> list[str]:
        """Names of the node sets."""
        return ["_U", "_V"] if self._kind == "bipartite" else ["_N"]

    @property
    def etypes(self) -> list[str]:
        """Name of the relation."""
        return ["_E"]

    @property
    def canonical_etypes(self) -> list[tuple[str, str, str]]:
        """The relation with the names of its ends."""
        return [(self.ntypes[0], "_E", self.ntypes[-1])]

    def get_etype_id(self, etype: str | tuple[str, str, str] | None) -> int:
        """Check the name of a relation; the only id is 0."""
        if etype not in (None, "_E", self.canonical_etypes[0]):
            raise dgl_error(f'Edge type "{etype}" does not exist.')
        return 0

    def num_nodes(self, ntype: str | None = None) -> int:
        """Count the nodes, of both sets together when `ntype` is None."""
        if ntype is None and not self.is_homogeneous:
            return self.num_src_nodes() + self.num_dst_nodes()
        if ntype not in (None, *self.ntypes):
            raise dgl_error(f'Node type "{ntype}" does not exist.')
        return self.num_dst_nodes() if ntype == "_V" else self.num_src_nodes()

    def num_src_nodes(self, ntype: str | None = None) -> int:
        """Count the sources ``N_src``."""
        return self._structure.num_src

    def num_dst_nodes(self, ntype: str | None = None) -> int:
        """Count the destinations ``N_dst``."""
        return self._structure.num_dst

    def num_edges(self, etype: str | None = None) -> int:
        """Count the edges ``E``."""
        return self._structure.num_edges

    number_of_nodes = num_nodes
    number_of_src_nodes = num_src_nodes
    number_of_dst_nodes = num_dst_nodes
    number_of_edges = num_edges

    def nodes(self) -> Tensor:
        """Ids of the nodes; a bipartite graph has `srcnodes` and `dstnodes` instead."""
        if not self.is_homogeneous:
            raise dgl_error("Graph: two sets of nodes; call srcnodes() or dstnodes()")
        return self.srcnodes()

    def srcnodes(self) -> Tensor:
        """Ids of the sources."""
        return torch.arange(self.num_src_nodes(), dtype=self._idtype, device=self.device)

    def dstnodes(self) -> Tensor:
        """Ids of the destinations."""
        return torch.arange(self.num_dst_nodes(), dtype=self._idtype, device=self.device)

    def edges(self, form: str = "uv", order: str | None = "eid", etype: Any = None) -> Any:
        """Return ends or ids of all edges.

        Parameters
        ----------
        form : {"uv", "eid", "all"}
            ``(src, dst)``, the edge ids, or ``(src, dst, eid)``; each of shape ``(E,)``.
        order : {"eid", "srcdst"}, optional
            By edge id, or by source and then destination.
        etype : str or triple of str, optional
            There is one relation only.

        Returns
        -------
        Tensor or tuple of Tensor
            In the dtype of the graph.
        """
        self.get_etype_id(etype)
        if form not in ("uv", "eid", "all"):
            raise dgl_error(f'Invalid form: {form}. Must be "all", "uv" or "eid".')
        if order not in ("eid", "srcdst", None):
            raise dgl_error(f"Graph: expected order 'eid' or 'srcdst', got {order!r}")
        if order == "srcdst":
            # Rows in order, and within a row the destinations, as the transpose visits them so.
            by_src = self._structure.out_adj
            src, dst, eid = by_src.rows(), by_src.indices, by_src.eids
        else:
            src, dst = self._structure.edges()
            eid = None
        if eid is None:
            eid = torch.arange(self.num_edges(), device=self.device)
        src, dst, eid = (part.to(self._idtype) for part in (src, dst, eid))
        return {"uv": (src, dst), "eid": eid, "all": (src, dst, eid)}[form]

    all_edges = edges

    def in_degrees(self, v: Any = None, etype: Any = None) -> Any:
        """In-degrees of the destinations, of all or of those named by `v`."""
        self.get_etype_id(etype)
        return self._pick(self._structure.in_degrees(), v)

    def out_degrees(self, u: Any = None, etype: Any = None) -> Any:
        """Out-degrees of the sources, of all or of those named by `u`."""
        self.get_etype_id(etype)
        return self._pick(self._structure.out_degrees(), u)

    def _pick(self, degrees: Tensor, ids: Any) -> Any:
        degrees = degrees.to(self._idtype)
        if ids is None or (isinstance(ids, str) and ids == _ALL):
            return degrees
        if isinstance(ids, int):
            return int(degrees[ids])
        return degrees[torch.as_tensor(ids, dtype=torch.int64, device=self.device)]
