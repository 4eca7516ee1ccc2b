"""Statistics of mailboxes and factors of degrees, under the names that DGL gives them.

A mailbox holds the messages of nodes of one in-degree, (B, degree, F). :mod:`dgl_flash.nn.messages`
has the same statistics without mailboxes, which is how the layers compute them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from dgl_flash.nn.messages import signed_root


def aggregate_mean(h: Tensor) -> Tensor:
    """Mean over the second dimension: the messages of each node."""
    return h.mean(dim=1)


def aggregate_max(h: Tensor) -> Tensor:
    """Maximum over the second dimension."""
    return h.max(dim=1)[0]


def aggregate_min(h: Tensor) -> Tensor:
    """Minimum over the second dimension."""
    return h.min(dim=1)[0]


def aggregate_sum(h: Tensor) -> Tensor:
    """Sum over the second dimension."""
    return h.sum(dim=1)


def aggregate_var(h: Tensor) -> Tensor:
    """Variance over the second dimension, never negative."""
    mean = h.mean(dim=1)
    return torch.relu((h * h).mean(dim=1) - mean * mean)


def aggregate_std(h: Tensor) -> Tensor:
    """Standard deviation over the second dimension."""
    return signed_root(aggregate_var(h), 2)


def _aggregate_moment(h: Tensor, n: int) -> Tensor:
    """Signed n-th root of the n-th central moment over the second dimension."""
    deviations = h - h.mean(dim=1, keepdim=True)
    return signed_root(deviations.pow(n).mean(dim=1), n)


def aggregate_moment_3(h: Tensor) -> Tensor:
    """Cube root of the third central moment over the second dimension."""
    return _aggregate_moment(h, n=3)


def aggregate_moment_4(h: Tensor) -> Tensor:
    """Fourth root of the fourth central moment over the second dimension."""
    return _aggregate_moment(h, n=4)


def aggregate_moment_5(h: Tensor) -> Tensor:
    """Fifth root of the fifth central moment over the second dimension."""
    return _aggregate_moment(h, n=5)


def scale_identity(h: Tensor, D: Any = None, delta: Any = None) -> Tensor:
    """Return what is given."""
    return h


def scale_amplification(h: Tensor, D: Any, delta: Any) -> Tensor:
    """Multiply by log(D + 1) / delta, with one degree D for all rows or one a row, (N, 1)."""
    return h * _factor(h, _log_degree(D) / delta)


def scale_attenuation(h: Tensor, D: Any, delta: Any) -> Tensor:
    """Multiply by delta / log(D + 1), with one degree D for all rows or one a row, (N, 1)."""
    return h * _factor(h, delta / _log_degree(D))


def _log_degree(D: Any) -> Any:
    return torch.log1p(D.double()) if isinstance(D, Tensor) else math.log(D + 1)


def _factor(h: Tensor, value: Any) -> Any:
    return value.to(h) if isinstance(value, Tensor) else value


# By the names that the layers take; what is put in here or replaced is called on mailboxes.
AGGREGATORS: dict[str, Callable[..., Tensor]] = {
    "mean": aggregate_mean,
    "sum": aggregate_sum,
    "max": aggregate_max,
    "min": aggregate_min,
    "std": aggregate_std,
    "var": aggregate_var,
    "moment3": aggregate_moment_3,
    "moment4": aggregate_moment_4,
    "moment5": aggregate_moment_5,
}
SCALERS: dict[str, Callable[..., Tensor]] = {
    "identity": scale_identity,
    "amplification": scale_amplification,
    "attenuation": scale_attenuation,
}
# The names of our own functions in Messages, whatever is put into the table later.
STATISTICS = {function: name for name, function in AGGREGATORS.items()}
