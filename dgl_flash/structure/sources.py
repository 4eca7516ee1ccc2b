"""Readers of the formats that `dgl_flash.graph` accepts; none of their libraries is imported."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dgl_flash.structure import checks
from dgl_flash.structure.adjacency import Adjacency, choose_index_dtype
from dgl_flash.structure.graph_structure import GraphStructure


class NodeCounts(NamedTuple):
    """Numbers of nodes as the caller or the format gave them; None is not given."""

    src: int | None
    dst: int | None
    pair: bool  # two node sets, or one

    def names(self) -> tuple[str, str]:
        """Arguments of `dgl_flash.graph` that set the two numbers."""
        return ("num_src_nodes", "num_dst_nodes") if self.pair else ("num_nodes", "num_nodes")


class EdgeSource(NamedTuple):
    """Edges in one of three formats, unchecked, and the size that the format itself tells."""

    fmt: str  # "coo": (src, dst); "csr" and "csc": (indptr, indices, eids)
    arrays: tuple[Any, ...]
    num_src: int | None = None
    num_dst: int | None = None


def read_source(data: Any) -> EdgeSource:
    """Recognise the format of `data`.

    Parameters
    ----------
    data : Any
        One of the forms listed at `dgl_flash.graph`.

    Returns
    -------
    EdgeSource
        Unchecked arrays.

    Raises
    ------
    TypeError
        No known format.
    """
    if isinstance(data, tuple) and len(data) == 2:
        return _read_tuple(*data)
    if isinstance(data, Tensor) and data.layout != torch.strided:
        return _read_torch_sparse(data)
    if isinstance(data, Tensor) or type(data).__module__ == "numpy":
        return _read_edge_index(data, "data")
    if hasattr(data, "edge_index"):  # torch_geometric.data.Data and what looks like it
        num_nodes = getattr(data, "num_nodes", None)
        return _read_edge_index(data.edge_index, "edge_index")._replace(
            num_src=num_nodes, num_dst=num_nodes
        )
    if hasattr(data, "tocoo") and hasattr(data, "format"):
        return _read_scipy(data)
    if hasattr(data, "edges") and hasattr(data, "is_directed"):
        return _read_networkx(data)
    raise TypeError(
        "graph: expected a tuple (src, dst), an edge_index of shape (2, E), a SciPy or torch "
        f"sparse matrix, a networkx graph or PyG data, got {type(data).__name__}"
    )


def _read_tuple(first: Any, second: Any) -> EdgeSource:
    if not isinstance(first, str):
        return EdgeSource("coo", (first, second))
    sizes = {"coo": 2, "csr": 3, "csc": 3}
    if first not in sizes:
        raise ValueError(f"graph: expected format 'coo', 'csr' or 'csc', got {first!r}")
    if len(second) != sizes[first]:
        raise ValueError(
            f"graph: expected {sizes[first]} arrays for format {first!r}, got {len(second)}"
        )
    return EdgeSource(first, tuple(second))


def _read_edge_index(edge_index: Any, name: str) -> EdgeSource:
    shape = tuple(edge_index.shape)
    if len(shape) != 2 or shape[0] != 2:
        raise ValueError(
            f"graph: expected `{name}` of shape (2, E), got {shape}; row 0 holds the sources, "
            "row 1 the destinations"
        )
    return EdgeSource("coo", (edge_index[0], edge_index[1]))


def _read_torch_sparse(matrix: Tensor) -> EdgeSource:
    num_src, num_dst = _two_dimensions(tuple(matrix.shape))
    if matrix.layout == torch.sparse_coo:
        src, dst = matrix._indices()  # uncoalesced too: repeated entries are multi-edges
        return EdgeSource("coo", (src, dst), num_src, num_dst)
    if matrix.layout == torch.sparse_csr:
        arrays = (matrix.crow_indices(), matrix.col_indices(), ())
        return EdgeSource("csr", arrays, num_src, num_dst)
    if matrix.layout == torch.sparse_csc:
        arrays = (matrix.ccol_indices(), matrix.row_indices(), ())
        return EdgeSource("csc", arrays, num_src, num_dst)
    raise TypeError(f"graph: expected layout COO, CSR or CSC, got {matrix.layout}")


def _read_scipy(matrix: Any) -> EdgeSource:
    num_src, num_dst = _two_dimensions(matrix.shape)
    if matrix.format in ("csr", "csc"):
        arrays = (matrix.indptr, matrix.indices, ())
        return EdgeSource(matrix.format, arrays, num_src, num_dst)
    matrix = matrix.tocoo()
    return EdgeSource("coo", (matrix.row, matrix.col), num_src, num_dst)


def _two_dimensions(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise ValueError(f"graph: expected a matrix of two dimensions, got shape {shape}")
    return shape[0], shape[1]


def _read_networkx(nx_graph: Any) -> EdgeSource:
    """Nodes are numbered in the order of their sorted labels, as in ``dgl.from_networkx``.

    An undirected edge becomes two directed ones. Edges are numbered by source, in the order of
    the nodes, and for one source in the order in which its neighbours first come up.
    """
    try:
        labels = sorted(nx_graph)
    except TypeError:
        raise TypeError(
            "graph: expected networkx labels that can be sorted, got a mix of types; "
            "relabel with networkx.convert_node_labels_to_integers"
        ) from None
    number = {label: index for index, label in enumerate(labels)}
    both_ways = not nx_graph.is_directed()
    repeats: dict[int, Counter[int]] = {number[label]: Counter() for label in nx_graph}
    for first, second in nx_graph.edges():
        u, v = number[first], number[second]
        repeats[u][v] += 1
        if both_ways and u != v:
            repeats[v][u] += 1
    src: list[int] = []
    dst: list[int] = []
    for u, neighbours in repeats.items():
        src.extend([u] * neighbours.total())
        dst.extend(neighbours.elements())
    return EdgeSource("coo", (src, dst), len(number), len(number))


def build_structure(source: EdgeSource, counts: NodeCounts) -> tuple[GraphStructure, torch.dtype]:
    """Check the arrays of a source and compress them.

    Parameters
    ----------
    source : EdgeSource
        What `read_source` found.
    counts : NodeCounts
        What the caller asked for.

    Returns
    -------
    structure : GraphStructure
        On the device of the arrays.
    idtype : torch.dtype
        int32 or int64, that of the arrays.
    """
    counts = _merge_counts(source, counts)
    if source.fmt == "coo":
        return _build_from_coo(source.arrays, counts)
    return _build_from_compressed(source.fmt, source.arrays, counts)


def _merge_counts(source: EdgeSource, counts: NodeCounts) -> NodeCounts:
    """Fill what the caller left out with the size that the format tells."""
    num_src = source.num_src if counts.src is None else counts.src
    num_dst = source.num_dst if counts.dst is None else counts.dst
    if not counts.pair and num_src != num_dst:
        raise ValueError(
            f"graph: expected a square matrix, got shape ({num_src}, {num_dst}); pass "
            f"num_src_nodes={num_src}, num_dst_nodes={num_dst} for two sets of nodes"
        )
    return NodeCounts(num_src, num_dst, counts.pair)


def _build_from_coo(
    arrays: tuple[Any, ...], counts: NodeCounts
) -> tuple[GraphStructure, torch.dtype]:
    src, dst = checks.as_ids(arrays[0], "src"), checks.as_ids(arrays[1], "dst")
    checks.check_same_length(src, dst)
    src_range, dst_range = checks.id_range(src), checks.id_range(dst)
    num_src, num_dst = _infer(counts, src_range[1] + 1, dst_range[1] + 1)
    src_name, dst_name = counts.names()
    checks.check_ids(src, "src", num_src, src_range, src_name)
    checks.check_ids(dst, "dst", num_dst, dst_range, dst_name)
    return GraphStructure.from_coo(src, dst, num_src, num_dst), _id_dtype(src, dst)


def _infer(counts: NodeCounts, seen_src: int, seen_dst: int) -> tuple[int, int]:
    """Largest id plus one where no number is given; one number for both ends of one set."""
    if not counts.pair:
        seen_src = seen_dst = max(seen_src, seen_dst)
    num_src = max(seen_src, 0) if counts.src is None else counts.src
    num_dst = max(seen_dst, 0) if counts.dst is None else counts.dst
    return num_src, num_dst


def _build_from_compressed(
    fmt: str, arrays: tuple[Any, ...], counts: NodeCounts
) -> tuple[GraphStructure, torch.dtype]:
    indptr, indices = checks.as_ids(arrays[0], "indptr"), checks.as_ids(arrays[1], "indices")
    eids = checks.as_ids(arrays[2], "eids") if len(arrays[2]) else None
    by_src = fmt == "csr"
    names = counts.names() if by_src else counts.names()[::-1]
    num_rows, num_cols = (counts.src, counts.dst) if by_src else (counts.dst, counts.src)
    checks.check_indptr(indptr, indices.numel(), num_rows, names[0])
    found = checks.id_range(indices)
    if num_cols is None:
        num_cols = max(found[1] + 1, 0) if counts.pair else indptr.numel() - 1
    checks.check_ids(indices, "indices", num_cols, found, names[1])
    if eids is not None:
        checks.check_eids(eids, indices.numel())
    # Copied even where the dtype is right: the caller's matrix may be sorted or changed in place.
    dtype = choose_index_dtype(indptr.numel() - 1, num_cols, indices.numel())
    indptr_copy, indices_copy = (part.to(dtype, copy=True) for part in (indptr, indices))
    eids_copy = None if eids is None else eids.to(dtype, copy=True)
    adjacency = Adjacency(indptr_copy, indices_copy, eids_copy, num_cols)
    if by_src:  # transposed at once: the host then knows the in-degrees of a CPU graph
        built = GraphStructure.from_adjacency(adjacency.transpose(), adjacency)
    else:
        built = GraphStructure.from_adjacency(adjacency)
    return built, _id_dtype(indptr, indices)


def _id_dtype(first: Tensor, second: Tensor) -> torch.dtype:
    both_short = first.dtype == second.dtype == torch.int32
    return torch.int32 if both_short else torch.int64
