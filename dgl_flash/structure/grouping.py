"""Stable grouping of positions by an integer key: the counting sort under every conversion."""

from __future__ import annotations

import torch
from torch import Tensor

# Up to this many edges a general method beats the fixed cost of the one that is best for many.
_SMALL = 2048


def group_by_key(keys: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    """Group positions by key, ascending, keeping the order within a group.

    Parameters
    ----------
    keys : Tensor
        Shape ``(E,)``, int32 or int64, values in ``[0, num_groups)``.
    num_groups : int
        Number of groups ``G``.

    Returns
    -------
    indptr : Tensor
        Shape ``(G + 1,)``, dtype of `keys`; group ``g`` owns ``order[indptr[g]:indptr[g + 1]]``.
    order : Tensor
        Shape ``(E,)``, dtype of `keys`; positions sorted by key, ties in ascending order.
    """
    if keys.device.type == "cpu" and keys.numel() > _SMALL:
        return _group_by_counting(keys, num_groups)
    sorted_keys, order = torch.sort(keys, stable=True)
    # searchsorted needs no maximum from the device, unlike bincount: nothing here waits for a GPU.
    bounds = torch.arange(num_groups + 1, dtype=keys.dtype, device=keys.device)
    indptr = torch.searchsorted(sorted_keys, bounds, out_int32=keys.dtype == torch.int32)
    return indptr, order.to(keys.dtype)


def _group_by_counting(keys: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    """O(E) on the CPU: a matrix with one entry a row, turned from CSR into CSC."""
    import numpy as np
    from scipy.sparse import csr_array

    columns = keys.numpy()
    num_keys = columns.shape[0]
    entries = np.ones(num_keys, dtype=np.int8)
    row_starts = np.arange(num_keys + 1, dtype=columns.dtype)
    grouped = csr_array((entries, columns, row_starts), shape=(num_keys, num_groups)).tocsc()
    indptr = torch.from_numpy(grouped.indptr).to(keys.dtype)
    return indptr, torch.from_numpy(grouped.indices).to(keys.dtype)


def expand_rows(indptr: Tensor, num_edges: int) -> Tensor:
    """Row of each position of compressed rows: shape ``(num_edges,)``, dtype of `indptr`."""
    if indptr.device.type == "cpu" and num_edges <= _SMALL:
        # repeat_interleave wakes a team of threads even for a handful of edges.
        positions = torch.arange(num_edges, dtype=indptr.dtype)
        short = indptr.dtype == torch.int32
        return torch.searchsorted(indptr[1:], positions, right=True, out_int32=short)
    return torch.repeat_interleave(indptr.diff(), output_size=num_edges)


def is_identity(order: Tensor) -> bool:
    """Whether a permutation on the CPU is the identity; a sample rejects most others early."""
    size = order.numel()
    stride = max(1, size // 64)
    sample = order[::stride]
    steps = torch.arange(0, size, stride, dtype=order.dtype)
    if stride > 1 and not torch.equal(sample, steps):
        return False
    return torch.equal(order, torch.arange(size, dtype=order.dtype))
