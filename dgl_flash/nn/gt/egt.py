"""EGTLayer: attention among all nodes, gated and biased by features of pairs that it updates."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class EGTLayer(nn.Module):
    r"""A layer of the edge-augmented graph transformer, as ``dgl.nn.EGTLayer``.

    .. math::
        s^h_{ij} &= \mathrm{clip}(\langle q^h_i, k^h_j \rangle, -5, 5) + (W_E \bar e_{ij})_h
            \qquad g^h_{ij} = \mathrm{sigmoid}((W_G \bar e_{ij})_h + m_{ij}) \\
        \hat h_i &= h_i + O \Big\Vert_h \log \Big( 1 + \sum_j g^h_{ij} \Big)
            \sum_j \mathrm{softmax}_j(s^h_{ij} + m_{ij}) \, g^h_{ij} \, v^h_j \\
        h'_i &= \hat h_i + \mathrm{FFN}_h(\hat h_i), \qquad
        \hat e_{ij} = e_{ij} + W_O s_{ij}, \qquad
        e'_{ij} = \hat e_{ij} + \mathrm{FFN}_e(\hat e_{ij})

    where :math:`q, k, v` are linear in :math:`\mathrm{LN}(h)`, :math:`\bar e = \mathrm{LN}(e)`, an
    FFN is a norm and two linear maps with an activation between them, and the logarithm is 1 for
    virtual nodes.

    Parameters
    ----------
    feat_size : int
        Width of the nodes.
    edge_feat_size : int
        Width of the pairs.
    num_heads : int
        Number of heads, :math:`H`, which has to divide ``feat_size``.
    num_virtual_nodes : int
        How many of the first nodes of every graph are virtual.
    dropout : float
        Dropout on all that is added to a residual. Default 0.
    attn_dropout : float
        Dropout on the gated attention weights. Default 0.
    activation : Module
        Of both FFNs. Default ``nn.ELU()``.
    edge_update : bool
        Whether there is :math:`e'`. Default True.

    Attributes
    ----------
    mha_ln_h, mha_ln_e : LayerNorm
        Norms of nodes and pairs.
    edge_input, gate : Linear
        :math:`W_E` and :math:`W_G`, from edge_feat_size to H.
    qkv_proj : Linear
        From feat_size to 3 * feat_size; of each third, feature :math:`i` belongs to head
        :math:`i \bmod H`.
    node_output : Linear
        :math:`O`.
    node_ffn : Sequential
        :math:`\mathrm{FFN}_h`.
    edge_output : Linear
        :math:`W_O`, from H to edge_feat_size, with ``edge_update``.
    edge_ffn : Sequential
        :math:`\mathrm{FFN}_e`, with ``edge_update``.
    attn_dropout, mha_dropout_h, mha_dropout_e : Dropout
        The last one with ``edge_update``.

    Raises
    ------
    AssertionError
        If ``num_heads`` does not divide ``feat_size``.

    Notes
    -----
    Source: M. S. Hussain, M. J. Zaki, D. Subramanian, "Global Self-Attention as a Replacement for
    Graph Convolution", KDD 2022, https://arxiv.org/abs/2108.03348.

    **Fused path.** There is none: scores are clipped before the bias, gates multiply what softmax
    gives, and the scores are a result. All is torch's, and tensors of shape (B, N, N, H) are held
    for the backward.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import EGTLayer
    >>> layer = EGTLayer(16, 8, num_heads=4, num_virtual_nodes=1)
    >>> nodes, pairs = layer(torch.randn(2, 5, 16), torch.randn(2, 5, 5, 8))
    >>> nodes.shape, pairs.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 5, 5, 8]))
    """

    def __init__(
        self,
        feat_size: int,
        edge_feat_size: int,
        num_heads: int,
        num_virtual_nodes: int,
        dropout: float = 0,
        attn_dropout: float = 0,
        activation: nn.Module = nn.ELU(),  # noqa: B008  (one for all layers, as in DGL)
        edge_update: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.num_virtual_nodes = num_virtual_nodes
        self.edge_update = edge_update
        if feat_size % num_heads != 0:
            raise AssertionError("feat_size must be divisible by num_heads")
        self.dot_dim = feat_size // num_heads
        self.mha_ln_h = nn.LayerNorm(feat_size)
        self.mha_ln_e = nn.LayerNorm(edge_feat_size)
        self.edge_input = nn.Linear(edge_feat_size, num_heads)
        self.qkv_proj = nn.Linear(feat_size, feat_size * 3)
        self.gate = nn.Linear(edge_feat_size, num_heads)
        self.attn_dropout = nn.Dropout(attn_dropout)
        self.node_output = nn.Linear(feat_size, feat_size)
        self.mha_dropout_h = nn.Dropout(dropout)
        self.node_ffn = _feed_forward(feat_size, activation, dropout)
        if edge_update:
            self.edge_output = nn.Linear(num_heads, edge_feat_size)
            self.mha_dropout_e = nn.Dropout(dropout)
            self.edge_ffn = _feed_forward(edge_feat_size, activation, dropout)

    def forward(
        self, nfeat: Tensor, efeat: Tensor, mask: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Let all nodes of each graph attend to each other, and update nodes and pairs.

        Parameters
        ----------
        nfeat : Tensor
            (B, N, feat_size), virtual nodes first.
        efeat : Tensor
            (B, N, N, edge_feat_size)
        mask : Tensor, optional
            :math:`m`, (B, N, N), 0 where a node sees another and -inf where it does not. Leave each
            row something to see.

        Returns
        -------
        Tensor or pair of Tensor
            (B, N, feat_size), and with ``edge_update`` (B, N, N, edge_feat_size).

        Raises
        ------
        TypeError
            If features are no tensors.
        ValueError
            If ``nfeat`` has not three dimensions.
        RuntimeError
            If shapes do not fit, or features have another dtype or width than the module.
        """
        pairs = self.mha_ln_e(efeat)
        qkv = self.qkv_proj(self.mha_ln_h(nfeat))
        bias, gates = self.edge_input(pairs), self.gate(pairs)
        batch_size, num_nodes, _ = qkv.shape
        # (B, N, D, H) each
        heads = qkv.view(batch_size, num_nodes, -1, self.num_heads)
        q, k, v = heads.split(self.dot_dim, dim=2)
        scores = torch.einsum("bldh,bmdh->blmh", q, k).clamp(-5, 5) + bias
        seen = scores
        if mask is not None:
            gates, seen = gates + mask.unsqueeze(-1), scores + mask.unsqueeze(-1)
        gates = torch.sigmoid(gates)
        weights = self.attn_dropout(seen.softmax(dim=2) * gates)
        values = torch.einsum("blmh,bmkh->blkh", weights, v)
        scale = torch.log(1 + gates.sum(dim=2, keepdim=True))
        scale[:, : self.num_virtual_nodes] = 1.0
        values = (values * scale).reshape(batch_size, num_nodes, self.num_heads * self.dot_dim)
        # In place, which under autocast decides on the dtype of the result.
        nodes = self.mha_dropout_h(self.node_output(values)).add_(nfeat)
        nodes = self.node_ffn(nodes).add_(nodes)
        if not self.edge_update:
            return nodes
        edges = self.mha_dropout_e(self.edge_output(scores)).add_(efeat)
        return nodes, self.edge_ffn(edges).add_(edges)


def _feed_forward(width: int, activation: nn.Module, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.LayerNorm(width),
        nn.Linear(width, width),
        activation,
        nn.Linear(width, width),
        nn.Dropout(dropout),
    )
