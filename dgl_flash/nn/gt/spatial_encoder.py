"""SpatialEncoder and SpatialEncoder3d: distances of nodes as a bias of their attention."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash.nn.gaussians import gaussians
from dgl_flash.reference.rows import accumulation_dtype

_PI = 3.14159  # DGL's, whose checkpoints were trained with it


class SpatialEncoder(nn.Module):
    r"""Embedding of distances, with the interface of ``dgl.nn.SpatialEncoder``.

    .. math::
        c_{ij} = E_{\min(d_{ij}, M)}

    of the lengths of shortest paths. Pairs without a path, of which the distance is -1, are encoded
    as 0, which is not learned.

    Parameters
    ----------
    max_dist : int
        :math:`M`; larger distances are treated as this one.
    num_heads : int
        Heads of the attention, :math:`H`. Default 1.

    Attributes
    ----------
    embedding_table : Embedding
        :math:`E`, (max_dist + 2, num_heads), from distance -1 on.

    Notes
    -----
    Source: C. Ying, T. Cai, S. Luo, S. Zheng, G. Ke, D. He, Y. Shen, T.-Y. Liu, "Do Transformers
    Really Perform Bad for Graph Representation?", NeurIPS 2021, https://arxiv.org/abs/2106.05234.

    **Fused path.** There is none: rows are looked up by torch.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import SpatialEncoder
    >>> dist = torch.tensor([[[0, 1, -1], [1, 0, -1], [-1, -1, -1]]])
    >>> SpatialEncoder(max_dist=2, num_heads=8)(dist).shape
    torch.Size([1, 3, 3, 8])
    """

    def __init__(self, max_dist: int, num_heads: int = 1) -> None:
        super().__init__()
        self.max_dist = max_dist
        self.num_heads = num_heads
        self.embedding_table = nn.Embedding(max_dist + 2, num_heads, padding_idx=0)

    def forward(self, dist: Tensor) -> Tensor:
        """Look distances up.

        Parameters
        ----------
        dist : Tensor
            (B, N, N), as ``dgl.shortest_dist`` gives it, padded with -1.

        Returns
        -------
        Tensor
            (B, N, N, H)

        Raises
        ------
        TypeError
            If ``dist`` is no tensor.
        RuntimeError
            If distances are no integers.
        """
        return self.embedding_table(torch.clamp(dist, min=-1, max=self.max_dist) + 1)


class SpatialEncoder3d(nn.Module):
    r"""Gaussians of distances in space, with the interface of ``dgl.nn.SpatialEncoder3d``.

    .. math::
        x_{ij} &= \gamma_{ij} \lVert r_i - r_j \rVert + \beta_{ij} \\
        \psi^k_{ij} &= \frac{1}{\sqrt{2 \pi} \, \sigma_k} \exp \left( -\frac{1}{2} \left(
            \frac{x_{ij} - \mu_k}{\sigma_k} \right)^2 \right), \qquad
            \sigma_k = \lvert s_k \rvert + 0.01 \\
        c_{ij} &= W_2 \, \mathrm{GELU}(W_1 \psi_{ij} + b_1) + b_2

    where :math:`\gamma_{ij}` and :math:`\beta_{ij}` are the sums of two learned numbers, for the
    types of both nodes. Without types they are twice the first number of ``gamma`` and ``beta``,
    which is not learned: 2 and 0.

    Parameters
    ----------
    num_kernels : int
        Number of Gaussians, :math:`K`.
    num_heads : int
        Heads of the attention, :math:`H`. Default 1.
    max_node_type : int
        Number of types of nodes. Default 100.

    Attributes
    ----------
    means, stds : Parameter
        :math:`\mu` and :math:`s`, (K,).
    linear_layer_1, linear_layer_2 : Linear
        :math:`W_1, b_1` and :math:`W_2, b_2`, from K to K and from K to H.
    gamma, beta : Embedding
        (2 * max_node_type + 3, 1): without types; padding and types of :math:`i`; padding and types
        of :math:`j`.

    Notes
    -----
    Source: S. Luo, T. Chen, Y. Xu, S. Zheng, T.-Y. Liu, L. Wang, D. He, "One Transformer Can
    Understand Both 2D & 3D Molecular Data", ICLR 2023, https://arxiv.org/abs/2210.01765.

    As in DGL, :math:`\pi` is 3.14159.

    Where DGL is wrong: distances come from differences of coordinates, for any number of nodes.
    From 26 nodes on DGL gets them from products of coordinates, which cancel: in float32 a node can
    be 1e-3 away from itself, and more far from 0. Below that number it has no derivatives of
    derivatives, which forces need in training; here there are always some. Half types work.

    **Fused path.** There is none, but types are looked up once a node and not twice a pair, and of
    the Gaussians autograd keeps what they are made from and not each step on the way. The rest is
    torch's.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import SpatialEncoder3d
    >>> encoder = SpatialEncoder3d(num_kernels=4, num_heads=8, max_node_type=3)
    >>> encoder(torch.randn(1, 4, 3), node_type=torch.tensor([[1, 0, 2, 1]])).shape
    torch.Size([1, 4, 4, 8])
    """

    def __init__(self, num_kernels: int, num_heads: int = 1, max_node_type: int = 100) -> None:
        super().__init__()
        self.num_kernels = num_kernels
        self.num_heads = num_heads
        self.max_node_type = max_node_type
        self.means = nn.Parameter(torch.empty(num_kernels))
        self.stds = nn.Parameter(torch.empty(num_kernels))
        self.linear_layer_1 = nn.Linear(num_kernels, num_kernels)
        self.linear_layer_2 = nn.Linear(num_kernels, num_heads)
        self.gamma = nn.Embedding(2 * max_node_type + 3, 1, padding_idx=0)
        self.beta = nn.Embedding(2 * max_node_type + 3, 1, padding_idx=0)
        nn.init.uniform_(self.means, 0, 3)
        nn.init.uniform_(self.stds, 0, 3)
        nn.init.ones_(self.gamma.weight)
        nn.init.zeros_(self.beta.weight)

    def forward(self, coord: Tensor, node_type: Tensor | None = None) -> Tensor:
        """Encode the distances within each set of points.

        Parameters
        ----------
        coord : Tensor
            :math:`r`, (B, N, 3)
        node_type : Tensor, optional
            (B, N), integers from 0, or -1 for padding.

        Returns
        -------
        Tensor
            (B, N, N, H)

        Raises
        ------
        TypeError
            If ``coord`` is no tensor.
        IndexError
            If a type is out of range.
        RuntimeError
            If types do not fit the coordinates, or these have another dtype than the module.
        """
        self._check_points(coord)
        distance = _distances(coord)
        ends = self._ends(node_type, coord)
        gamma, beta = (
            (table(ends[0]).unsqueeze(2) + table(ends[1]).unsqueeze(1))
            for table in (self.gamma, self.beta)
        )
        scaled = gamma * distance.unsqueeze(-1) + beta  # (B, N, N, 1)
        widths = (self.stds.abs() + 1e-2).unsqueeze(-1)
        bells = gaussians(scaled.reshape(-1, 1), self.means.unsqueeze(-1), 1 / widths)
        bells = bells / ((2 * _PI) ** 0.5 * widths.squeeze(-1))
        hidden = F.gelu(self.linear_layer_1(bells.unflatten(0, distance.shape)))
        return self.linear_layer_2(hidden)

    def _check_points(self, coord: Tensor) -> None:
        name = type(self).__name__
        if not isinstance(coord, Tensor):
            raise TypeError(
                f"{name}: expected `coord` to be a tensor, got {type(coord).__name__}; "
                "pass torch.as_tensor(...)"
            )
        if coord.dim() != 3 or not coord.is_floating_point():
            raise RuntimeError(
                f"{name}: expected `coord` of shape (B, N, 3) and a floating-point dtype, got "
                f"{tuple(coord.shape)} and {coord.dtype}"
            )

    def _ends(self, node_type: Tensor | None, coord: Tensor) -> tuple[Tensor, Tensor]:
        """Where both ends of a pair find their numbers, (B, N) or (1, 1) each."""
        if node_type is None:
            default = torch.zeros(1, 1, dtype=torch.int64, device=coord.device)
            return default, default
        if node_type.dim() != 2 or node_type.shape[1] != coord.shape[1]:
            raise RuntimeError(
                f"{type(self).__name__}: expected `node_type` of shape (B, N) = "
                f"{tuple(coord.shape[:2])}, got {tuple(node_type.shape)}"
            )
        return node_type + 2, node_type + self.max_node_type + 3


def _distances(coord: Tensor) -> Tensor:
    """(B, N, N), of half types by way of float32.

    Unlike ``torch.cdist`` it has derivatives of derivatives. Where points coincide, all are 0.
    """
    offsets = coord.unsqueeze(2) - coord.unsqueeze(1)
    squares = offsets.to(accumulation_dtype(coord.dtype)).square().sum(dim=-1)
    is_same = squares == 0
    return squares.masked_fill(is_same, 1).sqrt().masked_fill(is_same, 0).to(coord.dtype)
