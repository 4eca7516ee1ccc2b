"""DenseSAGEConv: GraphSAGE on an adjacency matrix."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dgl_flash.nn.common import check_eq_shape, expand_as_pair, read_dense


class DenseSAGEConv(nn.Module):
    r"""GraphSAGE on a dense adjacency, with the interface of ``dgl.nn.DenseSAGEConv``.

    .. math::
        h'_v = \mathrm{norm} \left( \sigma \left( W \,
        \frac{h_v + \sum_u A_{vu} h_u}{1 + \sum_u A_{vu}} + b \right) \right)

    This is the aggregator ``"gcn"`` of :class:`SAGEConv`, the only one here.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    feat_drop : float
        Dropout on the features. Default 0.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    norm : callable, optional
        Applied to the output, after the activation.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    fc : nn.Linear
        :math:`W` and :math:`b`.

    Notes
    -----
    Source: W. L. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large
    Graphs", NeurIPS 2017, https://arxiv.org/abs/1706.02216.

    **Fused path.** None: products of dense matrices are torch's, on any device, and there are no
    edges. For a sparse graph ``SAGEConv`` needs far less time and memory.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import DenseSAGEConv
    >>> conv = DenseSAGEConv(8, 5)
    >>> conv(torch.eye(4), torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._norm = norm
        self.feat_drop = nn.Dropout(feat_drop)
        self.activation = activation
        self.fc = nn.Linear(in_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution; the bias keeps its values."""
        nn.init.xavier_uniform_(self.fc.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, adj: Tensor, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        """Average over each row's neighbours and the node itself.

        Parameters
        ----------
        adj : Tensor
            (N_dst, N_src), of any dtype and on any device; it is converted to those of ``feat``.
        feat : Tensor or pair of Tensor
            (N, in_feats), or (N_src, in_feats) and (N_dst, in_feats).

        Returns
        -------
        Tensor
            (N_dst, out_feats)

        Raises
        ------
        DGLError
            If the two of a pair differ in width.
        TypeError
            If an argument is no tensor.
        ValueError
            If the adjacency is no dense matrix with a column for each row of the features.
        """
        adj = read_dense(self, adj, feat)
        check_eq_shape(feat)
        if isinstance(feat, tuple):
            feat_src, feat_dst = self.feat_drop(feat[0]), self.feat_drop(feat[1])
        else:
            feat_src, feat_dst = expand_as_pair(self.feat_drop(feat))
        in_degrees = adj.sum(dim=1, keepdim=True)
        out = self.fc((adj @ feat_src + feat_dst) / (in_degrees + 1))
        if self.activation is not None:
            out = self.activation(out)
        if self._norm is not None:
            out = self._norm(out)
        return out
