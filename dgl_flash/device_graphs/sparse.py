"""Message passing on a device: what DGL asks of its sparse functions, done by ``dgl_flash.ops``.

DGL's own remain for tensors on the host, and for what is rare enough to go over the host.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.structure import GraphStructure
from dgl_flash.structure.dgl_reader import dgl_structure


def sparse_functions() -> Iterator[tuple[Any, str, Any]]:
    """Module, name and replacement, wherever DGL has bound its sparse functions."""
    for name, replacements in _REPLACEMENTS.items():
        # Not by an attribute: `dgl.ops.edge_softmax` is the function, not its module.
        module = importlib.import_module(name)
        for bound, mine in replacements.items():
            yield module, bound, _either(vars(module)[bound], mine)


def _either(theirs: Callable[..., Any], mine: Callable[..., Any]) -> Callable[..., Any]:
    """Ours for tensors on a device, DGL's for those on the host."""

    def call(*arguments: Any, **named: Any) -> Any:
        on_device = _any_on_device(arguments) or _any_on_device(named.values())
        return (mine if on_device else theirs)(*arguments, **named)

    call.__name__, call.__doc__ = theirs.__name__, theirs.__doc__
    return call


def _any_on_device(values: Iterable[Any]) -> bool:
    for value in values:
        if isinstance(value, Tensor):
            if value.device.type != "cpu":
                return True
        elif isinstance(value, (list, tuple)):
            if _any_on_device(value):
                return True
        elif isinstance(value, Mapping) and _any_on_device(value.values()):
            return True
    return False


def _gspmm(g: Any, op: str, reduce_op: str, lhs_data: Any, rhs_data: Any) -> Any:
    return ops.gspmm(g, op, reduce_op, lhs_data, rhs_data)


def _gsddmm(
    g: Any, op: str, lhs_data: Any, rhs_data: Any, lhs_target: str = "u", rhs_target: str = "v"
) -> Any:
    return ops.gsddmm(g, op, lhs_data, rhs_data, lhs_target, rhs_target)


def _edge_softmax(gidx: Any, logits: Tensor, eids: Any = None, norm_by: str = "dst") -> Any:
    struct = _structure(gidx, logits)
    if isinstance(eids, Tensor):
        return ops.edge_softmax(struct, logits, eids, norm_by)
    return ops.edge_softmax(struct, logits, norm_by=norm_by)


def _edge_softmax_hetero(gidx: Any, eids: Any, norm_by: str, *logits: Tensor | None) -> Any:
    if isinstance(eids, Tensor):
        raise dgl_error(
            "edge_softmax: expected all edges of a graph of several types, got `eids`; take the "
            "relation first: edge_softmax(graph[etype], scores, eids)"
        )
    graph = graph_of(gidx)
    given = zip(graph.canonical_etypes, logits, strict=True)
    scores = {etype: score for etype, score in given if score is not None}
    found = ops.edge_softmax(graph, scores, norm_by=norm_by)
    return tuple(found.get(etype) for etype in graph.canonical_etypes)


def _structure(gidx: Any, operand: Tensor) -> GraphStructure:
    """Of the only relation, on the device of the operand, kept with the index object."""
    known = gidx._cache.get("dgl_flash", {}).get(("structures", 0), {}).get(operand.device)
    return known if known is not None else dgl_structure(graph_of(gidx), operand.device, None)


def graph_of(gidx: Any) -> Any:
    """An index object as a graph whose types are numbered."""
    from dgl import DGLGraph

    ntypes = [str(i) for i in range(gidx.number_of_ntypes())]
    return DGLGraph(gidx, ntypes, [str(i) for i in range(gidx.number_of_etypes())])


def _segment_reduce(seglen: Tensor, value: Tensor, reducer: str = "sum") -> Tensor:
    """The lengths of a batch are one tensor as long as it lives: what they tell is kept."""
    return ops.segment_reduce(seglen, value, reducer)


def _segment_softmax(seglen: Tensor, value: Tensor) -> Tensor:
    return ops.segment_softmax(seglen, value)


def _segment_mm(A: Tensor, B: Tensor, seglen_A: Tensor) -> Tensor:
    return ops.segment_mm(A, B, seglen_A)


def _gather_mm(A: Tensor, B: Tensor, idx_A: Tensor | None = None, idx_B: Any = None) -> Tensor:
    return ops.gather_mm(A if idx_A is None else A[idx_A.long()], B, idx_b=idx_B)


_REPLACEMENTS: dict[str, dict[str, Callable[..., Any]]] = {
    "dgl.ops": {
        "gspmm": _gspmm,
        "gsddmm": _gsddmm,
        "segment_reduce": _segment_reduce,
        "segment_softmax": _segment_softmax,
    },
    "dgl.ops.segment": {"segment_reduce": _segment_reduce, "segment_softmax": _segment_softmax},
    "dgl.ops.spmm": {"gspmm": _gspmm},
    "dgl.ops.sddmm": {"gsddmm": _gsddmm},
    # Many modules have bound `edge_softmax` itself, which calls these.
    "dgl.ops.edge_softmax": {
        "edge_softmax_internal": _edge_softmax,
        "edge_softmax_hetero_internal": _edge_softmax_hetero,
    },
    "dgl.backend": {
        "segment_mm": _segment_mm,
        "gather_mm": _gather_mm,
    },
}
