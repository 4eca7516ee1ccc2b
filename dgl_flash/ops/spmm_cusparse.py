"""Sums over neighbour rows by cuSPARSE: the choice, settled once for a graph, and the call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.kernels import cusparse, tuned
from dgl_flash.ops.choose_spmm import CUSPARSE, KERNEL, Sum, can_be_cusparse, spmm_backend
from dgl_flash.ops.rows import tuned_key
from dgl_flash.streams import current_stream_pointer

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency


def uses_cusparse(
    adjacency: Adjacency,
    dtype: torch.dtype,
    width: int,
    edge_weight: Tensor | None,
    *,
    scaled: bool,
) -> bool:
    """Whether cuSPARSE sums the rows of neighbours.

    What was measured is decided once and kept with the adjacency. While torch is told to use
    deterministic algorithms, nothing is left to cuSPARSE.

    Parameters
    ----------
    adjacency : Adjacency
        Rows to walk, on a CUDA device.
    dtype : torch.dtype
        Of the features.
    width : int
        Elements of a feature row.
    edge_weight : Tensor or None
        (E,), or with one number for each part of a row.
    scaled : bool
        Whether there are factors of nodes, or a mean.
    """
    weights = 0 if edge_weight is None else edge_weight.numel() // max(adjacency.num_edges, 1)
    key = ("backend", dtype, width, weights, scaled)
    found = adjacency.launches.get(key)
    if found is None:
        call = Sum(width, dtype.itemsize, weights, scaled)
        found = adjacency.launches[key] = _backend(adjacency, dtype, call)
    return bool(found == CUSPARSE) and not torch.are_deterministic_algorithms_enabled()


def can_run(adjacency: Adjacency, call: Sum) -> bool:
    """Whether cuSPARSE is there and can compute a sum.

    It refuses a matrix with more edges than entries, as some graphs with multi-edges have.

    Parameters
    ----------
    adjacency : Adjacency
        Rows to walk.
    call : Sum
        What is to be summed.
    """
    entries = adjacency.num_rows * adjacency.num_cols
    fits = can_be_cusparse(call) and adjacency.num_edges <= entries
    return fits and cusparse.why_unavailable() is None


def _backend(adjacency: Adjacency, dtype: torch.dtype, call: Sum) -> str:
    measured = None
    if can_be_cusparse(call) and not tuned.is_empty():
        flags = {"WEIGHT": call.weights}
        found = tuned.find(tuned_key("spmm", adjacency, dtype, 1, call.width, flags))
        measured = None if found is None else found.backend
    # It is there only if the user told ``tune`` that the last bits may differ from run to run.
    allowed = measured == CUSPARSE
    backend = spmm_backend(call, repeatable=not allowed, tuned=measured)
    return CUSPARSE if backend == CUSPARSE and can_run(adjacency, call) else KERNEL


def cusparse_sum(
    adjacency: Adjacency, feat: Tensor, edge_weight: Tensor | None, out: Tensor
) -> Tensor:
    r"""Sum neighbour rows with cuSPARSE, on torch's current stream; no call synchronises.

    A vector of ones, where there are no weights, is kept with the adjacency.

    Parameters
    ----------
    adjacency : Adjacency
        Rows to walk, on a CUDA device; no more edges than rows times columns.
    feat : Tensor
        (num_cols, \*), contiguous.
    edge_weight : Tensor or None
        (E,) in edge-id order, contiguous, dtype of ``feat``.
    out : Tensor
        (num_rows, \*), contiguous; filled.

    Returns
    -------
    Tensor
        ``out``.
    """
    if adjacency.num_edges == 0 or out.numel() == 0:
        return out.zero_()
    feat_rows, out_rows = (rows.reshape(rows.shape[0], -1) for rows in (feat, out))
    if edge_weight is None:
        values = _ones(adjacency, feat.dtype)
    elif adjacency.eids is None:
        values = edge_weight.reshape(-1)
    else:
        values = edge_weight.reshape(-1).index_select(0, adjacency.eids)
    cusparse.csr_product(adjacency.indptr, adjacency.indices, values, feat_rows, out_rows)
    return out


def _ones(adjacency: Adjacency, dtype: torch.dtype) -> Tensor:
    """The values of a matrix whose every edge counts 1, on the stream where they were filled.

    Inside a CUDA graph capture they live for the call: a captured graph has its own memory, and
    may be replayed on any stream.
    """
    key = ("ones", dtype, current_stream_pointer(adjacency.device.index))
    capturing = torch.cuda.is_current_stream_capturing()
    found = None if capturing else adjacency.launches.get(key)
    if found is None:
        found = torch.ones(adjacency.num_edges, dtype=dtype, device=adjacency.device)
        if not capturing:
            adjacency.launches[key] = found
    return found
