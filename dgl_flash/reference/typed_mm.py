"""Products of rows with the matrix of their type, one type after the other."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def typed_mm(rows: Tensor, weight: Tensor, lengths: Sequence[int]) -> Tensor:
    r"""Multiply runs of rows, each by the matrix of its type.

    .. math::
        out_i = x_i W_r, \qquad i \text{ in run } r

    Parameters
    ----------
    rows : Tensor
        (M, in), sorted by type.
    weight : Tensor
        (R, in, out), or (R, B, in / B, out / B): the B diagonal blocks of each matrix, all else
        being zero.
    lengths : sequence of int
        Rows of each of the R types; their sum is M.

    Returns
    -------
    Tensor
        (M, out)
    """
    # Views, and gradients that torch puts together in one go; weight[r] would fill (R, in, out)
    # with zeros for each r.
    runs = list(zip(rows.split(list(lengths)), weight.unbind(0), strict=True))
    # Of empty runs only, one is kept: its product knows the width and passes gradients.
    runs = [pair for pair in runs if pair[0].shape[0]] or runs[:1]
    return torch.cat([_product(run, matrix) for run, matrix in runs])


def add_outer_products(total: Tensor, rows: Tensor, others: Tensor, lengths: Sequence[int]) -> None:
    r"""Add the gradient of the weights in :func:`typed_mm`.

    .. math::
        total_r \mathrel{+}= \sum_{i \text{ in run } r} x_i^\top y_i

    Parameters
    ----------
    total : Tensor
        (R, in, out) or (R, B, in / B, out / B), float32 or float64.
    rows, others : Tensor
        (M, in) and (M, out), sorted by type.
    lengths : sequence of int
        Rows of each of the R types; their sum is M.
    """
    runs = zip(total.unbind(0), rows.split(list(lengths)), others.split(list(lengths)), strict=True)
    for matrix, run, other in runs:
        if run.shape[0]:
            blocks = matrix if matrix.dim() == 3 else matrix.unsqueeze(0)
            num_blocks, block_in, block_out = blocks.shape
            left = run.unflatten(1, (num_blocks, block_in)).permute(1, 2, 0)
            right = other.unflatten(1, (num_blocks, block_out)).transpose(0, 1)
            blocks += torch.bmm(left, right)


def _product(run: Tensor, matrix: Tensor) -> Tensor:
    if matrix.dim() == 2:
        return torch.mm(run, matrix)
    by_block = run.unflatten(1, matrix.shape[:2]).transpose(0, 1)  # (B, n, in / B)
    return torch.bmm(by_block, matrix).transpose(0, 1).flatten(1)
