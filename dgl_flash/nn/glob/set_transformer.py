"""The set transformer: an encoder of the nodes of each graph, and a decoder that reads them out."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.glob.common import read_members
from dgl_flash.nn.glob.set_attention import sets_of
from dgl_flash.nn.glob.set_blocks import InducedSetAttentionBlock, PMALayer, SetAttentionBlock


class SetTransformerEncoder(nn.Module):
    r"""Attention among the nodes of each graph, as ``dgl.nn.SetTransformerEncoder``.

    .. math::
        \mathrm{SAB}(x) = \mathrm{MHA}(x, x), \qquad
        \mathrm{ISAB}(x) = \mathrm{MHA}(x, \mathrm{MHA}(I, x))

    with learned rows :math:`I` and
    :class:`~dgl_flash.nn.glob.MultiHeadAttention` MHA. The edges of the graph play no part.

    Parameters
    ----------
    d_model : int
        Width of the features and of the result.
    n_heads : int
        Heads of each attention.
    d_head : int
        Width of each head.
    d_ff : int
        Inner width of the feed-forward parts.
    n_layers : int
        Number of blocks. Default 1.
    block_type : {"sab", "isab"}
        Which block. Default "sab".
    m : int, optional
        Number of rows of :math:`I`, which "isab" needs.
    dropouth : float
        Dropout in the feed-forward parts. Default 0.
    dropouta : float
        Held and not applied, as in DGL. Default 0.

    Attributes
    ----------
    layers : ModuleList
        The blocks.

    Raises
    ------
    KeyError
        If the block is unknown, or "isab" without ``m``.

    Notes
    -----
    Source: J. Lee et al., "Set Transformer: A Framework for Attention-based
    Permutation-Invariant Neural Networks", ICML 2019, https://arxiv.org/abs/1810.00825.

    Where DGL is wrong: graphs without nodes can stand anywhere in a batch. DGL raises an IndexError
    if one is the last, and otherwise mixes up the nodes of the others.

    **Fused path.** Batched products of torch. Graphs of 1, 2, 3 to 4, 5 to 8, ... nodes form a
    batch each, filled up to its largest, so that scores need at most 4 times the memory of the
    pairs of nodes there are, and one large graph among small ones costs no more than itself; DGL
    fills up all graphs to the largest. More than 2**26 scores of a batch are made in parts, and
    again in the backward pass: memory then grows with nodes and not with their pairs. The host
    waits for nothing if the graph is on the CPU, and reads the sizes once if it is on a GPU. Two
    runs do not differ in a bit.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SetTransformerEncoder
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> encoder = SetTransformerEncoder(8, n_heads=2, d_head=4, d_ff=16)
    >>> encoder(graph, torch.randn(3, 8)).shape
    torch.Size([3, 8])
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int,
        d_ff: int,
        n_layers: int = 1,
        block_type: str = "sab",
        m: int | None = None,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.block_type = block_type
        self.m = m
        if block_type == "isab" and m is None:
            raise KeyError("The number of inducing points is not specified in ISAB block.")
        sizes = (d_model, n_heads, d_head, d_ff, dropouth, dropouta)
        layers: list[nn.Module] = []
        for _ in range(n_layers):
            if block_type == "sab":
                layers.append(SetAttentionBlock(*sizes))
            elif block_type == "isab" and m is not None:
                layers.append(InducedSetAttentionBlock(m, *sizes))
            else:
                raise KeyError(f"Unrecognized block type {block_type}: we only support sab/isab")
        self.layers = nn.ModuleList(layers)

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Attend among the nodes of each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, d_model)

        Returns
        -------
        Tensor
            (N, d_model)

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        RuntimeError
            If the features have another dtype or width than the module.
        """
        sets = sets_of(read_members(self, graph, feat).sizes, feat.device)
        for layer in self.layers:
            feat = layer(feat, sets)
        return feat


class SetTransformerDecoder(nn.Module):
    r"""Read-out by attention of learned rows, as ``dgl.nn.SetTransformerDecoder``.

    .. math::
        r = \mathrm{SAB}(\dots \mathrm{SAB}(\mathrm{PMA}(x))), \qquad
        \mathrm{PMA}(x) = \mathrm{MHA}(S, \mathrm{FF}(x))

    with k learned rows :math:`S`, a feed-forward part FF and
    :class:`~dgl_flash.nn.glob.MultiHeadAttention` MHA, see :class:`SetTransformerEncoder`.

    Parameters
    ----------
    d_model : int
        Width of the features; the result has k times that.
    num_heads : int
        Heads of each attention.
    d_head : int
        Width of each head.
    d_ff : int
        Inner width of the feed-forward parts.
    n_layers : int
        Number of blocks SAB.
    k : int
        Number of rows of :math:`S`.
    dropouth : float
        Dropout in the feed-forward parts. Default 0.
    dropouta : float
        Held and not applied, as in DGL. Default 0.

    Attributes
    ----------
    pma : PMALayer
        The pooling.
    layers : ModuleList
        The blocks SAB.

    Notes
    -----
    Source: J. Lee et al., "Set Transformer: A Framework for Attention-based
    Permutation-Invariant Neural Networks", ICML 2019, https://arxiv.org/abs/1810.00825.

    Where DGL is wrong: graphs without nodes can stand anywhere in a batch, see
    :class:`SetTransformerEncoder`; :math:`S` attends to nothing there.

    **Fused path.** That of :class:`SetTransformerEncoder`, with at most 2 * k * N + B * k scores a
    head in the pooling, B * k * k in each block.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SetTransformerDecoder
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> decoder = SetTransformerDecoder(8, num_heads=2, d_head=4, d_ff=16, n_layers=1, k=3)
    >>> decoder(graph, torch.randn(3, 8)).shape
    torch.Size([1, 24])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        n_layers: int,
        k: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.k = k
        self.d_model = d_model
        sizes = (d_model, num_heads, d_head, d_ff, dropouth, dropouta)
        self.pma = PMALayer(k, *sizes)
        self.layers = nn.ModuleList(SetAttentionBlock(*sizes) for _ in range(n_layers))

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Read out each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, d_model)

        Returns
        -------
        Tensor
            (B, k * d_model)

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        RuntimeError
            If the features have another dtype or width than the module.
        """
        sets = sets_of(read_members(self, graph, feat).sizes, feat.device)
        feat = self.pma(feat, sets)
        for layer in self.layers:
            feat = layer(feat, sets.alike(self.k))
        return feat.view(len(sets), self.k * self.d_model)
