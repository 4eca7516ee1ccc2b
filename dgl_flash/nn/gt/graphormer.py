"""GraphormerLayer: biased attention and a small network, each with a residual and a norm."""

from __future__ import annotations

from torch import Tensor, nn

from dgl_flash.nn.gt.biased_mha import BiasedMHA


class GraphormerLayer(nn.Module):
    r"""A layer of Graphormer, with the interface of ``dgl.nn.GraphormerLayer``.

    .. math::
        \hat h &= \mathrm{LN}_1(h + \mathrm{MHA}(h, b)) \\
        h' &= \mathrm{LN}_2(\hat h + W_2 \, \sigma(W_1 \hat h))

    where MHA is a :class:`BiasedMHA`; with ``norm_first`` both norms stand before what is added:

    .. math::
        \hat h = h + \mathrm{MHA}(\mathrm{LN}_1(h), b), \qquad
        h' = \hat h + W_2 \, \sigma(W_1 \, \mathrm{LN}_2(\hat h))

    Parameters
    ----------
    feat_size : int
        Input and output width.
    hidden_size : int
        Width between :math:`W_1` and :math:`W_2`.
    num_heads : int
        Number of heads, :math:`H`, which has to divide ``feat_size``.
    attn_bias_type : str
        As in :class:`BiasedMHA`. Default ``"add"``.
    norm_first : bool
        Where the norms stand. Default False.
    dropout : float
        Dropout on what is added to the residuals, and after the activation. Default 0.1.
    attn_dropout : float
        Dropout on the attention weights. Default 0.1.
    activation : Module
        :math:`\sigma`. Default ``nn.ReLU()``.

    Attributes
    ----------
    attn : BiasedMHA
        The attention.
    ffn : Sequential
        :math:`W_1`, activation, dropout, :math:`W_2`, dropout.
    dropout : Dropout
        Of what the attention has found.
    attn_layer_norm, ffn_layer_norm : LayerNorm
        The norms.

    Raises
    ------
    AssertionError
        If ``num_heads`` does not divide ``feat_size``.

    Notes
    -----
    Source: C. Ying, T. Cai, S. Luo, S. Zheng, G. Ke, D. He, Y. Shen, T.-Y. Liu, "Do Transformers
    Really Perform Bad for Graph Representation?", NeurIPS 2021, https://arxiv.org/abs/2106.05234.

    **Fused path.** That of :class:`BiasedMHA`; all else is torch's, on rows of nodes.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import GraphormerLayer
    >>> bias = torch.zeros(2, 5, 5, 4)
    >>> GraphormerLayer(16, hidden_size=32, num_heads=4)(torch.randn(2, 5, 16), bias).shape
    torch.Size([2, 5, 16])
    """

    def __init__(
        self,
        feat_size: int,
        hidden_size: int,
        num_heads: int,
        attn_bias_type: str = "add",
        norm_first: bool = False,
        dropout: float = 0.1,
        attn_dropout: float = 0.1,
        activation: nn.Module = nn.ReLU(),  # noqa: B008  (one for all layers, as in DGL)
    ) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attn = BiasedMHA(
            feat_size, num_heads, attn_bias_type=attn_bias_type, attn_drop=attn_dropout
        )
        self.ffn = nn.Sequential(
            nn.Linear(feat_size, hidden_size),
            activation,
            nn.Dropout(dropout),
            nn.Linear(hidden_size, feat_size),
            nn.Dropout(dropout),
        )
        self.dropout = nn.Dropout(dropout)
        self.attn_layer_norm = nn.LayerNorm(feat_size)
        self.ffn_layer_norm = nn.LayerNorm(feat_size)

    def forward(
        self, nfeat: Tensor, attn_bias: Tensor | None = None, attn_mask: Tensor | None = None
    ) -> Tensor:
        """Attend within each graph, then transform each node.

        Parameters
        ----------
        nfeat : Tensor
            (B, N, feat_size)
        attn_bias : Tensor, optional
            (B, N, N, H)
        attn_mask : Tensor, optional
            (B, N, N), true where a node shall not see another.

        Returns
        -------
        Tensor
            (B, N, feat_size)

        Raises
        ------
        TypeError
            If ``nfeat`` is no tensor.
        ValueError
            If ``nfeat`` has not three dimensions.
        IndexError
            If the mask does not fit.
        RuntimeError
            If the bias does not fit, or features have another dtype or width than the module.
        """
        if self.norm_first:
            found = self.attn(self.attn_layer_norm(nfeat), attn_bias, attn_mask)
            nfeat = nfeat + self.dropout(found)
            return nfeat + self.ffn(self.ffn_layer_norm(nfeat))
        found = self.attn(nfeat, attn_bias, attn_mask)
        nfeat = self.attn_layer_norm(nfeat + self.dropout(found))
        return self.ffn_layer_norm(nfeat + self.ffn(nfeat))
