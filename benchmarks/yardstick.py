"""The yardstick Y(W): one cuSPARSE sum over neighbour rows of W numbers, in float32.

It reads each neighbour's row once, and so must every op here; times are given as multiples of it,
because ratios taken in one process carry over from machine to machine and milliseconds do not.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.timing import Timer
from dgl_flash.structure import GraphStructure


def sparse_product(struct: GraphStructure, width: int) -> Callable[[], Tensor]:
    """Prepare ``torch.sparse.mm(A, X)``, A the 0/1 int32 CSR matrix, X of shape (N_src, width)."""
    adj = struct.in_adj
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that CSR is in beta, and unchecked
        matrix = torch.sparse_csr_tensor(
            adj.indptr.int(),
            adj.indices.int(),
            torch.ones(adj.num_edges, device=struct.device),
            size=(adj.num_rows, adj.num_cols),
        )
    feat = torch.randn(adj.num_cols, width, device=struct.device)
    return lambda: torch.sparse.mm(matrix, feat)


def yardstick_ms(struct: GraphStructure, width: int, timer: Timer) -> float:
    """Measure :func:`sparse_product`."""
    return timer(sparse_product(struct, width)).median_ms
