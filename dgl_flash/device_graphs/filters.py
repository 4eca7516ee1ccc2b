"""Sets of ids, for which DGL has code for the GPU only: samplers leave out edges by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def filter_methods() -> Iterator[tuple[Any, str, Any]]:
    """Class, name and replacement of the methods of ``dgl.utils.Filter``."""
    from dgl.utils import Filter

    yield Filter, "__init__", _keep
    yield Filter, "find_included_indices", _included
    yield Filter, "find_excluded_indices", _excluded


def _keep(self: Any, ids: Tensor) -> None:
    self._filter = ids.detach()


def _included(self: Any, test: Tensor) -> Tensor:
    return torch.isin(test, self._filter).nonzero().flatten().to(test.dtype)


def _excluded(self: Any, test: Tensor) -> Tensor:
    return torch.isin(test, self._filter, invert=True).nonzero().flatten().to(test.dtype)
