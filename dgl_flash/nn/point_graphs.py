"""From points to the graph of their nearest neighbours, in DGL's class where there is DGL."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from functools import cache
from operator import index
from typing import Any

import torch
from torch import Tensor

from dgl_flash.errors import dgl_error, dgl_warning
from dgl_flash.nn.neighbours import nearest
from dgl_flash.structure import graph

ALGORITHMS = ("bruteforce-blas", "bruteforce", "bruteforce-sharemem", "kd-tree", "nn-descent")
METRICS = ["euclidean", "cosine"]


def check_points(x: Any, op: str, dims: Sequence[int], integers: bool = True) -> None:
    """Refuse what is no tensor of points, in one of the numbers of dimensions."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f"{op}: expected `x` to be a tensor, got {type(x).__name__}; pass torch.as_tensor(...)"
        )
    if x.is_complex() or not (integers or x.is_floating_point()):
        wanted = "real" if integers else "floating-point"
        raise TypeError(f"{op}: expected `x` of a {wanted} dtype, got {x.dtype}; pass x.float()")
    if x.dim() not in dims:
        shapes = " or ".join({2: "(N, D)", 3: "(B, N, D)"}[dim] for dim in dims)
        raise ValueError(f"{op}: expected `x` of shape {shapes}, got {tuple(x.shape)}")


def check_some(x: Tensor) -> None:
    """Refuse what DGL refuses: no points, or no sets of points."""
    if len(x) == 0:
        raise dgl_error("Find empty point set")


def positive(k: int, exclude_self: bool) -> int:
    """How many neighbours to search: with a point itself, even if it is dropped afterwards."""
    k = index(k) + bool(exclude_self)
    if k <= 0:
        raise dgl_error(f"Invalid k value. expect k > 0, got k = {k}")
    return k


def _at_most(k: int, smallest: int, algorithm: str) -> int:
    """DGL's treatment of sets with fewer than k points."""
    if k <= smallest:
        return k
    if algorithm == "nn-descent":
        raise dgl_error(
            "'k' must be less than or equal to the number of points in 'x'"
            f"expect 'k' <= {smallest}, got 'k' = {k}"
        )
    dgl_warning(
        "'k' should be less than or equal to the number of points in 'x'"
        f"expect k <= {smallest}, got k = {k}, use k = {smallest}",
        stacklevel=4,
    )
    if smallest == 0 and algorithm != "bruteforce-blas":
        raise dgl_error("Invalid k value. expect k > 0, got k = 0")
    return smallest


def join_nearest(
    x: Tensor, k: int, sizes: list[int], algorithm: str, dist: str, exclude_self: bool
) -> Any:
    """Search sets of points, (N, D), and build the batch of their graphs."""
    if algorithm not in ALGORITHMS:
        raise dgl_error(f"Algorithm {algorithm} is not supported; use one of {ALGORITHMS}")
    if dist.lower() not in METRICS:
        raise dgl_error(f"Only {METRICS} are supported for distancecomputation, got {dist}")
    k = _at_most(k, min(sizes), algorithm)
    x = x.detach()
    if dist.lower() == "cosine":
        x = x.double()
        x = x / (torch.linalg.vector_norm(x, dim=-1, keepdim=True) + 1e-5)  # DGL's directions
    src = _nearest_in_sets(x, k, sizes)  # (N, k)
    if exclude_self and k > 0:
        src, k = _without_self(src), k - 1
    dst = torch.arange(len(x), device=x.device).repeat_interleave(k)
    return build(src.flatten(), dst, len(x), sizes, k)


def _nearest_in_sets(x: Tensor, k: int, sizes: list[int]) -> Tensor:
    """(N, k), ids of the neighbours; sets of the same size are searched together."""
    found = torch.empty((len(x), k), dtype=torch.int64, device=x.device)
    if k == 0:
        return found
    counts = torch.tensor(sizes)
    starts = counts.cumsum(0) - counts
    for size in sorted(set(sizes)):
        firsts = starts[counts == size].to(x.device)
        ids = firsts.unsqueeze(1) + torch.arange(size, device=x.device)
        found[ids] = nearest(x[ids], k) + firsts[:, None, None]
    return found


def _without_self(src: Tensor) -> Tensor:
    """(N, k - 1): drop the point itself or, if points that are as near crowd it out, the last."""
    kept = src != torch.arange(len(src), device=src.device).unsqueeze(1)
    kept[:, -1] &= ~kept.all(dim=1)
    return src[kept].reshape(len(src), -1)


def build(
    src: Tensor, dst: Tensor, num_nodes: int, sizes: list[int] | None = None, degree: int = 0
) -> Any:
    """DGL's graph where there is DGL, else ours; with the members of a batch."""
    dgl = _working_dgl()
    if dgl is None:
        return graph((src, dst), num_nodes=num_nodes)
    built = dgl.graph((src.cpu(), dst.cpu()), num_nodes=num_nodes)
    if sizes is not None:
        counts = torch.tensor(sizes)
        built.set_batch_num_nodes(counts)
        built.set_batch_num_edges(degree * counts)
    return built


@cache
def _working_dgl() -> Any:
    # Without a choice of backend DGL prints about it and writes a file into the home directory.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    if importlib.util.find_spec("dgl") is None:
        return None
    try:
        return importlib.import_module("dgl")
    except Exception:  # a broken DGL fails in many ways
        return None
