"""CuGraphGATConv: GATConv with one vector for all of the attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.conv.cugraph_base import CuGraphBaseConv, read_inputs
from dgl_flash.nn.conv.gatconv import dot_heads


class CuGraphGATConv(CuGraphBaseConv):
    r"""Graph attention, with the interface of ``dgl.nn.CuGraphGATConv`` and without cuGraph.

    .. math::
        h'_v &= \sum_{u \in \mathcal{N}(v)} \alpha_{uv} \, W h_u

        \alpha_{uv} &= \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            \mathrm{LeakyReLU}(a_l^T W h_u + a_r^T W h_v) \right)

    independently in each of :math:`H` heads.

    Parameters
    ----------
    in_feats : int
        Input width.
    out_feats : int
        Output width of one head, :math:`D`.
    num_heads : int
        Number of heads, :math:`H`.
    feat_drop : float
        Dropout on the input features. Default 0.
    negative_slope : float
        Slope of the leaky ReLU below 0. Default 0.2.
    residual : bool
        Add the destinations' input, projected to :math:`H \cdot D` unless it already has that
        width. Default False.
    activation : callable, optional
        Applied last.
    bias : bool
        Whether there is a bias. Default True.

    Attributes
    ----------
    fc : nn.Linear
        :math:`W`, without bias.
    attn_weights : Parameter
        (2 H D,), :math:`a_l` of all heads, then :math:`a_r` of all heads: ``attn_l`` and
        ``attn_r`` of :class:`GATConv`.
    bias : Parameter or None
        (H D,)
    res_fc : nn.Linear, nn.Identity or None
        For the residual, without bias.

    Notes
    -----
    Source: P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio, "Graph Attention
    Networks", ICLR 2018, https://arxiv.org/abs/1710.10903.

    Destinations without in-edges receive zeros (and residual and bias) without a question.

    DGL's class needs pylibcugraphops 23.04, thus Python 3.8 or 3.10 and a GPU. This one reads its
    checkpoints and runs wherever this package does.

    **Fused path.** Scores, softmax and weighted sum run in one CUDA kernel (``dgl_flash.ops.gat``),
    as in :class:`GATConv`.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import CuGraphGATConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = CuGraphGATConv(8, 5, num_heads=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 2, 5])
    """

    MAX_IN_DEGREE_MFG = 200
    bias: nn.Parameter | None
    res_fc: nn.Module | None

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.in_feats = in_feats
        self.out_feats = out_feats
        self.num_heads = num_heads
        self.feat_drop = nn.Dropout(feat_drop)
        self.negative_slope = negative_slope
        self.activation = activation
        width = num_heads * out_feats
        self.fc = nn.Linear(in_feats, width, bias=False)
        self.attn_weights = nn.Parameter(torch.empty(2 * width))
        if bias:
            self.bias = nn.Parameter(torch.empty(width))
        else:
            self.register_buffer("bias", None)
        if not residual:
            self.register_buffer("res_fc", None)
        elif in_feats == width:
            self.res_fc = nn.Identity()
        else:
            self.res_fc = nn.Linear(in_feats, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw matrix and attention from Glorot's normal distribution; the bias becomes 0.

        The matrix of the residual is drawn as ``torch.nn.Linear`` does.
        """
        gain = nn.init.calculate_gain("relu")
        nn.init.xavier_normal_(self.fc.weight, gain=gain)
        nn.init.xavier_normal_(self._attention(), gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            self.res_fc.reset_parameters()

    def _attention(self) -> Tensor:
        """Both vectors of each head, (2, H, D)."""
        return self.attn_weights.view(2, self.num_heads, self.out_feats)

    def forward(self, g: Any, feat: Tensor, max_in_degree: int | None = None) -> Tensor:
        """Attend over the in-edges of every destination.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N_src, in_feats), the first rows are the destinations.
        max_in_degree : int, optional
            Not needed: no kernel here has a limit, and nothing asks for it.

        Returns
        -------
        Tensor
            (N_dst, H, D)

        Raises
        ------
        TypeError
            If ``g`` is no graph, or ``feat`` no tensor.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features do not fit the module, in width or dtype.
        """
        struct = read_inputs(self, g, feat)
        feat = self.feat_drop(feat)
        heads = self.num_heads, self.out_feats
        feat_src = self.fc(feat).unflatten(-1, heads)
        el, er = dot_heads(feat_src, *self._attention().split(1)).chunk(2, dim=-1)
        out = ops.gat(struct, feat_src, el, er[: struct.num_dst], self.negative_slope)
        assert isinstance(out, Tensor)  # a pair comes with the attention only
        if self.res_fc is not None:
            out = out + self.res_fc(feat[: struct.num_dst]).unflatten(-1, heads)
        if self.bias is not None:
            out = out + self.bias.unflatten(0, heads)
        return out if self.activation is None else self.activation(out)
