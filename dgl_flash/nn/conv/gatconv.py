"""GATConv: graph attention, and what its relatives share with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, expand_as_pair, read_graph
from dgl_flash.ops.broadcast import fit, spread
from dgl_flash.structure import GraphStructure


def project(layer: Any, graph: Any, feat: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Drop and project the features of both sides.

    Parameters
    ----------
    layer : GATConv or EdgeGATConv
        With ``fc``, or ``fc_src`` and ``fc_dst``.
    graph : DGLGraph, DGLBlock or dgl_flash.Graph
        Says where the destinations of a single tensor are.
    feat : Tensor or pair of Tensor
        (N, *, in_feats)

    Returns
    -------
    tuple of Tensor
        What is left of the destinations' features, and both projections, (N, *, H, D). Those are
        one tensor where both sides are the same nodes with the same features.

    Raises
    ------
    AttributeError
        If a layer for two widths is given a single tensor, as in DGL.
    """
    one_width = hasattr(layer, "fc")
    heads = layer._num_heads, layer._out_feats
    if isinstance(feat, tuple):
        h_src, h_dst = layer.feat_drop(feat[0]), layer.feat_drop(feat[1])
        fc_src = layer.fc if one_width else layer.fc_src
        fc_dst = layer.fc if one_width else layer.fc_dst
        return h_dst, fc_src(h_src).unflatten(-1, heads), fc_dst(h_dst).unflatten(-1, heads)
    if not one_width:
        raise AttributeError(
            f"{type(layer).__name__}: expected a pair of features, since `in_feats` is a pair, got "
            "one tensor; pass (feat_src, feat_dst)"
        )
    h_src = layer.feat_drop(feat)
    feat_src, feat_dst = expand_as_pair(layer.fc(h_src).unflatten(-1, heads), graph)
    return expand_as_pair(h_src, graph)[1], feat_src, feat_dst


def dot_heads(feat: Tensor, *vectors: Tensor) -> Tensor:
    """Dot products of every head with one vector a head, for several such vectors.

    One matrix product reads the features once. A product by elements would make one more tensor of
    their size for each vector, and another one for its gradient.

    Parameters
    ----------
    feat : Tensor
        (N, *, H, D)
    *vectors : Tensor
        (1, H, D)

    Returns
    -------
    Tensor
        (N, *, K * H), those with the first vector first.
    """
    diagonal = torch.eye(feat.shape[-2], dtype=feat.dtype, device=feat.device).unsqueeze(-1)
    return F.linear(feat.flatten(-2), torch.cat([(diagonal * v).flatten(1) for v in vectors]))


def score_ends(layer: Any, feat_src: Tensor, feat_dst: Tensor) -> tuple[Tensor, Tensor]:
    """What either end of an edge adds to its score, (N_src, *, H) and (N_dst, *, H)."""
    if feat_src is feat_dst:
        el, er = dot_heads(feat_src, layer.attn_l, layer.attn_r).chunk(2, dim=-1)
        return el, er
    return dot_heads(feat_src, layer.attn_l), dot_heads(feat_dst, layer.attn_r)


def as_edge_weight(edge_weight: Any, num_edges: int, feat: Tensor) -> Any:
    """Accept what DGL accepts as (E,): a single number, and narrower dtypes, integers among them.

    Parameters
    ----------
    edge_weight : Tensor or None
        What was passed; anything else than a tensor is left to the op.
    num_edges : int
        E.
    feat : Tensor
        Features, whose dtype the weights get where that loses nothing.

    Returns
    -------
    Tensor or None
        (E,), or what the op will refuse.
    """
    if not isinstance(edge_weight, Tensor):
        return edge_weight
    if torch.promote_types(edge_weight.dtype, feat.dtype) == feat.dtype:
        edge_weight = edge_weight.to(feat.dtype)
    return edge_weight.reshape(1).expand(num_edges) if edge_weight.numel() == 1 else edge_weight


