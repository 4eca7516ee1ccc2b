"""The largest or smallest of compressed rows, feature by feature, as torch's sparse product."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from dgl_flash.cpu.csr import csr_matrix, quietly


def extreme_rows(
    indptr: Tensor, columns: Tensor | None, rows: Tensor, reduce_op: str, wants_winners: bool
) -> tuple[Tensor, Tensor | None]:
    """Largest or smallest of ``rows[columns]`` for each compressed row and each feature.

    Parameters
    ----------
    indptr : Tensor
        Where the rows begin, and the end, which is not 0.
    columns : Tensor or None
        (K,), what each position reads; None for rows in the order of the positions.
    rows : Tensor
        (N, F), float32 or float64, without a gradient.
    reduce_op : {"max", "min"}
        Which.
    wants_winners : bool
        Whether to tell positions too, which takes twice the time.

    Returns
    -------
    tuple of Tensor
        (num_rows, F) values, 0 for rows without edges and NaN where there is one; and the first
        position that has the value, or None if not wanted. Where there is none, or the value is the
        infinity that loses against all others, it is the number of positions.
    """
    if columns is None:
        columns = torch.arange(rows.shape[0], dtype=indptr.dtype)
    ones = rows.new_ones(columns.numel())
    with quietly():
        matrix = csr_matrix(indptr, columns, ones, rows.shape[0])
        if not wants_winners:
            return torch.sparse.mm(matrix, rows, f"a{reduce_op}"), None
        # Torch finds the positions for a backward pass of its own only, which has no derivative.
        # Of what it keeps for that pass, nobody's hooks are to hear.
        with torch.enable_grad(), saved_tensors_hooks(_itself, _itself):
            matrix.requires_grad_()
            values, winners = torch.ops.aten._sparse_mm_reduce_impl(matrix, rows, f"a{reduce_op}")
    return values.detach(), winners


def _itself(tensor: Tensor) -> Tensor:
    return tensor
