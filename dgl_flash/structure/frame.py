"""Feature frames of the container: dictionaries that know how many rows they must have."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING

from torch import Tensor

from dgl_flash.errors import dgl_error

if TYPE_CHECKING:
    from dgl_flash.structure.container import Graph

Columns = dict[str, Tensor]


class FrameView(MutableMapping[str, Tensor]):
    """What ``g.ndata``, ``g.srcdata``, ``g.dstdata`` and ``g.edata`` return.

    A view asks the graph for its columns on each access, so that one taken before a
    ``local_scope`` follows it in and out, as in DGL.

    Parameters
    ----------
    graph : Graph
        The graph that owns the features.
    frame : {"src", "dst", "edge"}
        Which of its frames.
    """

    __slots__ = ("_frame", "_graph")

    def __init__(self, graph: Graph, frame: str):
        self._graph = graph
        self._frame = frame

    @property
    def _columns(self) -> Columns:
        return self._graph._frames[self._frame]

    def __getitem__(self, name: str) -> Tensor:
        return self._columns[name]

    def __setitem__(self, name: str, feat: Tensor) -> None:
        check_feature(self._graph, self._frame, name, feat)
        self._columns[name] = feat

    def __delitem__(self, name: str) -> None:
        del self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def __repr__(self) -> str:
        return repr(self._columns)


def check_feature(graph: Graph, frame: str, name: str, feat: Tensor) -> None:
    """Refuse a feature that does not belong to the graph, in DGL's words.

    Parameters
    ----------
    graph : Graph
        The graph that would own it.
    frame : {"src", "dst", "edge"}
        Which of its frames.
    name : str
        Name of the feature.
    feat : Tensor
        Shape ``(rows of the frame, ...)``, on the device of the graph.

    Raises
    ------
    TypeError
        `feat` is not a tensor.
    dgl.DGLError
        Its length or device is not that of the graph.
    """
    what = "edge" if frame == "edge" else "node"
    if not isinstance(feat, Tensor):
        raise TypeError(
            f"Graph: expected {what} feature `{name}` as a tensor, got {type(feat).__name__}"
        )
    rows = {
        "src": graph.num_src_nodes,
        "dst": graph.num_dst_nodes,
        "edge": graph.num_edges,
    }[frame]()
    length = feat.shape[0] if feat.dim() else 0
    if feat.dim() == 0 or length != rows:
        raise dgl_error(
            f"Expect number of features to match number of {what}s. "
            f"Got {length} and {rows} instead."
        )
    if feat.device != graph.device:
        raise dgl_error(
            f'Cannot assign {what} feature "{name}" on device {feat.device} to a graph on '
            f"device {graph.device}. Call Graph.to() to copy the graph to the same device."
        )