def _align(*numbers: Tensor) -> list[Tensor]:
    """Give numbers (rows, *, H) one shape after the rows, as sums over both ends do in DGL."""
    if len({part.shape[1:] for part in numbers}) == 1:
        return list(numbers)
    widest, *others = numbers
    for other in others:
        fitted = fit("add", widest, other)
        widest = spread(fitted.lhs, fitted.shape)
    return [spread(fit("add", widest, part).rhs, tuple(widest.shape[1:])) for part in numbers]


def attend(
    layer: Any,
    struct: GraphStructure,
    feat_src: Tensor,
    *numbers: Tensor,
    edge_weight: Tensor | None = None,
    return_attention: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attend with scores that are sums of numbers, with any dimensions before those of the heads.

    Parameters
    ----------
    layer : GATConv or EdgeGATConv
        With ``leaky_relu`` and ``attn_drop``; they are called where they do more than their class.
    struct : GraphStructure
        The graph.
    feat_src : Tensor
        (N_src, *, H, D)
    *numbers : Tensor
        (N_src, *, H), (N_dst, *, H) and perhaps (E, *, H) in edge-id order. The dimensions between
        rows and heads broadcast.
    edge_weight : Tensor, optional
        (E,)
    return_attention : bool
        Also return the attention.

    Returns
    -------
    Tensor and (Tensor or None)
        (N_dst, *, H, D) and (E, *, H, 1).
    """
    el, er, *bias = _align(*numbers)
    shape = tuple(el.shape[1:])
    head_dim = feat_src.shape[-1]
    feat_src = spread(fit("add", el.unsqueeze(-1), feat_src).rhs, (*shape, head_dim))
    if computes_as(layer.leaky_relu, nn.LeakyReLU) and computes_as(layer.attn_drop, nn.Dropout):
        result = ops.gat(
            struct,
            feat_src.flatten(1, -2),  # every further dimension is more heads
            el.flatten(1),
            er.flatten(1),
            layer.leaky_relu.negative_slope,
            edge_bias=bias[0].flatten(1) if bias else None,
            edge_weight=edge_weight,
            attn_drop=layer.attn_drop.p if layer.attn_drop.training else 0.0,
            return_attention=return_attention,
        )
        out, attention = result if isinstance(result, tuple) else (result, None)
        out = out.unflatten(1, shape)
        return out, None if attention is None else attention.unflatten(1, shape)
    scores = ops.u_add_v(struct, el.unsqueeze(-1), er.unsqueeze(-1))
    scores = scores + bias[0].unsqueeze(-1) if bias else scores
    attention = layer.attn_drop(ops.edge_softmax(struct, layer.leaky_relu(scores)))
    if edge_weight is not None:
        attention = attention * edge_weight.reshape(-1, *(1,) * (attention.dim() - 1))
    return ops.u_mul_e_sum(struct, feat_src, attention), attention


def finish(layer: Any, out: Tensor, h_dst: Tensor) -> Tensor:
    """Add the residual and the bias, and apply the activation."""
    if layer.res_fc is not None:
        residual = layer.res_fc(h_dst).unflatten(-1, (-1, layer._out_feats))
        out = out + fit("add", out, residual).rhs
    if layer.bias is not None:
        out = out + layer.bias.unflatten(0, (layer._num_heads, layer._out_feats))
    return layer.activation(out) if layer.activation else out


class GATConv(nn.Module):
    r"""Graph attention, with the interface of ``dgl.nn.GATConv``.

    .. math::
        h'_v &= \sum_{u \in \mathcal{N}(v)} \alpha_{uv} \, W h_u

        \alpha_{uv} &= \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            \mathrm{LeakyReLU}(a_l^T W h_u + a_r^T W h_v) \right)

    independently in each of :math:`H` heads.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width: an int for one matrix :math:`W`, a pair for one a side.
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
        Accept destinations without in-edges; they receive zeros (and residual and bias).
        Default False.
    bias : bool
        Whether there is a bias, in ``res_fc`` if the residual is projected. Default True.

    Notes
    -----
    Source: P. Veličković, G. Cucurull, A. Casanova, A. Romero, P. Liò, Y. Bengio, "Graph Attention
    Networks", ICLR 2018, https://arxiv.org/abs/1710.10903.

    A module for two widths given a single tensor raises an AttributeError, as in DGL. Edge weights
    together with features of more than two dimensions, which DGL refuses, weigh the edges.

    **Fused path.** Scores, softmax, attention dropout, edge weights and weighted sum run in one
    CUDA kernel (``dgl_flash.ops.gat``), in float64, float32, float16 and bfloat16, for any number
    of heads and a head width up to 512; further dimensions of the features are more heads. The
    scores of both ends come from one matrix product of the projected features. Attention is written
    when it is asked for; memory for edges times width is never needed. On the CPU, and for wider
    heads, plain torch computes the same, with numbers for edges times heads. A hook on, or another
    module for, ``leaky_relu`` or ``attn_drop`` is called, between ops for scores, softmax and sum.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GATConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GATConv(8, 5, num_heads=2)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 2, 5])
    """

    bias: nn.Parameter | None
    res_fc: nn.Module | None

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
    ) -> None:
        super().__init__()
        self._num_heads = num_heads
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._allow_zero_in_degree = allow_zero_in_degree
        width = num_heads * out_feats
        if isinstance(in_feats, tuple):
            self.fc_src = nn.Linear(self._in_src_feats, width, bias=False)
            self.fc_dst = nn.Linear(self._in_dst_feats, width, bias=False)
        else:
            self.fc = nn.Linear(self._in_src_feats, width, bias=False)
        self.attn_l = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.attn_r = nn.Parameter(torch.empty(1, num_heads, out_feats))
        self.feat_drop = nn.Dropout(feat_drop)
        self.attn_drop = nn.Dropout(attn_drop)
        self.leaky_relu = nn.LeakyReLU(negative_slope)
        self.has_linear_res = bool(residual) and self._in_dst_feats != width
        if self.has_linear_res:
            self.res_fc = nn.Linear(self._in_dst_feats, width, bias=bias)
        elif residual:
            self.res_fc = nn.Identity()
        else:
            self.register_buffer("res_fc", None)
        self.has_explicit_bias = bool(bias) and not self.has_linear_res
        if self.has_explicit_bias:
            self.bias = nn.Parameter(torch.empty(width))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()
        self.activation = activation

    def reset_parameters(self) -> None:
        """Draw all weights from Glorot's normal distribution and set the biases to 0."""
        gain = nn.init.calculate_gain("relu")
        linears = [self.fc] if hasattr(self, "fc") else [self.fc_src, self.fc_dst]
        for linear in linears:
            nn.init.xavier_normal_(linear.weight, gain=gain)
        nn.init.xavier_normal_(self.attn_l, gain=gain)
        nn.init.xavier_normal_(self.attn_r, gain=gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=gain)
            if self.res_fc.bias is not None:
                nn.init.zeros_(self.res_fc.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) destinations without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(
        self,
        graph: Any,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
        get_attention: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Attend over the in-edges of every destination.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, \*, in_src_feats) and (N_dst, \*, in_dst_feats), whose dimensions between
            broadcast.
        edge_weight : Tensor, optional
            (E,), factors of the attention after softmax and dropout. It may require a gradient.
        get_attention : bool
            Also return the attention weights. Default False.

        Returns
        -------
        Tensor or (Tensor, Tensor)
            (N_dst, \*, H, D) and, if asked for, (E, \*, H, 1) in edge-id order, after dropout and
            edge weights.

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False.
        TypeError
            If ``graph`` is no graph, or edge weights have a wider dtype than the features.
        ValueError
            If features or edge weights do not fit the graph.
        AttributeError
            If ``in_feats`` is a pair and ``feat`` is not.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        h_dst, feat_src, feat_dst = project(self, graph, feat)
        out, attention = attend(
            self,
            struct,
            feat_src,
            *score_ends(self, feat_src, feat_dst),
            edge_weight=as_edge_weight(edge_weight, struct.num_edges, feat_src),
            return_attention=get_attention,
        )
        out = finish(self, out, h_dst)
        return (out, attention) if get_attention and attention is not None else out
