"""Grouping by key agrees with a stable sort in NumPy, on both of its paths."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dgl_flash.structure.grouping import group_by_key, is_identity


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize(("num_keys", "num_groups"), [(0, 0), (0, 4), (50, 7), (9000, 300)])
def test_equals_stable_sort(
    device: torch.device, num_keys: int, num_groups: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(0)
    keys = torch.randint(max(num_groups, 1), (num_keys,), generator=generator).to(dtype)
    indptr, order = group_by_key(keys.to(device), num_groups)
    assert indptr.dtype == order.dtype == dtype
    expected = np.argsort(keys.numpy(), kind="stable")
    assert np.array_equal(order.cpu().numpy(), expected)
    counts = np.bincount(keys.numpy(), minlength=num_groups)
    assert np.array_equal(indptr.cpu().numpy(), np.concatenate([[0], counts.cumsum()]))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 1000])
def test_is_identity(size: int) -> None:
    order = torch.arange(size, dtype=torch.int32)
    assert is_identity(order)
    if size > 1:
        order[[size - 2, size - 1]] = order[[size - 1, size - 2]]
        assert not is_identity(order)
