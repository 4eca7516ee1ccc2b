"""Torch's sparse matrices on the edges of a graph."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator

import torch
from torch import Tensor

WIDE = 32  # numbers in a row


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without what torch says about every sparse matrix: that it is in beta, and not checked."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse (CSR tensor support|invariant checks)")
        yield


def csr_matrix(indptr: Tensor, columns: Tensor, values: Tensor, num_columns: int) -> Tensor:
    """Matrix with the given rows, which are trusted; call it :func:`quietly`."""
    size = (indptr.numel() - 1, num_columns)
    return torch.sparse_csr_tensor(indptr, columns, values, size, check_invariants=False)


def csr_product(columns: Tensor, rows: Tensor, indptr: Tensor, weight: Tensor | None) -> Tensor:
    """Sum ``rows[columns]``, times the weights if there are any, over the given rows."""
    values = rows.new_ones(columns.numel()) if weight is None else weight
    with quietly():
        matrix = csr_matrix(indptr, columns, values, rows.shape[0])
        # Torch's own kernel; that of the library behind ``@`` is the faster one in narrow rows.
        return torch.sparse.mm(matrix, rows, "sum") if rows.shape[1] >= WIDE else matrix @ rows
