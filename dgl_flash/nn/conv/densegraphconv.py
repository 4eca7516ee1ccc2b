"""DenseGraphConv: graph convolution on an adjacency matrix."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dgl_flash.nn.common import read_dense


class DenseGraphConv(nn.Module):
    r"""Graph convolution on a dense adjacency, with the interface of ``dgl.nn.DenseGraphConv``.

    .. math::
        h'_v = \sigma \left( b + \sum_u \frac{A_{vu}}{c_{vu}} \, h_u W \right)

    where :math:`c_{vu}` follows from the sums :math:`d^{in}` of the rows and :math:`d^{out}` of the
    columns of :math:`A`: :math:`\sqrt{d^{out}_u d^{in}_v}` for ``norm="both"``, 1 for ``"none"``,
    :math:`d^{in}_v` for ``"right"``. Sums below 1 count as 1. It equals :class:`GraphConv` where
    :math:`A` has ones for the edges.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    norm : {"both", "right", "none"}
        Default ``"both"``. As in DGL no other value is refused; it means ``"right"``.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    weight : Parameter
        (in_feats, out_feats)
    bias : Parameter or None
        (out_feats,)

    Notes
    -----
    Source: T. N. Kipf, M. Welling, "Semi-Supervised Classification with Graph Convolutional
    Networks", ICLR 2017, https://arxiv.org/abs/1609.02907.

    Features of more than two dimensions are aggregated over the nodes. DGL multiplies the adjacency
    with the trailing dimensions there, which fails or mixes what does not belong together.

    **Fused path.** None: products of dense matrices are torch's, on any device, and there are no
    edges. For a sparse graph :class:`GraphConv` needs far less time and memory.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import DenseGraphConv
    >>> conv = DenseGraphConv(8, 5)
    >>> conv(torch.eye(4), torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._norm = norm
        self.weight = nn.Parameter(torch.empty(in_feats, out_feats))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_feats))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()
        self._activation = activation

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution and set the bias to 0."""
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, adj: Tensor, feat: Tensor) -> Tensor:
        r"""Convolve the features of the columns into the rows of the adjacency.

        Parameters
        ----------
        adj : Tensor
            (N_dst, N_src), of any dtype and on any device; it is converted to those of ``feat``.
        feat : Tensor
            (N_src, \*, in_feats)

        Returns
        -------
        Tensor
            (N_dst, \*, out_feats)

        Raises
        ------
        TypeError
            If an argument is no tensor.
        ValueError
            If the adjacency is no dense matrix with a column for each row of the features.
        """
        adj = read_dense(self, adj, feat)
        project_first = self._in_feats > self._out_feats
        if self._norm == "both":
            feat = _scale_rows(feat, adj.sum(dim=0).clamp(min=1).pow(-0.5))
        if project_first:
            feat = feat @ self.weight
        out = (adj @ feat.flatten(1)).reshape(adj.shape[0], *feat.shape[1:])
        if not project_first:
            out = out @ self.weight
        if self._norm != "none":
            exponent = -0.5 if self._norm == "both" else -1
            out = _scale_rows(out, adj.sum(dim=1).clamp(min=1).pow(exponent))
        if self.bias is not None:
            out = out + self.bias
        if self._activation is not None:
            out = self._activation(out)
        return out


def _scale_rows(feat: Tensor, factor: Tensor) -> Tensor:
    return feat * factor.reshape(-1, *(1,) * (feat.dim() - 1)).to(feat.dtype)
