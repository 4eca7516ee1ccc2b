"""PathEncoder: the edges on the shortest path between two nodes as a bias of their attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PathEncoder(nn.Module):
    r"""Encoding of shortest paths, with the interface of ``dgl.nn.PathEncoder``.

    .. math::
        c^h_{ij} = \frac{1}{\min(\max(d_{ij}, 1), L)} \sum_{l=1}^{L} \langle x_{ijl}, w^h_l \rangle

    where :math:`x_{ijl}` are the features of edge :math:`l` on the path from :math:`i` to
    :math:`j`, 0 beyond its end, and :math:`d_{ij}` its length.

    Parameters
    ----------
    max_len : int
        :math:`L`, edges of a path that count.
    feat_dim : int
        Width of the features of edges.
    num_heads : int
        Heads of the attention, :math:`H`. Default 1.

    Attributes
    ----------
    embedding_table : Embedding
        :math:`w`, (max_len * num_heads, feat_dim), position after position.

    Notes
    -----
    Source: C. Ying, T. Cai, S. Luo, S. Zheng, G. Ke, D. He, Y. Shen, T.-Y. Liu, "Do Transformers
    Really Perform Bad for Graph Representation?", NeurIPS 2021, https://arxiv.org/abs/2106.05234.

    **Fused path.** There is none: all pairs of nodes are the rows of one matrix product, torch's,
    in which heads are columns.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import PathEncoder
    >>> dist = torch.tensor([[[0, 1], [1, 0]]])
    >>> PathEncoder(3, 16, num_heads=8)(dist, torch.randn(1, 2, 2, 3, 16)).shape
    torch.Size([1, 2, 2, 8])
    """

    def __init__(self, max_len: int, feat_dim: int, num_heads: int = 1) -> None:
        super().__init__()
        self.max_len = max_len
        self.feat_dim = feat_dim
        self.num_heads = num_heads
        self.embedding_table = nn.Embedding(max_len * num_heads, feat_dim)

    def forward(self, dist: Tensor, path_data: Tensor) -> Tensor:
        """Average what the edges of each path contribute.

        Parameters
        ----------
        dist : Tensor
            :math:`d`, (B, N, N), as ``dgl.shortest_dist`` gives it, padded with anything.
        path_data : Tensor
            :math:`x`, (B, N, N, max_len, feat_dim), with 0 where there is no edge. As in DGL,
            longer paths are not cut here.

        Returns
        -------
        Tensor
            (B, N, N, H)

        Raises
        ------
        TypeError
            If an argument is no tensor.
        RuntimeError
            If shapes do not fit, or features have another dtype than the module.
        """
        lengths = torch.clamp(dist, min=1, max=self.max_len)
        weight = self.embedding_table.weight.reshape(self.max_len, self.num_heads, -1)
        return torch.einsum("bxyld,lhd->bxyh", path_data, weight) / lengths.unsqueeze(-1)
