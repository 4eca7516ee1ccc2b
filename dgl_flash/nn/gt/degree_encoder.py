"""DegreeEncoder: a learned vector for every degree."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class DegreeEncoder(nn.Module):
    r"""Embedding of degrees, with the interface of ``dgl.nn.DegreeEncoder``.

    .. math::
        z_v = E^-_{\min(d^-_v, M)} + E^+_{\min(d^+_v, M)}

    of in-degrees :math:`d^-` and out-degrees :math:`d^+`, or one of the two terms. Degree 0, which
    is also that of padding, is encoded as 0 and not learned.

    Parameters
    ----------
    max_degree : int
        :math:`M`; larger degrees are treated as this one, negative ones as 0.
    embedding_dim : int
        Width of the result.
    direction : {"both", "in", "out"}
        Which degrees there are. Default ``"both"``.

    Attributes
    ----------
    encoder1, encoder2 : Embedding
        :math:`E^-` and :math:`E^+`, (max_degree + 1, embedding_dim), with ``"both"``.
    encoder : Embedding
        The only one, with ``"in"`` and ``"out"``.

    Notes
    -----
    Source: C. Ying, T. Cai, S. Luo, S. Zheng, G. Ke, D. He, Y. Shen, T.-Y. Liu, "Do Transformers
    Really Perform Bad for Graph Representation?", NeurIPS 2021, https://arxiv.org/abs/2106.05234.

    **Fused path.** There is none: rows are looked up by torch.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import DegreeEncoder
    >>> in_degrees, out_degrees = torch.tensor([[1, 2, 1]]), torch.tensor([[2, 1, 1]])
    >>> DegreeEncoder(5, 16)(torch.stack([in_degrees, out_degrees])).shape
    torch.Size([1, 3, 16])
    """

    def __init__(self, max_degree: int, embedding_dim: int, direction: str = "both") -> None:
        super().__init__()
        self.direction = direction
        self.max_degree = max_degree
        size = max_degree + 1
        if direction == "both":
            self.encoder1 = nn.Embedding(size, embedding_dim, padding_idx=0)
            self.encoder2 = nn.Embedding(size, embedding_dim, padding_idx=0)
        else:
            self.encoder = nn.Embedding(size, embedding_dim, padding_idx=0)

    def forward(self, degrees: Tensor) -> Tensor:
        """Look degrees up.

        Parameters
        ----------
        degrees : Tensor
            (2, B, N) with ``"both"``, in-degrees first, else (B, N); integers, padded with 0.

        Returns
        -------
        Tensor
            (B, N, embedding_dim)

        Raises
        ------
        TypeError
            If ``degrees`` is no tensor.
        AssertionError
            If it has another number of dimensions.
        ValueError
            If the module was built for a direction that does not exist.
        RuntimeError
            If degrees are no integers.
        """
        degrees = torch.clamp(degrees, min=0, max=self.max_degree)
        if self.direction in ("in", "out"):
            if degrees.dim() != 2:
                raise AssertionError
            return self.encoder(degrees)
        if self.direction == "both":
            if degrees.dim() != 3 or degrees.shape[0] != 2:
                raise AssertionError
            return self.encoder1(degrees[0]) + self.encoder2(degrees[1])
        raise ValueError(
            f'Supported direction options: "in", "out" and "both", but got {self.direction}'
        )
