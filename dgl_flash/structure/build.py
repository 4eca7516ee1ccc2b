"""`dgl_flash.graph`: the constructor of the container."""

from __future__ import annotations

from typing import Any

import torch

from dgl_flash.structure import checks
from dgl_flash.structure.container import Graph
from dgl_flash.structure.sources import NodeCounts, build_structure, read_source


def graph(
    data: Any,
    *,
    num_nodes: int | None = None,
    num_src_nodes: int | None = None,
    num_dst_nodes: int | None = None,
    block: bool = False,
    idtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Graph:
    """Build a graph from edges in any common format.

    Parameters
    ----------
    data : tuple, Tensor, array, matrix or graph
        Edges ``u -> v``, as one of

        - ``(src, dst)`` or ``("coo", (src, dst))``: two tensors, arrays or lists of ids;
        - ``("csr", (indptr, indices, eids))``: rows are sources; ``("csc", ...)``: rows are
          destinations; empty `eids` number the edges in the order of `indices`;
        - a tensor or array of shape ``(2, E)``, PyG's ``edge_index``;
        - a PyG ``Data`` or any object with an ``edge_index``, whose ``num_nodes`` is read too;
        - a SciPy or torch sparse matrix, COO, CSR or CSC: an entry ``A[i, j]`` is an edge
          ``i -> j``, as in ``dgl.from_scipy``; values are not read, stored zeros are edges;
        - a networkx graph: nodes in the order of their sorted labels, an undirected edge in both
          directions, as in ``dgl.from_networkx``.
    num_nodes : int, optional
        Number of nodes ``N``; default: that of the format, or the largest id plus one.
    num_src_nodes, num_dst_nodes : int, optional
        Passing either makes a bipartite graph, whose sources and destinations are two sets of
        ``N_src`` and ``N_dst`` nodes.
    block : bool, optional
        The destinations are the first ``N_dst`` sources, as in a DGL block: layers then take the
        features of both from one tensor. Needs `num_src_nodes` and `num_dst_nodes`.
    idtype : torch.dtype, optional
        int32 or int64, the dtype of the ids that the graph returns; default: that of `data`.
    device : torch.device or str, optional
        Default: the device of `data`.

    Returns
    -------
    Graph
        A new graph without features.

    Raises
    ------
    TypeError
        Unknown format, ids that are not integers.
    ValueError
        Ids out of range, lengths that differ, malformed `indptr` or `eids`.

    Examples
    --------
    >>> import dgl_flash
    >>> g = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> g.num_nodes(), g.in_degrees()
    (3, tensor([1, 1, 1]))
    """
    if idtype not in (None, torch.int32, torch.int64):
        raise TypeError(f"graph: expected `idtype` torch.int32 or torch.int64, got {idtype}")
    num_nodes = checks.as_count(num_nodes, "num_nodes")
    num_src = checks.as_count(num_src_nodes, "num_src_nodes")
    num_dst = checks.as_count(num_dst_nodes, "num_dst_nodes")
    pair = num_src is not None or num_dst is not None
    if pair and num_nodes is not None:
        raise ValueError(
            "graph: expected `num_nodes` or the pair `num_src_nodes`, `num_dst_nodes`, got both"
        )
    if block and (num_src is None or num_dst is None or num_dst > num_src):
        raise ValueError(
            "graph: expected num_src_nodes >= num_dst_nodes for a block, "
            f"got num_src_nodes={num_src}, num_dst_nodes={num_dst}"
        )
    counts = NodeCounts(num_src, num_dst, True) if pair else NodeCounts(num_nodes, num_nodes, False)
    structure, found_idtype = build_structure(read_source(data), counts)
    if device is not None:
        structure = structure.to(device)
    kind = "block" if block else "bipartite" if pair else "homogeneous"
    return Graph(structure, kind, idtype or found_idtype)
