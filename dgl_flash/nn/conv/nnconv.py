"""NNConv: messages through a matrix that a network computes from each edge's features."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph, register_residual, require_rows


class NNConv(nn.Module):
    r"""Edge-conditioned convolution, with the interface of ``dgl.nn.NNConv``.

    .. math::
        h'_{v,o} = b_o + (W_{res} h_v)_o + \sum_i \operatorname*{aggregate}_{e=(u \to v)}
            h_{u,i} \, f(x_e)_{i,o}

    with :math:`f` the edge function and :math:`x_e` the features of an edge. For the sum and the
    mean this is the aggregate of the products :math:`h_u^T f(x_e)`; the maximum is taken before
    the sum over :math:`i`, as in DGL.

    Parameters
    ----------
    in_feats : int or (int, int)
        Input width, of the sources and of the destinations if a pair.
    out_feats : int
        Output width.
    edge_func : callable
        :math:`f`, from (E, \*) to (E, in_src_feats * out_feats). A module becomes a child.
    aggregator_type : {"sum", "mean", "max"}
        Default ``"mean"``.
    residual : bool
        Add the destinations' input, projected unless it has the output width. Default False.
    bias : bool
        Whether there is a bias :math:`b`. Default True.

    Attributes
    ----------
    res_fc : nn.Module or None
        :math:`W_{res}`
    bias : Parameter or None
        (out_feats,)

    Raises
    ------
    KeyError
        If the aggregator is none of the three.

    Notes
    -----
    Source: J. Gilmer, S. S. Schoenholz, P. F. Riley, O. Vinyals, G. E. Dahl, "Neural Message
    Passing for Quantum Chemistry", ICML 2017, https://arxiv.org/abs/1704.01212.

    **Fused path.** Products and aggregation run in one CUDA kernel (``dgl_flash.ops.gspmm``), be it
    a sum, a mean or a maximum, so that the result of the edge function, (E, in_src_feats *
    out_feats), is the one edge-sized tensor: the layer is defined by it. On the CPU plain torch
    computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import NNConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = NNConv(8, 5, edge_func=torch.nn.Linear(3, 8 * 5))
    >>> conv(graph, torch.randn(4, 8), torch.randn(4, 3)).shape
    torch.Size([4, 5])
    """

    res_fc: nn.Module | None
    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        edge_func: Callable[[Tensor], Tensor],
        aggregator_type: str = "mean",
        residual: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self.edge_func = edge_func
        if aggregator_type not in ("sum", "mean", "max"):
            raise KeyError(f"Aggregator type {aggregator_type} not recognized: ")
        self._aggre_type = aggregator_type
        register_residual(self, self._in_dst_feats, out_feats, residual, bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the bias to 0 and draw the residual's weight; the edge function stays as it is."""
        if self.bias is not None:
            nn.init.zeros_(self.bias)
        if isinstance(self.res_fc, nn.Linear):
            nn.init.xavier_normal_(self.res_fc.weight, gain=nn.init.calculate_gain("relu"))

    def forward(self, graph: Any, feat: Tensor | tuple[Tensor, Tensor], efeat: Tensor) -> Tensor:
        r"""Send the features of the sources through the matrices of the edges.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, in_src_feats) and (N_dst, in_dst_feats).
        efeat : Tensor
            (E, \*), the input of the edge function.

        Returns
        -------
        Tensor
            (N_dst, out_feats), zero plus bias and residual for destinations without in-edges.

        Raises
        ------
        DGLError
            If node or edge features do not fit the graph or differ in dtype.
        TypeError
            If ``graph`` is no graph.
        """
        struct = read_graph(self, graph, feat)
        require_rows(efeat, struct.num_edges, "edges")
        feat_src, feat_dst = expand_as_pair(feat, graph)
        weight = self.edge_func(efeat).reshape(-1, self._in_src_feats, self._out_feats)
        parts = ops.gspmm(struct, "mul", self._aggre_type, feat_src.unsqueeze(-1), weight)
        out = parts.sum(dim=1)
        if self.res_fc is not None:
            out = out + self.res_fc(feat_dst)
        if self.bias is not None:
            out = out + self.bias
        return out
