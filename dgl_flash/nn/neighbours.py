"""Nearest neighbours of points, and neighbours within a radius, in blocks of bounded memory."""

from __future__ import annotations

import torch
from torch import Tensor

# Bytes that a search may hold beside its points and its result. Large blocks are only a little
# faster than small ones: what counts is that a block gives every core and every SM some rows.
BUDGET = 256 * 2**20

# On the CPU a tree is faster in few dimensions. In 8 it has lost most of its lead of 50 times;
# sets of fewer points are searched many at a time by matrix products.
_TREE_DIMENSIONS = 8
_TREE_POINTS = 128

# Candidates beyond the k nearest. Matrix products round, so that the last ones may be mistaken;
# differences of coordinates, which do not cancel, then decide between the candidates.
_SPARE = 8
_ROWS = 256  # of a block at least, before its columns are cut too


@torch.no_grad()
def nearest(x: Tensor, k: int) -> Tensor:
    """Search the nearest points of each point in its set, itself among them.

    Parameters
    ----------
    x : Tensor
        (B, M, D), sets of points of any real dtype.
    k : int
        Number of neighbours, at most M.

    Returns
    -------
    Tensor
        (B, M, k), int64: places in the set, nearest first, equally near ones by place. Distances
        that are not finite count as the largest.
    """
    num_sets, num_points, _ = x.shape
    found = torch.empty((num_sets, num_points, k), dtype=torch.int64, device=x.device)
    at_once = max(1, _cells() // max(1, num_points * num_points))
    for given, places in zip(x.split(at_once), found.split(at_once), strict=True):
        # Exact for all dtypes but float64, so that even products of coordinates hardly round.
        points = given.double()
        if _suits_a_tree(points):
            for one, there in zip(points, places, strict=True):
                there.copy_(_by_tree(one, k))
        else:
            _by_blocks(points, places)
    return found


@torch.no_grad()
def within(x: Tensor, r: float, p: float, compute_mode: str) -> tuple[Tensor, Tensor]:
    """Search the pairs of points that are at most ``r`` apart.

    Parameters
    ----------
    x : Tensor
        (N, D), float32 or float64.
    r : float
        The radius.
    p : float
        Order of the norm.
    compute_mode : str
        As in ``torch.cdist``; in a tree only differences of coordinates are used.

    Returns
    -------
    src, dst : Tensor
        (E,), int64: each pair in both directions and each point with itself, sorted by ``src``,
        then by ``dst``.
    """
    if p >= 1 and r < float("inf") and _suits_a_tree(x):
        return _within_by_tree(x, r, p)
    at_once = max(1, BUDGET // (24 * len(x)))
    found = []
    for start in range(0, len(x), at_once):
        rows = x[start : start + at_once]
        close = torch.cdist(rows, x, p=p, compute_mode=compute_mode) <= r
        found.append(close.nonzero())
        found[-1][:, 0] += start
    src, dst = torch.cat(found).unbind(1)
    return src, dst


def _cells() -> int:
    """How many float64 a block may have: a third of the budget, for the choice needs some too."""
    return BUDGET // 24


def _suits_a_tree(points: Tensor) -> bool:
    num_points, width = points.shape[-2:]
    return (
        points.device.type == "cpu"
        and num_points >= _TREE_POINTS
        and 1 <= width <= _TREE_DIMENSIONS
        and bool(points.isfinite().all())
    )


def _by_tree(points: Tensor, k: int) -> Tensor:
    """Search one set, (M, D) float64."""
    from scipy.spatial import cKDTree

    numbers = points.numpy()
    lengths, places = cKDTree(numbers).query(numbers, k=k, workers=torch.get_num_threads())
    return _ordered(
        torch.from_numpy(places).long().reshape(-1, k), torch.from_numpy(lengths).reshape(-1, k)
    )


def _within_by_tree(x: Tensor, r: float, p: float) -> tuple[Tensor, Tensor]:
    from scipy.spatial import cKDTree

    # A little more than the radius: what is on its edge is for torch.cdist to decide, in the dtype
    # of the points, as in the search by blocks.
    tree = cKDTree(x.double().numpy())
    pairs = torch.from_numpy(tree.query_pairs(r * (1 + 1e-5), p=p, output_type="ndarray")).long()
    src, dst = pairs.unbind(1)
    ends = (x[src].unsqueeze(1), x[dst].unsqueeze(1))
    mode = "donot_use_mm_for_euclid_dist"
    src, dst = pairs[torch.cdist(*ends, p=p, compute_mode=mode).flatten() <= r].unbind(1)
    itself = torch.arange(len(x))
    keys = torch.cat([src * len(x) + dst, dst * len(x) + src, itself * (len(x) + 1)]).sort().values
    return keys // len(x), keys % len(x)


def _by_blocks(points: Tensor, found: Tensor) -> None:
    """Search sets, (B, M, D) float64, into (B, M, k)."""
    num_sets, num_points, width = points.shape
    k = found.shape[-1]
    count = min(k + _SPARE, num_points)
    # Products of small coordinates round less. A centre that is not finite would spoil all.
    centred = points - points.mean(1, keepdim=True).nan_to_num_(0, 0, 0)
    # What is left of the squared distance, -2 x · y + y · y, is ordered like it in each row x.
    queries = torch.cat([-2 * centred, torch.ones_like(centred[..., :1])], -1)
    table = torch.cat([centred, centred.square().sum(-1, keepdim=True)], -1)
    del centred
    columns = max(count, _cells() // (num_sets * min(num_points, _ROWS)))
    widest = max(min(columns, num_points), count * (width + 8))
    at_once = max(1, _cells() // (num_sets * widest))
    for start in range(0, num_points, at_once):
        block = slice(start, start + at_once)
        candidates = _candidates(queries[:, block], table, count, columns)
        found[:, block] = _ranked(points[:, block], points, candidates)[..., :k]


def _candidates(queries: Tensor, table: Tensor, count: int, columns: int) -> Tensor:
    """(B, R, count), without order: the nearest by matrix products, columns after columns."""
    best: tuple[Tensor, Tensor] | None = None
    for step, part in enumerate(table.split(columns, 1)):
        distances = queries @ part.mT
        distances.nan_to_num_(nan=torch.finfo(torch.float64).max)
        values, places = distances.topk(min(count, part.shape[1]), largest=False, sorted=False)
        del distances
        places += step * columns
        if best is not None:
            values = torch.cat([best[0], values], -1)
            values, order = values.topk(count, largest=False, sorted=False)
            places = torch.cat([best[1], places], -1).gather(-1, order)
        best = values, places
    assert best is not None
    return best[1]


def _ranked(rows: Tensor, points: Tensor, places: Tensor) -> Tensor:
    """Order candidates, (B, R, C), by differences of coordinates."""
    num_sets, num_points, _ = points.shape
    starts = torch.arange(num_sets, device=points.device) * num_points
    near = points.flatten(0, 1)[places + starts[:, None, None]]  # (B, R, C, D)
    return _ordered(places, near.sub_(rows.unsqueeze(2)).square_().sum(-1))


def _ordered(places: Tensor, distances: Tensor) -> Tensor:
    """Sort each row by distance, what is equally far by place; NaN is the farthest."""
    places, order = places.sort(-1)
    order = distances.gather(-1, order).sort(dim=-1, stable=True).indices
    return places.gather(-1, order)
