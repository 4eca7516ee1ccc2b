"""GTLayer: attention and a small network for every node, each with a residual and a norm."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash.nn.common import expand_as_pair
from dgl_flash.nn.gt.sparse_mha import SparseMHA


class GTLayer(nn.Module):
    r"""A layer of the graph transformer.

    .. math::
        \hat{h} &= \mathrm{BN}_1(h + \mathrm{MHA}(G, h)) \\
        h' &= \mathrm{BN}_2(\hat{h} + W_2 \, \mathrm{ReLU}(W_1 \hat{h}))

    where MHA is a :class:`SparseMHA` and BN normalises over the batch.

    ``dgl.nn`` has no such layer. This one takes the place of the class of the same name that users
    of DGL's tutorial on sparse graph transformers write for themselves, and loads its checkpoints.

    Parameters
    ----------
    hidden_size : int
        Input and output width. Default 80.
    num_heads : int
        Number of heads, which has to divide ``hidden_size``. Default 8.
    attn_drop : float
        Dropout on the attention weights. Default 0.

    Attributes
    ----------
    MHA : SparseMHA
        The attention.
    batchnorm1, batchnorm2 : BatchNorm1d
        The norms.
    FFN1, FFN2 : Linear
        :math:`W_1` and :math:`W_2`, with biases; in between the width is 2 * hidden_size.

    Raises
    ------
    ValueError
        If ``num_heads`` does not divide ``hidden_size``.

    Notes
    -----
    Source: V. P. Dwivedi, X. Bresson, "A Generalization of Transformer Networks to Graphs", AAAI
    2021 Workshop on Deep Learning on Graphs, https://arxiv.org/abs/2012.09699.

    **Fused path.** That of :class:`SparseMHA`; all else is torch's, on rows of nodes.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GTLayer
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> layer = GTLayer(16, num_heads=4)
    >>> layer(graph, torch.randn(4, 16)).shape
    torch.Size([4, 16])
    """

    def __init__(self, hidden_size: int = 80, num_heads: int = 8, attn_drop: float = 0.0) -> None:
        super().__init__()
        self.MHA = SparseMHA(hidden_size, num_heads, attn_drop)
        self.batchnorm1 = nn.BatchNorm1d(hidden_size)
        self.batchnorm2 = nn.BatchNorm1d(hidden_size)
        self.FFN1 = nn.Linear(hidden_size, hidden_size * 2)
        self.FFN2 = nn.Linear(hidden_size * 2, hidden_size)

    def forward(self, graph: Any, h: Tensor, edge_bias: Tensor | None = None) -> Tensor:
        """Attend over the in-edges of every node, then transform each node.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock, dgl_flash.Graph or sparse matrix
            As :class:`SparseMHA` takes it.
        h : Tensor
            (N, hidden_size)
        edge_bias : Tensor, optional
            (E,) or (E, H) in edge-id order, added to the scores.

        Returns
        -------
        Tensor
            (N_dst, hidden_size)

        Raises
        ------
        TypeError
            If ``graph`` is no graph, ``h`` no tensor, or dtypes differ.
        ValueError
            If the features do not fit the graph, sources and destinations are two sets of nodes, or
            a single node is to be normalised in training.
        RuntimeError
            If the features have another dtype or width than the module.
        """
        attended = self.MHA(graph, h, edge_bias)
        h = self.batchnorm1(attended + expand_as_pair(h, graph)[1])
        return self.batchnorm2(h + self.FFN2(F.relu(self.FFN1(h))))
