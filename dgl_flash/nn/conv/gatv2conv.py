"""GATv2Conv: graph attention that ranks the sources differently for every destination."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, expand_as_pair, read_graph


class GATv2Conv(nn.Module):
    r"""Graph attention of the second kind, with the interface of ``dgl.nn.GATv2Conv``.

    .. math::
        h'_v &= \sum_{u \in \mathcal{N}(v)} \alpha_{uv} \, W_{src} h_u

        \alpha_{uv} &= \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            a^T \mathrm{LeakyReLU}(W_{src} h_u + W_{dst} h_v) \right)

    independently in each of :math:`H` heads. The nonlinearity sits between the weights and the
    attention vector, so that, unlike in GAT, two destinations may rank the same sources
    differently.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width, of the sources and of the destinations if a pair.
    out_feats : int
        Output width of one head, :math:`D`.
    num_heads : int
        Number of heads, :math:`H`.
    feat_drop : float
        Dropout on the input features. Default 0.
    attn_drop : float
        Dropout on the attention weights. Default 0.
    negative_slope : float
        Slope of the leaky ReLU below 0. Default 0.2.
    residual : bool
        Add the destinations' input, projected to :math:`H \cdot D` unless it already has that
        width. Default False.
    activation : callable, optional
        Applied last.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive zeros (and the residual).
        Default False.
    bias : bool
        Whether the linear layers have a bias. Default True.
    share_weights : bool
        Use one linear layer for both sides, if ``in_feats`` is an int. Both names stay in the
        ``state_dict``. Default False.

    Notes
    -----
    Source: S. Brody, U. Alon, E. Yahav, "How Attentive are Graph Attention Networks?", ICLR 2022,
    https://arxiv.org/abs/2105.14491.

    **Fused path.** Score, softmax, dropout of the attention and weighted sum run in one CUDA
    kernel, in float64, float32, float16 and bfloat16, for any number of heads and a head width up
    to 512; memory for edges times width is never needed, and ``get_attention`` adds one kernel
    that writes (E, H) numbers. Wider heads, and the CPU, compute the scores by chunks of edges and
    go on with the softmax and the sum. ``dgl_flash.explain`` says which one a call takes.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GATv2Conv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GATv2Conv(8, 5, num_heads=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 2, 5])
    """

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        num_heads: int,
        feat_drop: float = 0.0,
        attn_drop: float = 0.0,
        negative_slope: float = 0.2,
        residual: bool = False,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
        bias: bool = True,
        share_weights: bool = False,
    ) -> None:
        super().__init__()
        self._num_heads = num_heads
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._allow_zero_in_degree = allow_zero_in_degree
        width = num_heads * out_feats
        self.fc_src = nn.Linear(self._in_src_feats, width, bias=bias)
        if share_weights and not isinstance(in_feats, tuple):
            self.fc_dst = self.fc_src
        else:
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=bias)
        self.attn = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.res_fc: nn.Module | None
        if not residual:
            self.register_buffer("res_fc", None)
        elif self._in_dst_feats == width:
            self.res_fc = nn.Identity()
        else:
            self.res_fc = nn.Linear(self._in_dst_feats, width, bias=bias)
        self.activation = activation
        self.share_weights = share_weights
        self.bias = bias
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights from Glorot's normal distribution and set the biases to 0."""
        gain = nn.init.calculate_gain("relu")
        linears = [self.fc_src] if self.share_weights else [self.fc_src, self.fc_dst]
        for linear in linears:
            self._reset_linear(linear, gain)
        nn.init.xavier_normal_(self.attn, gain=gain)
        if isinstance(self.res_fc, nn.Linear):
            self._reset_linear(self.res_fc, gain)

    def _reset_linear(self, linear: nn.Linear, gain: float) -> None:
        nn.init.xavier_normal_(linear.weight, gain=gain)
        if self.bias:
            nn.init.zeros_(linear.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) destinations without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(
        self, graph: Any, feat: Tensor | tuple[Tensor, Tensor], get_attention: bool = False
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Attend over the in-edges of every destination.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, in_src_feats) and (N_dst, in_dst_feats).
        get_attention : bool
            Also return the attention weights. Default False.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            (N_dst, H, D) and, if asked for, (E, H, 1) in edge-id order, after dropout.

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False.
        TypeError
            If ``graph`` is no graph.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        if isinstance(feat, tuple):
            h_src, h_dst = self.feat_drop(feat[0]), self.feat_drop(feat[1])
        else:
            h_src, h_dst = expand_as_pair(self.feat_drop(feat), graph)
        feat_src = self._split_heads(self.fc_src(h_src))
        if self.share_weights and not isinstance(feat, tuple):
            _, feat_dst = expand_as_pair(feat_src, graph)
        else:
            feat_dst = self._split_heads(self.fc_dst(h_dst))
        is_usual = computes_as(self.attn_drop, nn.Dropout)
        result = ops.gatv2(
            struct,
            feat_src,
            feat_dst,
            self.attn.squeeze(0),  # unlike self.attn[0], whose gradient is copied into zeros
            self.leaky_relu.negative_slope,
            attn_drop=self.attn_drop.p if is_usual and self.attn_drop.training else 0.0,
            return_attention=get_attention or not is_usual,
        )
        out, attention = result if isinstance(result, tuple) else (result, None)
        if not is_usual:
            attention = self.attn_drop(attention)
            out = ops.u_mul_e_sum(struct, feat_src, attention)
        out = self._finish(out, h_dst)
        return (out, attention) if get_attention and attention is not None else out

    def _finish(self, out: Tensor, h_dst: Tensor) -> Tensor:
        if self.res_fc is not None:
            out = out + self._split_heads(self.res_fc(h_dst))
        return self.activation(out) if self.activation else out

    @property
    def _ends_with_attention(self) -> bool:
        return self.res_fc is None and not self.activation

    def _split_heads(self, values: Tensor) -> Tensor:
        return values.reshape(-1, self._num_heads, self._out_feats)
