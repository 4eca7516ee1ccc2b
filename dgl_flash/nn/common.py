"""What every convolution does before it computes."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.structure import GraphStructure, structure

# Word for word DGL's, so that whoever matches on it keeps working.
ZERO_IN_DEGREE = (
    "There are 0-in-degree nodes in the graph, output for those nodes will be invalid. "
    "This is harmful for some applications, causing silent performance regression. "
    "Adding self-loop on the input graph by calling `g = dgl.add_self_loop(g)` will resolve "
    "the issue. Setting ``allow_zero_in_degree`` to be `True` when constructing this module will "
    "suppress the check and let the code run."
)


def read_graph(
    layer: nn.Module,
    graph: Any,
    feat: Any,
    allow_zero_in_degree: bool = True,
    rows: Literal["nodes", "edges"] = "nodes",
) -> GraphStructure:
    """Read a graph once, on the device of the features.

    Parameters
    ----------
    layer : nn.Module
        Who asks; errors start with its class.
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph, on any device.
    feat : Tensor or pair of Tensor
        Features; the first of a pair decides on the device.
    allow_zero_in_degree : bool
        Accept nodes without in-edges.
    rows : {"nodes", "edges"}
        What ``feat`` has rows of: sources (and destinations, the second of a pair), or edges.

    Returns
    -------
    GraphStructure
        On the device of ``feat``, cached with the graph.

    Raises
    ------
    TypeError
        If ``graph`` is no graph, as in ``conv(feat, graph)``, or ``feat`` no tensor.
    DGLError
        If there are nodes without in-edges and they are not allowed, or too many or few rows.
    """
    first = feat[0] if isinstance(feat, tuple) else feat
    name = type(layer).__name__
    struct = structure(graph, getattr(first, "device", None), op=name)
    if not isinstance(first, Tensor):
        raise TypeError(
            f"{name}: expected a tensor or a tuple of two tensors as features, "
            f"got {type(first).__name__}; pass torch.as_tensor(...)"
        )
    if not allow_zero_in_degree and struct.has_zero_in_degree:
        raise dgl_error(ZERO_IN_DEGREE)
    if rows == "edges":
        require_rows(first, struct.num_edges, "edges")
        return struct
    require_rows(first, struct.num_src)
    if isinstance(feat, tuple) and len(feat) == 2 and isinstance(feat[1], Tensor):
        require_rows(feat[1], struct.num_dst)
    return struct


def computes_as(module: Any, kind: type[nn.Module]) -> bool:
    """Whether a call of a sub-module does what its class does, and nothing else.

    If so, a layer may compute from its parameters in a way of its own. If not, it has to call the
    module: pruning, weight normalisation and adapters hook into the call or replace the module.

    Parameters
    ----------
    module : nn.Module
        The sub-module; one with a parametrization still is of its kind.
    kind : type
        The class that the layer has put there.

    Returns
    -------
    bool
        False with hooks, and for another ``forward``.
    """
    hooks = (
        module._forward_pre_hooks,
        module._forward_hooks,
        module._backward_pre_hooks,
        module._backward_hooks,
    )
    return type(module).forward is kind.forward and not any(hooks)


def require_one_node_set(layer: nn.Module, graph: Any) -> None:
    """Refuse graphs whose sources and destinations differ, where DGL's layer cannot read them.

    Parameters
    ----------
    layer : nn.Module
        Who asks; the error starts with its class.
    graph : DGLGraph, DGLBlock, dgl_flash.Graph or GraphStructure
        The graph. A structure knows no node sets and passes.

    Raises
    ------
    DGLError
        If the graph is a block, bipartite or has several types.
    """
    if not getattr(graph, "is_homogeneous", True):
        raise dgl_error(
            f"{type(layer).__name__}: expected a homogeneous graph, got one with several sets of "
            "nodes, such as a block; pass dgl.to_homogeneous(graph)"
        )


def degree_scale(struct: GraphStructure, side: str, exponent: float, feat: Tensor) -> Tensor:
    """``max(degree, 1) ** exponent`` as a factor for ``ops.spmm``.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    side : {"src", "dst"}
        Out-degrees of the sources, or in-degrees of the destinations.
    exponent : float
        -1 or -0.5.
    feat : Tensor
        What will be multiplied.

    Returns
    -------
    Tensor
        (N,), float64 for float64 features, else float32: a half type would round the factor,
        although the sum is made in float32.
    """
    wide = torch.float64 if feat.dtype == torch.float64 else torch.float32
    return struct.degree_scale(side, exponent, wide)


def expand_as_pair(input_: Any, g: Any = None) -> tuple[Any, Any]:
    """Split into a source and a destination part, as ``dgl.utils.expand_as_pair`` does.

    Parameters
    ----------
    input_ : Any
        A pair is returned as it is; anything else stands for both sides.
    g : DGLGraph, optional
        On a block, whose destinations are its first sources, the second part of a tensor (or of a
        dict of tensors by node type) is cut to the destinations.

    Returns
    -------
    tuple
        Source and destination part.

    Notes
    -----
    **Fused path.** There is none: nothing is computed.
    """
    if isinstance(input_, tuple):
        return input_
    if not getattr(g, "is_block", False):
        return input_, input_
    if isinstance(input_, dict):
        return input_, {key: part[: g.num_dst_nodes(key)] for key, part in input_.items()}
    return input_, input_[: g.num_dst_nodes()]


def as_floats(feat: Tensor) -> Tensor:
    """Turn integers into floats, as they do in DGL when they meet the factors of the degrees.

    Parameters
    ----------
    feat : Tensor
        Features; those of another dtype than an integer one are returned as they are.

    Returns
    -------
    Tensor
        The same shape.
    """
    if feat.is_floating_point() or feat.is_complex() or feat.dtype == torch.bool:
        return feat
    return feat.to(torch.get_default_dtype())


def register_residual(
    layer: nn.Module, in_feats: int, out_feats: int, residual: bool, bias: bool
) -> None:
    """Give a layer ``res_fc`` and ``bias``, what is added once it has aggregated.

    What is absent is registered as a buffer ``None``, as in DGL.

    Parameters
    ----------
    layer : nn.Module
        Who receives them, not yet initialised.
    in_feats : int
        Width of the destinations' features.
    out_feats : int
        Output width. A residual of this width already is not projected.
    residual, bias : bool
        Whether there is one.
    """
    if not residual:
        layer.register_buffer("res_fc", None)
    elif in_feats == out_feats:
        layer.res_fc = nn.Identity()
    else:
        layer.res_fc = nn.Linear(in_feats, out_feats, bias=False)
    if bias:
        layer.bias = nn.Parameter(torch.empty(out_feats))
    else:
        layer.register_buffer("bias", None)


def reduce_neighbors(
    struct: GraphStructure, reduce_op: str, feat: Tensor, edge_weight: Tensor | None
) -> Tensor:
    """Reduce the features of the sources of each destination, times edge weights if there are any.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    reduce_op : {"sum", "mean", "max", "min"}
        The reducer.
    feat : Tensor
        (N_src, ...)
    edge_weight : Tensor, optional
        (E,), or (E, ...) aligned with the last dimensions of the features.

    Returns
    -------
    Tensor
        (N_dst, ...)
    """
    op = "copy_lhs" if edge_weight is None else "mul"
    return ops.gspmm(struct, op, reduce_op, feat, edge_weight)


def require_rows(feat: Any, count: int, kind: str = "nodes (len(u))") -> None:
    """Refuse features that have not one row for each node or edge, in DGL's words.

    Parameters
    ----------
    feat : Tensor
        Features.
    count : int
        How many rows there must be.
    kind : {"nodes (len(u))", "edges"}
        Of what; the error says it.

    Raises
    ------
    DGLError
        If there are more or fewer.
    TypeError
        If it is no tensor.
    """
    if not isinstance(feat, Tensor):
        raise TypeError(
            f"expected a tensor with one row for each of the {count} {kind}, "
            f"got {type(feat).__name__}; pass torch.as_tensor(...)"
        )
    rows = feat.shape[0] if feat.dim() > 0 else 1
    if rows != count:
        raise dgl_error(
            f"Expect number of features to match number of {kind}. Got {rows} and {count} instead."
        )


def centre_of(feat: Tensor) -> Tensor:
    """Mean of all rows, to subtract where differences of rows decide.

    What is the same with any other centre stays exact far from 0, and has no derivative here.

    Parameters
    ----------
    feat : Tensor
        (N, ...)

    Returns
    -------
    Tensor
        (...), 0 where the mean is not finite, so that no row spoils the others.
    """
    return feat.detach().mean(dim=0).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def check_eq_shape(value: Any) -> None:
    """Refuse a pair whose parts have rows of different shapes, as DGL does.

    Parameters
    ----------
    value : Tensor or pair of Tensor
        Features; a tensor passes.

    Raises
    ------
    DGLError
        If the shapes differ, in DGL's words and with DGL's spaces.
    """
    src, dst = (tuple(part.shape[1:]) for part in expand_as_pair(value))
    if src != dst:
        gap = " " * 13
        raise dgl_error(
            f"The feature shape of source nodes: {src}{gap}should be equal to the feature shape "
            f"of destination{gap}nodes: {dst}."
        )


def read_dense(layer: nn.Module, adj: Any, feat: Any, square: bool = False) -> Tensor:
    """Check an adjacency matrix, and convert it to the dtype and device of the features.

    Parameters
    ----------
    layer : nn.Module
        Who asks; errors start with its class.
    adj : Tensor
        (N_dst, N_src)
    feat : Tensor or pair of Tensor
        Features; the first of a pair are those of the sources.
    square : bool
        Whether N_dst must be N_src.

    Returns
    -------
    Tensor
        (N_dst, N_src)

    Raises
    ------
    TypeError
        If the adjacency, or the features, are no tensor.
    ValueError
        If the adjacency is no dense matrix that fits the features.
    """
    first = feat[0] if isinstance(feat, tuple) else feat
    name = type(layer).__name__
    for argument, value in (("adj", adj), ("feat", first)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"{name}: expected `{argument}` to be a tensor, got {type(value).__name__}; a "
                f"dense layer takes the adjacency matrix, row = destination, and the features"
            )
    if adj.layout != torch.strided:
        raise ValueError(
            f"{name}: expected `adj` to be a dense tensor, got layout {adj.layout}; pass "
            f"adj.to_dense(), or a graph to the layer without `Dense` in its name"
        )
    rows = first.shape[0] if first.dim() else 0
    fits = adj.dim() == 2 and adj.shape[1] == rows and (not square or adj.shape[0] == rows)
    if not fits:
        wanted = f"({rows}, {rows})" if square else f"(N_dst, {rows})"
        raise ValueError(
            f"{name}: expected `adj` of shape (N_dst, N_src) = {wanted}, got {tuple(adj.shape)} "
            f"with `feat` {tuple(first.shape)}; did you swap `adj` and `feat`?"
        )
    return adj.to(first)
