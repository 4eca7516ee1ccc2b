"""DenseChebConv: Chebyshev filters on an adjacency matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgl_flash.nn.common import read_dense


class DenseChebConv(nn.Module):
    r"""Chebyshev convolution on a dense adjacency, with the interface of ``dgl.nn.DenseChebConv``.

    .. math::
        h' = b + \sum_{i=0}^{k-1} Z_i \, W_i, \qquad
        Z_0 = h, \quad Z_1 = \hat{L} h, \quad Z_i = 2 \hat{L} Z_{i-1} - Z_{i-2}

        \hat{L} = \frac{2}{\lambda_{max}} \left( I - D^{-1/2} A D^{-1/2} \right) - I

    where :math:`D` holds the sums of the rows of :math:`A`; sums below 1 count as 1.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    k : int
        Number of filters.
    bias : bool
        Whether there is a bias :math:`b`. Default True.

    Attributes
    ----------
    W : Parameter
        (k, in_feats, out_feats)
    bias : Parameter or None
        (out_feats,)

    Notes
    -----
    Source: M. Defferrard, X. Bresson, P. Vandergheynst, "Convolutional Neural Networks on Graphs
    with Fast Localized Spectral Filtering", NeurIPS 2016, https://arxiv.org/abs/1606.09375.

    Without ``lambda_max`` DGL 2.1.0 calls a function that torch has removed, and fails. Here
    :math:`\lambda_{max}` is then the largest real part of an eigenvalue of the Laplacian, which is
    what DGL asked of the old function.

    **Fused path.** None: products of dense matrices are torch's, on any device, and there are no
    edges. The recurrence runs on the features, (N, in_feats) at a time, and no polynomial of the
    Laplacian, (N, N), is formed. For a sparse graph use ``ChebConv``.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import DenseChebConv
    >>> conv = DenseChebConv(8, 5, 3)
    >>> conv(1 - torch.eye(4), torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    bias: nn.Parameter | None

    def __init__(self, in_feats: int, out_feats: int, k: int, bias: bool = True) -> None:
        super().__init__()
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._k = k
        self.W = nn.Parameter(torch.empty(k, in_feats, out_feats))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_feats))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the filters from Glorot's normal distribution and set the bias to 0."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        for i in range(self._k):
            nn.init.xavier_normal_(self.W[i], nn.init.calculate_gain("relu"))

    def forward(
        self, adj: Tensor, feat: Tensor, lambda_max: float | Tensor | None = None
    ) -> Tensor:
        """Filter the features of the nodes.

        Parameters
        ----------
        adj : Tensor
            (N, N), row = destination, of any dtype and on any device; it is converted to those of
            ``feat``.
        feat : Tensor
            (N, in_feats)
        lambda_max : float or Tensor of one element, optional
            Largest eigenvalue of the Laplacian; computed when not given, which takes far longer
            than all the rest.

        Returns
        -------
        Tensor
            (N, out_feats)

        Raises
        ------
        TypeError
            If an argument is no tensor.
        ValueError
            If the adjacency is no dense square matrix with a row for each row of the features.
        """
        adj = read_dense(self, adj, feat, square=True)
        scale = adj.sum(dim=1, keepdim=True).clamp(min=1).rsqrt()
        # terms[-1] is the polynomial of the current filter, applied to the features.
        terms = [feat]
        out = feat @ self.W[0]
        if lambda_max is None:
            lambda_max = _largest_eigenvalue(adj, scale) if self._k > 1 else 1.0
        for i in range(1, self._k):
            laplacian = terms[-1] - scale * (adj @ (scale * terms[-1]))
            shifted = 2 * laplacian / lambda_max - terms[-1]
            terms.append(shifted if i == 1 else 2 * shifted - terms[-2])
            out = out + terms[-1] @ self.W[i]
        if self.bias is not None:
            out = out + self.bias
        return out


def _largest_eigenvalue(adj: Tensor, scale: Tensor) -> Tensor:
    """Largest real part of an eigenvalue of the normalised Laplacian."""
    # Half types have no eigenvalue solver.
    wide = torch.float64 if adj.dtype == torch.float64 else torch.float32
    similar = (scale * adj * scale.t()).to(wide)
    # Those of I - B are 1 minus those of B, and the largest stems from the smallest.
    return (1 - torch.linalg.eigvals(similar).real.min()).to(adj.dtype)
