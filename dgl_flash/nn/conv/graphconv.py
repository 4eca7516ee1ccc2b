"""GraphConv, the layer of the graph convolutional network, and EdgeWeightNorm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.nn.common import as_floats, degree_scale, expand_as_pair, read_graph
from dgl_flash.ops.broadcast import fit, spread
from dgl_flash.structure import GraphStructure


class EdgeWeightNorm(nn.Module):
    r"""Normalise scalar edge weights, with the interface of ``dgl.nn.EdgeWeightNorm``.

    .. math::
        w'_{uv} = \frac{w_{uv}}{\sqrt{\sum_x w_{ux} + \epsilon} \sqrt{\sum_x w_{xv} + \epsilon}}
        \quad \text{(both)}, \qquad
        w'_{uv} = \frac{w_{uv}}{\sum_x w_{xv} + \epsilon} \quad \text{(right)}

    Parameters
    ----------
    norm : str
        ``"both"`` (default) divides by the out-weight of the source and the in-weight of the
        destination, ``"right"`` by the in-weight of the destination, ``"none"`` by nothing. As in
        DGL no other value is refused; it means ``"right"``.
    eps : float
        Added to the sums. Default 0.

    Notes
    -----
    Source: T. N. Kipf, M. Welling, "Semi-Supervised Classification with Graph Convolutional
    Networks", ICLR 2017, https://arxiv.org/abs/1609.02907, with weights instead of ones.

    **Fused path.** The sums are ``dgl_flash.ops.spmm`` of one column, the products over the edges
    ``dgl_flash.ops.u_mul_v``; see there.
    """

    def __init__(self, norm: str = "both", eps: float = 0.0) -> None:
        super().__init__()
        self._norm = norm
        self._eps = eps

    def forward(self, graph: Any, edge_weight: Tensor) -> Tensor:
        """Normalise the weights of the edges.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph.
        edge_weight : Tensor
            (E,), positive with ``norm="both"``.

        Returns
        -------
        Tensor
            (E,)

        Raises
        ------
        DGLError
            If a weight is not scalar, or not positive with ``norm="both"``, or there is not one
            weight an edge.
        TypeError
            If ``graph`` is no graph, or the weights are no floating-point tensor.
        """
        struct = read_graph(self, graph, edge_weight, rows="edges")
        if edge_weight.dim() > 1:
            raise dgl_error(
                "Currently the normalization is only defined on scalar edge weight. "
                "Please customize the normalization for your high-dimensional weights."
            )
        if self._norm == "both" and bool((edge_weight <= 0).any()):
            raise dgl_error(
                'Non-positive edge weight detected with `norm="both"`. '
                "This leads to square root of zero or negative values."
            )
        if self._norm == "none":
            return edge_weight.clone()
        ones_src = edge_weight.new_ones(struct.num_src, 1)
        ones_dst = edge_weight.new_ones(struct.num_dst, 1)
        in_weight = ops.spmm(struct, ones_src, edge_weight) + self._eps
        if self._norm == "both":
            out_weight = ops.spmm(struct.reverse(), ones_dst, edge_weight) + self._eps
            scale_src, scale_dst = out_weight**-0.5, in_weight**-0.5
        else:
            scale_src, scale_dst = ones_src, 1.0 / in_weight
        return edge_weight * ops.u_mul_v(struct, scale_src, scale_dst).squeeze(-1)


class GraphConv(nn.Module):
    r"""Graph convolution, with the interface of ``dgl.nn.GraphConv``.

    .. math::
        h'_v = \sigma \left( b + \sum_{u \in \mathcal{N}(v)} \frac{w_{uv}}{c_{uv}} \, h_u W \right)

    where :math:`w_{uv}` is the edge weight, 1 if none is given, and :math:`c_{uv}` follows from
    the degrees: :math:`\sqrt{d^{out}_u d^{in}_v}` for ``norm="both"``, :math:`d^{in}_v` for
    ``"right"``, :math:`d^{out}_u` for ``"left"``, 1 for ``"none"``. A degree of 0 counts as 1.
    Weights do not enter :math:`c`; see :class:`EdgeWeightNorm` for that.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    norm : {"both", "right", "left", "none"}
        Default ``"both"``.
    weight : bool
        Whether there is a matrix :math:`W`. Default True.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    activation : callable, optional
        :math:`\sigma`.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive the bias alone. Default False.

    Attributes
    ----------
    weight : Parameter or None
        (in_feats, out_feats)
    bias : Parameter or None
        (out_feats,)

    Raises
    ------
    DGLError
        If ``norm`` is none of the four.

    Notes
    -----
    Source: T. N. Kipf, M. Welling, "Semi-Supervised Classification with Graph Convolutional
    Networks", ICLR 2017, https://arxiv.org/abs/1609.02907.

    Edge weights with more dimensions than the features give a result with as many; DGL's norms
    ``"both"`` and ``"right"`` then scale the wrong dimension.

    **Fused path.** Normalisation, edge weights and sum run in one CUDA kernel
    (``dgl_flash.ops.spmm``) in float64, float32, float16 and bfloat16, on the narrower of input
    and output; no normalised copy of the features is made. On the CPU plain torch computes the
    same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GraphConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GraphConv(8, 5)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        norm: str = "both",
        weight: bool = True,
        bias: bool = True,
        activation: Callable[[Tensor], Tensor] | None = None,
        allow_zero_in_degree: bool = False,
    ) -> None:
        super().__init__()
        if norm not in ("none", "both", "right", "left"):
            raise dgl_error(
                'Invalid norm value. Must be either "none", "both", "right" or "left". '
                f'But got "{norm}".'
            )
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._norm = norm
        self._allow_zero_in_degree = allow_zero_in_degree
        self.register_parameter(
            "weight", nn.Parameter(torch.empty(in_feats, out_feats)) if weight else None
        )
        self.register_parameter("bias", nn.Parameter(torch.empty(out_feats)) if bias else None)
        self.reset_parameters()
        self._activation = activation

    def reset_parameters(self) -> None:
        """Draw the weight from Glorot's uniform distribution and set the bias to 0."""
        if self.weight is not None:
            nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

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
        weight: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Convolve the features of the sources into the destinations.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N_src, \*, in_feats). Of a pair only the source part is read. Norms ``"both"`` and
            ``"left"`` turn integers into floats.
        weight : Tensor, optional
            (in_feats, out_feats), for a module built with ``weight=False``.
        edge_weight : Tensor, optional
            (E,), or (E, ...) as in DGL: aligned with the last dimensions of the features; either
            may be 1 wide, or have fewer dimensions, where the other is wider.

        Returns
        -------
        Tensor
            (N_dst, \*, out_feats)

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False, if
            a weight is passed to a module that has one, or if edge weights do not broadcast.
        TypeError
            If ``graph`` is no graph, or edge weights have another dtype than the features.
        ValueError
            If features or edge weights do not fit the graph.
        RuntimeError
            If the features have another dtype than the matrix.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        feat_src, _ = expand_as_pair(feat)
        if self._norm in ("left", "both"):
            feat_src = as_floats(feat_src)
        if weight is None:
            weight = self.weight
        elif self.weight is not None:
            raise dgl_error(
                "External weight is provided while at the same time the module has defined its "
                "own weight parameter. Please create the module with flag weight=False."
            )
        project_first = self._in_feats > self._out_feats
        if weight is not None and project_first:
            feat_src = torch.matmul(feat_src, weight)
        feat_src, edge_weight = _align(feat_src, edge_weight)
        out = ops.spmm(
            struct,
            feat_src,
            edge_weight,
            src_scale=self._scale(struct, "src", feat_src),
            dst_scale=self._scale(struct, "dst", feat_src),
        )
        if weight is not None and not project_first:
            out = torch.matmul(out, weight)
        if self.bias is not None:
            out = out + self.bias
        if self._activation is not None:
            out = self._activation(out)
        return out

    def _scale(self, struct: GraphStructure, side: str, feat: Tensor) -> Tensor | None:
        if self._norm not in ("both", {"src": "left", "dst": "right"}[side]):
            return None
        return degree_scale(struct, side, -0.5 if self._norm == "both" else -1, feat)

    def extra_repr(self) -> str:
        """Return the description that printing the module shows."""
        summary = f"in={self._in_feats}, out={self._out_feats}, normalization={self._norm}"
        # A module as activation has a line of its own, as a child.
        if "_activation" in self.__dict__:
            summary += f", activation={self._activation}"
        return summary


def _align(feat: Tensor, edge_weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Broadcast features and edge weights from their *last* dimensions on, as DGL does."""
    if not isinstance(edge_weight, Tensor) or edge_weight.dim() < 2:
        return feat, edge_weight
    feat, weight, shape = fit("mul", feat, edge_weight)
    sizes = tuple(weight.shape[1:])
    while sizes and sizes[-1] == 1:
        sizes = sizes[:-1]
    if sizes != shape[: len(sizes)]:
        # The op takes weights of the first dimensions only; others are spelled out, which is rare.
        weight = spread(weight, shape)
    return spread(feat, shape), weight
