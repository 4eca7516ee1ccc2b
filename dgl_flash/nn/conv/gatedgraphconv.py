"""GatedGraphConv: neighbours' messages by edge type, taken in by a gated recurrent unit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, read_graph
from dgl_flash.structure import GraphStructure


class GatedGraphConv(nn.Module):
    r"""Gated graph convolution, with the interface of ``dgl.nn.GatedGraphConv``.

    .. math::
        h^0_v = [x_v \,\|\, 0], \qquad
        a^t_v = \sum_{e=(u \to v)} \big( W_{\tau(e)} h^t_u + b_{\tau(e)} \big), \qquad
        h^{t+1}_v = \mathrm{GRU}(a^t_v, h^t_v)

    with :math:`\tau(e)` the type of an edge.

    Parameters
    ----------
    in_feats : int
        Input width.
    out_feats : int
        Output width, at least ``in_feats``.
    n_steps : int
        Number of steps; all of them use the same parameters.
    n_etypes : int
        Number of edge types.
    bias : bool
        Whether the recurrent unit has biases. Default True.

    Attributes
    ----------
    linears : nn.ModuleList
        A linear layer from out_feats to out_feats for each edge type.
    gru : nn.GRUCell
        The recurrent unit.

    Raises
    ------
    AssertionError
        If ``in_feats`` is greater than ``out_feats``.

    Notes
    -----
    Source: Y. Li, D. Tarlow, M. Brockschmidt, R. Zemel, "Gated Graph Sequence Neural Networks",
    ICLR 2016, https://arxiv.org/abs/1511.05493.

    **Fused path.** With one edge type a step is one CUDA kernel (``dgl_flash.ops.spmm``) over the
    projected nodes. With several it is ``dgl_flash.ops.relational_sum``: neighbours of one type are
    summed before they are projected, a range of edges at a time, so that neither all nodes times
    all types nor, as in DGL, all edges are ever projected, and memory grows with nodes times width
    alone. Both take float64, float32, float16 and bfloat16. The edges are sorted by type once for a
    graph and a tensor ``etypes``: pass the same tensor again. On the CPU plain torch computes the
    same.

    Unlike in DGL, edge types may be given for a graph without edges, and ``etypes`` must have one
    entry for every edge. With several types, one that no edge has gets gradients of 0, not None.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import GatedGraphConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = GatedGraphConv(5, 8, n_steps=2, n_etypes=3)
    >>> conv(graph, torch.randn(4, 5), torch.tensor([0, 1, 2, 1])).shape
    torch.Size([4, 8])
    """

    def __init__(
        self, in_feats: int, out_feats: int, n_steps: int, n_etypes: int, bias: bool = True
    ) -> None:
        super().__init__()
        if in_feats > out_feats:
            raise AssertionError("out_feats must be not less than in_feats")
        self._in_feats = in_feats
        self._out_feats = out_feats
        self._n_steps = n_steps
        self._n_etypes = n_etypes
        self.linears = nn.ModuleList(nn.Linear(out_feats, out_feats) for _ in range(n_etypes))
        self.gru = nn.GRUCell(out_feats, out_feats, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the linear layers from Glorot's normal distribution, biases 0, and reset the GRU."""
        gain = nn.init.calculate_gain("relu")
        self.gru.reset_parameters()
        for linear in self._typed_linears():
            nn.init.xavier_normal_(linear.weight, gain=gain)
            nn.init.zeros_(linear.bias)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Do nothing that shows: nodes without in-edges are always accepted, as in DGL.

        Parameters
        ----------
        set_value : bool
            Kept in ``_allow_zero_in_degree``, which nothing reads.
        """
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Tensor, etypes: Tensor | None = None) -> Tensor:
        """Let the features flow along the edges ``n_steps`` times.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, in_feats); any width up to ``out_feats`` is filled up with zeros.
        etypes : Tensor, optional
            (E,), the types of the edges, from 0. Not needed with one type; if it is given all the
            same, edges of another type than 0 carry nothing.

        Returns
        -------
        Tensor
            (N, out_feats)

        Raises
        ------
        AssertionError
            If the graph is not homogeneous, or a type is out of range.
        TypeError
            If ``graph`` is no graph, or with several types ``etypes`` is missing or dtypes differ.
        ValueError
            If features or types do not fit the graph.
        RuntimeError
            If the features are wider than ``out_feats`` or, with one type, have another dtype than
            the module.
        """
        if not getattr(graph, "is_homogeneous", True):
            raise AssertionError(
                "not a homogeneous graph; convert it with to_homogeneous "
                "and pass in the edge type as argument"
            )
        struct = read_graph(self, graph, feat)
        if etypes is not None and etypes.shape != (struct.num_edges,):
            raise ValueError(
                f"GatedGraphConv: expected `etypes` of shape (E,) = ({struct.num_edges},), "
                f"got {tuple(etypes.shape)}; one type an edge is needed"
            )
        padding = feat.new_zeros(feat.shape[0], self._out_feats - feat.shape[1])
        feat = torch.cat([feat, padding], dim=-1)
        if self._n_etypes != 1:
            return self._steps_by_type(struct, feat, etypes)
        of_type = None if etypes is None else (etypes.to(feat.device) == 0).to(feat.dtype)
        for _ in range(self._n_steps):
            feat = self.gru(ops.spmm(struct, self.linears[0](feat), of_type), feat)
        return feat

    def _typed_linears(self) -> Iterable[nn.Linear]:
        return cast("Iterable[nn.Linear]", self.linears)

    def _steps_by_type(self, struct: GraphStructure, feat: Tensor, etypes: Tensor | None) -> Tensor:
        if etypes is None:
            raise TypeError(
                f"GatedGraphConv: expected `etypes` for {self._n_etypes} edge types, got None; "
                "pass a tensor of shape (E,)"
            )
        if etypes.dtype not in (torch.int32, torch.int64):
            etypes = etypes.long()
        if not all(computes_as(linear, nn.Linear) for linear in self.linears):
            return self._steps_by_call(struct, feat, etypes)
        weight = torch.stack([linear.weight.t() for linear in self._typed_linears()])
        bias = torch.stack([linear.bias for linear in self._typed_linears()])
        # The biases do not change from step to step: they are summed once, with features of 1.
        ones = feat.new_ones(feat.shape[0], 1)
        try:
            summed_bias = ops.relational_sum(struct, ones, bias.unsqueeze(1), etypes)
        except IndexError as error:
            text = f"edge type indices out of range [0, {self._n_etypes})"
            raise AssertionError(text) from error
        for _ in range(self._n_steps):
            summed = ops.relational_sum(struct, feat, weight, etypes) + summed_bias
            feat = self.gru(summed, feat)
        return feat

    def _steps_by_call(self, struct: GraphStructure, feat: Tensor, etypes: Tensor) -> Tensor:
        """Call every linear layer, on all nodes."""
        if etypes.numel() and not 0 <= int(etypes.min()) <= int(etypes.max()) < self._n_etypes:
            raise AssertionError(f"edge type indices out of range [0, {self._n_etypes})")
        masks = functional.one_hot(etypes.to(feat.device).long(), self._n_etypes).to(feat.dtype)
        for _ in range(self._n_steps):
            summed = torch.zeros_like(feat)
            for linear, mask in zip(self.linears, masks.unbind(1), strict=True):
                summed = summed + ops.spmm(struct, linear(feat), mask)
            feat = self.gru(summed, feat)
        return feat
