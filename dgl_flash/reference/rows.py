"""The two moves every op is made of: rows to edges, edges to rows."""

from __future__ import annotations

import torch
from torch import Tensor


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half types add up in float32, as the kernels do; the others in themselves."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Give ``values`` trailing dimensions of 1 until it broadcasts against ``like``."""
    return values.reshape(values.shape + (1,) * (like.dim() - values.dim()))


def gather_rows(values: Tensor, ids: Tensor) -> Tensor:
    """``out[e] = values[ids[e]]``: what each edge reads from its node."""
    if values.is_cuda:
        return values[ids]  # its gradient sorts, as below
    # gather and scatter_add, each the gradient of the other, are torch's parallel pair on the CPU;
    # index_select's gradient is index_add, several times slower there.
    return values.gather(0, per_row(ids, values).expand(-1, *values.shape[1:]))


def sum_to_rows(values: Tensor, ids: Tensor, num_rows: int) -> Tensor:
    """``out[v] = sum over ids[e] == v of values[e]``: what each node receives."""
    out = values.new_zeros((num_rows, *values.shape[1:]))
    if values.is_cuda:
        # Sorts the ids and adds in a fixed order; scatter_add would add in the order of arrival.
        return out.index_put((ids,), values, accumulate=True)
    return out.scatter_add(0, per_row(ids, values).expand_as(values), values)


def max_to_rows(values: Tensor, ids: Tensor, num_rows: int) -> Tensor:
    """``out[v] = max over ids[e] == v of values[e]``, 0 for rows without edges."""
    out = values.new_zeros((num_rows, *values.shape[1:]))
    index = per_row(ids, values).expand_as(values)
    return out.scatter_reduce(0, index, values, reduce="amax", include_self=False)
