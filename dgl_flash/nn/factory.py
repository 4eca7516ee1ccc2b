"""KNNGraph, SegmentedKNNGraph and RadiusGraph: graphs of points that are near each other."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash.errors import dgl_error
from dgl_flash.nn.missing import attribute_of
from dgl_flash.nn.neighbours import within
from dgl_flash.nn.point_graphs import build, check_points, check_some, join_nearest, positive
from dgl_flash.reference.rows import accumulation_dtype

__all__ = [
    "KNNGraph",
    "RadiusGraph",
    "SegmentedKNNGraph",
    "knn_graph",
    "pairwise_squared_distance",
    "radius_graph",
    "segmented_knn_graph",
]


class KNNGraph(nn.Module):
    r"""Join points to their nearest neighbours, with the interface of ``dgl.nn.KNNGraph``.

    Point :math:`j` of set :math:`i` is node :math:`i M + j`. Edges run from a neighbour to the
    point of which it is one, and are numbered point after point, the nearest neighbour first;
    neighbours that are equally near come in the order of their ids, but which of them is the
    k-th is not defined.

    Parameters
    ----------
    k : int
        Number of neighbours. A point is its own nearest neighbour, unless ``exclude_self``.

    Notes
    -----
    Source: Y. Wang, Y. Sun, Z. Liu, S. E. Sarma, M. M. Bronstein, J. M. Solomon, "Dynamic Graph CNN
    for Learning on Point Clouds", ACM Transactions on Graphics 2019,
    https://arxiv.org/abs/1801.07829.

    Whatever ``algorithm`` says, the neighbours are exact. ``"nn-descent"``, which approximates them
    in DGL, does not here. As in DGL it alone refuses a k that is too large, and
    ``"bruteforce-blas"`` alone takes sets without points.

    With DGL installed the graph is a DGLGraph, with the sets as members of a batch, and lies on the
    CPU even if the points do not: DGL's wheel on PyPI has no other graphs. The layers of
    ``dgl_flash`` take it with features on CUDA. Without DGL it is a ``dgl_flash.Graph`` on the
    device of the points, which does not know about batches.

    Where DGL is wrong: distances are computed in float64 and candidates compared by differences of
    coordinates; from products of float32 far from 0 DGL takes wrong neighbours. An unknown
    ``dist`` is an error for each algorithm. Half types and integers work for each.

    **Fused path.** On CUDA, and in more than 8 dimensions, distances come from torch's matrix
    products in blocks of at most ``dgl_flash.nn.neighbours.BUDGET`` bytes, never as an N × N
    matrix. The graph itself is DGL's, on the CPU. On the CPU a kd-tree (J. L. Bentley,
    Communications of the ACM 1975, https://doi.org/10.1145/361002.361007) of SciPy searches in few
    dimensions.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import KNNGraph
    >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    >>> src, dst = KNNGraph(1)(x, exclude_self=True).edges()
    >>> src, dst
    (tensor([1, 0, 1, 2]), tensor([0, 1, 2, 3]))
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(
        self,
        x: Tensor,
        algorithm: str = "bruteforce-blas",
        dist: str = "euclidean",
        exclude_self: bool = False,
    ) -> Any:
        """Search the neighbours.

        Parameters
        ----------
        x : Tensor
            (M, D), points, or (B, M, D), sets of points.
        algorithm : str
            One of DGL's: "bruteforce-blas", "bruteforce", "bruteforce-sharemem", "kd-tree",
            "nn-descent".
        dist : {"euclidean", "cosine"}
            What is compared: the points, or their directions.
        exclude_self : bool
            Find k neighbours beside the point itself.

        Returns
        -------
        DGLGraph or Graph
            min(k, M) edges into each node, one less for M points that exclude themselves.

        Raises
        ------
        DGLError
            If there are no points, k is not positive, or a name is unknown.
        TypeError, ValueError
            If ``x`` is no tensor of real numbers, or of another shape; if k is no integer.
        """
        return knn_graph(x, self.k, algorithm=algorithm, dist=dist, exclude_self=exclude_self)


