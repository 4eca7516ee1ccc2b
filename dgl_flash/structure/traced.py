"""Structures inside ``torch.compile``: tensors in the traced graph, found again when it runs.

A traced graph holds tensors and numbers only. An op therefore receives the compressed edges of a
structure (:func:`edge_tensors`) and looks the structure up by them, with all that is cached there
(:func:`find`). Building a structure is left outside: it breaks the graph, before any op.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from dgl_flash.structure.adjacency import Adjacency

if TYPE_CHECKING:
    from dgl_flash.structure.graph_structure import GraphStructure

CAN_TRACE = hasattr(torch.library, "custom_op")  # torch 2.4; before, an op breaks the graph
# The compiler's CUDA graphs replay on copies of their inputs, by which no structure is found: the
# ops stay outside. The tag came with torch 2.8.
OUTSIDE_CUDA_GRAPHS: dict[str, Any] = (
    {"tags": (torch.Tag.cudagraph_unsafe,)} if hasattr(torch.Tag, "cudagraph_unsafe") else {}
)
EDGE_SCHEMA = "Tensor indptr, Tensor indices, Tensor? eids, SymInt num_cols, bool by_dst"

_edges_by_indptr: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()


class EdgeTensors(NamedTuple):
    """One adjacency of a structure, in the order of ``EDGE_SCHEMA``."""

    indptr: Tensor
    indices: Tensor
    eids: Tensor | None
    num_cols: int
    by_dst: bool  # whether rows are destinations

    @property
    def num_dst(self) -> Any:
        """Number of destinations, symbolic while tracing."""
        return self.indptr.shape[0] - 1 if self.by_dst else self.num_cols

    @property
    def num_src(self) -> Any:
        """Number of sources, symbolic while tracing."""
        return self.num_cols if self.by_dst else self.indptr.shape[0] - 1

    def reverse(self) -> EdgeTensors:
        """The same edges seen the other way round."""
        return self._replace(by_dst=not self.by_dst)


def is_tracing() -> bool:
    """Whether ``torch.compile`` is looking, so that ops must be what it can put into a graph."""
    return CAN_TRACE and torch.compiler.is_compiling()


def outside_trace(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate what ``torch.compile`` must call and not follow.

    The same as ``torch.compiler.disable``, which would import the whole compiler at once (two
    seconds); this form waits for the first call, so call it only where ``is_tracing()``.
    """
    return torch._disable_dynamo(function)


def edge_tensors(struct: GraphStructure) -> EdgeTensors:
    """What a traced op receives of a structure."""
    side, adjacency = struct._edges.known()
    by_dst = side == struct._dst_side
    return EdgeTensors(
        adjacency.indptr, adjacency.indices, adjacency.eids, adjacency.num_cols, by_dst
    )


def register(edges: Any) -> None:
    """Let :func:`find` find the edges of a structure for as long as they live."""
    _edges_by_indptr[id(edges.known()[1].indptr)] = edges


def find(edges: EdgeTensors) -> GraphStructure:
    """The structure that the tensors belong to; built anew if it is gone or they are copies."""
    from dgl_flash.structure.graph_structure import GraphStructure

    known = _edges_by_indptr.get(id(edges.indptr))
    if known is None or known.known()[1].indptr is not edges.indptr:
        if edges.indptr.is_cuda and torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "dgl_flash: a compiled model is being captured into a CUDA graph together with "
                "copies of its graph, whose rows the host has not seen; compile it without "
                "mode='reduce-overhead', or capture the uncompiled model with torch.cuda.graph"
            )
        adjacency = Adjacency(edges.indptr, edges.indices, edges.eids, edges.num_cols)
        found = GraphStructure.from_adjacency(adjacency)
        return found if edges.by_dst else found.reverse()
    side, _ = known.known()
    return GraphStructure(known, side if edges.by_dst else 1 - side)


def ends(struct: GraphStructure) -> tuple[Tensor, Tensor]:
    """``struct.edges()`` as an op."""
    return _ends(*edge_tensors(struct))


def degree_scale(struct: GraphStructure, side: str, exponent: float, dtype: torch.dtype) -> Tensor:
    """``struct.degree_scale(...)`` as an op."""
    return _degree_scale(*edge_tensors(struct), side, exponent, dtype)


def in_degrees(struct: GraphStructure) -> Tensor:
    """``struct.in_degrees()`` as an op."""
    return _in_degrees(*edge_tensors(struct))


if CAN_TRACE:
    # An op owns what it returns: cached tensors go out as copies.

    @torch.library.custom_op(
        "dgl_flash::ends",
        mutates_args=(),
        schema=f"({EDGE_SCHEMA}) -> (Tensor, Tensor)",
        **OUTSIDE_CUDA_GRAPHS,
    )
    def _ends(*edges: Any) -> tuple[Tensor, Tensor]:
        src, dst = find(EdgeTensors(*edges)).edges()
        return src.clone(), dst.clone()

    @_ends.register_fake
    def _(indptr: Tensor, indices: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
        end = torch.empty_like(indices, dtype=torch.int64)
        return end, torch.empty_like(end)

    @torch.library.custom_op(
        "dgl_flash::in_degrees",
        mutates_args=(),
        schema=f"({EDGE_SCHEMA}) -> Tensor",
        **OUTSIDE_CUDA_GRAPHS,
    )
    def _in_degrees(*edges: Any) -> Tensor:
        return find(EdgeTensors(*edges)).in_degrees().clone()

    @_in_degrees.register_fake
    def _(*given: Any) -> Tensor:
        edges = EdgeTensors(*given)
        return edges.indptr.new_empty((edges.num_dst,))

    @torch.library.custom_op(
        "dgl_flash::degree_scale",
        mutates_args=(),
        schema=f"({EDGE_SCHEMA}, str side, float exponent, ScalarType dtype) -> Tensor",
        **OUTSIDE_CUDA_GRAPHS,
    )
    def _degree_scale(*arguments: Any) -> Tensor:
        *edges, side, exponent, dtype = arguments
        return find(EdgeTensors(*edges)).degree_scale(side, exponent, dtype).clone()

    @_degree_scale.register_fake
    def _(*arguments: Any) -> Tensor:
        *given, side, _, dtype = arguments
        edges = EdgeTensors(*given)
        size = edges.num_dst if side == "dst" else edges.num_src
        return edges.indptr.new_empty((size,), dtype=dtype)