class SegmentedKNNGraph(nn.Module):
    r""":class:`KNNGraph` of sets that differ in size, as ``dgl.nn.SegmentedKNNGraph`` is.

    Point :math:`j` of set :math:`i` is node :math:`\sum_{p < i} M_p + j`.

    Parameters
    ----------
    k : int
        Number of neighbours. If any set has fewer points, this holds for all sets.

    Notes
    -----
    Source: Y. Wang, Y. Sun, Z. Liu, S. E. Sarma, M. M. Bronstein, J. M. Solomon, "Dynamic Graph CNN
    for Learning on Point Clouds", ACM Transactions on Graphics 2019,
    https://arxiv.org/abs/1801.07829.

    What :class:`KNNGraph` says about algorithms, exactness, ties and devices holds here too. With
    an empty set no point has neighbours, but each is a node; DGL drops them.

    **Fused path.** That of :class:`KNNGraph`; sets of the same size are searched together.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import SegmentedKNNGraph
    >>> x = torch.tensor([[0.0], [1.0], [3.0], [4.0], [7.0]])
    >>> src, dst = SegmentedKNNGraph(1)(x, [2, 3], exclude_self=True).edges()
    >>> src, dst
    (tensor([1, 0, 3, 2, 3]), tensor([0, 1, 2, 3, 4]))
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def forward(
        self,
        x: Tensor,
        segs: Iterable[int],
        algorithm: str = "bruteforce-blas",
        dist: str = "euclidean",
        exclude_self: bool = False,
    ) -> Any:
        """Search the neighbours.

        Parameters
        ----------
        x : Tensor
            (N, D), the points of all sets.
        segs : iterable of int
            Points in each set, N in all.
        algorithm, dist, exclude_self
            As in :class:`KNNGraph`.

        Returns
        -------
        DGLGraph or Graph
            As many edges into each node.

        Raises
        ------
        DGLError, TypeError, ValueError
            As in :class:`KNNGraph`.
        RuntimeError
            If the sets do not have N points.
        """
        return segmented_knn_graph(
            x, self.k, segs, algorithm=algorithm, dist=dist, exclude_self=exclude_self
        )


class RadiusGraph(nn.Module):
    r"""Join points that are at most r apart, with the interface of ``dgl.nn.RadiusGraph``.

    .. math::
        E = \{ (i, j) : \lVert x_i - x_j \rVert_p \le r \}

    Edges are numbered by source, then by destination.

    Parameters
    ----------
    r : float
        The radius.
    p : float
        Order of the norm. Default 2.
    self_loop : bool
        Whether points are joined to themselves. Default False.
    compute_mode : str
        As in ``torch.cdist``. The default computes differences of coordinates; products of them
        round more, and are used by the search in blocks only.

    Notes
    -----
    Source: J. L. Bentley, D. F. Stanat, E. H. Williams, "The complexity of finding fixed-radius
    near neighbors", Information Processing Letters 1977,
    https://doi.org/10.1016/0020-0190(77)90070-9.

    On which device the graph lies, and of which class it is, :class:`KNNGraph` says. Distances lie
    where the points do.

    Where DGL is wrong: distances have gradients without self-loops too, and derivatives of any
    order; half types work; with r = inf there are no self-loops unless they are asked for.

    **Fused path.** Distances of pairs are computed by torch in blocks of at most
    ``dgl_flash.nn.neighbours.BUDGET`` bytes; those of the edges are computed again, so that
    autograd keeps no others. The graph itself is DGL's, on the CPU. On the CPU, in few dimensions,
    a kd-tree of SciPy finds the pairs.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import RadiusGraph
    >>> x = torch.tensor([[0.0], [1.0], [3.0], [7.0]])
    >>> near, dist = RadiusGraph(2)(x, get_distances=True)
    >>> src, dst = near.edges()
    >>> src, dst, dist.flatten()
    (tensor([0, 1, 1, 2]), tensor([1, 0, 2, 1]), tensor([1., 1., 2., 2.]))
    """

    def __init__(
        self,
        r: float,
        p: float = 2,
        self_loop: bool = False,
        compute_mode: str = "donot_use_mm_for_euclid_dist",
    ) -> None:
        super().__init__()
        self.r = r
        self.p = p
        self.self_loop = self_loop
        self.compute_mode = compute_mode

    def forward(self, x: Tensor, get_distances: bool = False) -> Any:
        """Search the pairs.

        Parameters
        ----------
        x : Tensor
            (N, D), the points.
        get_distances : bool
            Return the distances too.

        Returns
        -------
        graph : DGLGraph or Graph
            Its nodes are the points.
        distances : Tensor
            (E, 1), in edge-id order, differentiable; only with ``get_distances``.

        Raises
        ------
        DGLError
            If there are no points, or the radius is not positive.
        RuntimeError, ValueError
            If ``torch.cdist`` refuses ``p`` or ``compute_mode``.
        TypeError, ValueError
            If ``x`` is no tensor of a floating-point dtype, or of another shape.
        """
        return radius_graph(x, self.r, self.p, self.self_loop, self.compute_mode, get_distances)


def knn_graph(
    x: Tensor,
    k: int,
    algorithm: str = "bruteforce-blas",
    dist: str = "euclidean",
    exclude_self: bool = False,
) -> Any:
    """Join points to their ``k`` nearest neighbours; see :class:`KNNGraph` for all else.

    **Fused path.** That of :class:`KNNGraph`.
    """
    check_points(x, "knn_graph", dims=(2, 3))
    k = positive(k, exclude_self)
    check_some(x)
    sizes = [x.shape[-2]] * (len(x) if x.dim() == 3 else 1)
    return join_nearest(x.flatten(0, -2), k, sizes, algorithm, dist, exclude_self)


def segmented_knn_graph(
    x: Tensor,
    k: int,
    segs: Iterable[int],
    algorithm: str = "bruteforce-blas",
    dist: str = "euclidean",
    exclude_self: bool = False,
) -> Any:
    """Join points to neighbours in their set; see :class:`SegmentedKNNGraph` for all else.

    **Fused path.** That of :class:`SegmentedKNNGraph`.
    """
    check_points(x, "segmented_knn_graph", dims=(2,))
    k = positive(k, exclude_self)
    check_some(x)
    sizes = [index(size) for size in segs]
    if sum(sizes) != len(x) or min(sizes) < 0:
        x.split(sizes)  # it raises
    return join_nearest(x, k, sizes, algorithm, dist, exclude_self)


def radius_graph(
    x: Tensor,
    r: float,
    p: float = 2,
    self_loop: bool = False,
    compute_mode: str = "donot_use_mm_for_euclid_dist",
    get_distances: bool = False,
) -> Any:
    """Join points that are at most ``r`` apart; see :class:`RadiusGraph` for all else.

    **Fused path.** That of :class:`RadiusGraph`.
    """
    check_points(x, "radius_graph", dims=(2,), integers=False)
    if r <= 0:
        raise dgl_error(f"Invalid r value. expect r > 0, got r = {r}")
    check_some(x)
    points = x.to(accumulation_dtype(x.dtype))
    torch.cdist(points[:0], points[:0], p=p, compute_mode=compute_mode)  # it checks what it takes
    src, dst = within(points.detach(), r, p, compute_mode)
    if not self_loop:
        src, dst = torch.stack([src, dst])[:, src != dst]
    near = build(src, dst, len(x))
    if not get_distances:
        return near
    # Unlike torch.cdist this can be differentiated twice. It rounds in another order: no distance
    # of an edge may exceed the radius for that.
    distances = torch.linalg.vector_norm(points[src] - points[dst], ord=p, dim=-1, keepdim=True)
    excess = (distances.detach() - r).clamp(min=0)
    return near, (distances - excess).to(x.dtype)


def pairwise_squared_distance(x: Tensor) -> Tensor:
    """Compute the squared distances of all pairs, with matrix products.

    Parameters
    ----------
    x : Tensor
        (B, N, D), sets of points.

    Returns
    -------
    Tensor
        (B, N, N). What rounding leaves of a distance of 0 can be negative, as in DGL.

    Notes
    -----
    **Fused path.** There is none: it is a matrix product of torch.
    """
    if x.is_floating_point():
        # The shift does not change the distances, but far from 0 what is left of them.
        x = x - x.detach().mean(dim=-2, keepdim=True)
    squares = x.square().sum(dim=-1, keepdim=True)
    return squares + squares.mT - 2 * x @ x.mT


__getattr__ = attribute_of(__name__)
