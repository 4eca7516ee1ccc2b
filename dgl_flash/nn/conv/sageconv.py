"""SAGEConv, the layer of GraphSAGE."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.nn.common import (
    check_eq_shape,
    expand_as_pair,
    read_graph,
    reduce_neighbors,
    require_rows,
)
from dgl_flash.structure import GraphStructure


class SAGEConv(nn.Module):
    r"""GraphSAGE layer, with the interface of ``dgl.nn.SAGEConv``.

    .. math::
        h'_v = \nu \left( \sigma \left( W_{self} h_v + b + W_{neigh} \,
        R_{e=(u \to v)} \, w_e h_u \right) \right)

    where :math:`w` are edge weights, 1 if none are given, and :math:`R` is one of

    - ``"mean"``: the mean over the in-edges, 0 without any;
    - ``"gcn"``: :math:`(h_v + \sum_e w_e h_u) / (d_v + 1)` with the in-degree :math:`d_v`; there
      is no :math:`W_{self}` then;
    - ``"pool"``: the maximum of :math:`w_e \, \mathrm{relu}(W_{pool} h_u + b_{pool})` for each
      feature, 0 without in-edges;
    - ``"lstm"``: the last hidden state of an LSTM that reads :math:`w_e h_u` in the order of the
      edge ids, 0 without in-edges.

    Parameters
    ----------
    in_feats : int or pair of int
        Width of the features; a pair for sources and destinations. Both are equal for ``"gcn"``.
    out_feats : int
        Width of the result.
    aggregator_type : {"mean", "gcn", "pool", "lstm"}
        :math:`R`.
    feat_drop : float
        Dropout of the features. Default 0.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    norm : callable, optional
        :math:`\nu`, which comes last.
    activation : callable, optional
        :math:`\sigma`.

    Attributes
    ----------
    fc_neigh : Linear
        :math:`W_{neigh}`, without bias.
    fc_self : Linear
        :math:`W_{self}` and :math:`b`; not for ``"gcn"``.
    bias : Parameter or None
        :math:`b` of ``"gcn"``, and of no other aggregator.
    fc_pool : Linear
        For ``"pool"``.
    lstm : LSTM
        For ``"lstm"``.

    Raises
    ------
    DGLError
        If ``aggregator_type`` is none of the four.

    Notes
    -----
    Source: W. L. Hamilton, R. Ying, J. Leskovec, "Inductive Representation Learning on Large
    Graphs", NeurIPS 2017, https://arxiv.org/abs/1706.02216.

    ``"mean"`` and ``"gcn"`` aggregate the narrower of input and output.

    Where DGL is wrong: ``"gcn"`` takes features with more than two dimensions, and keeps both parts
    of a pair apart on a homogeneous graph, where DGL lets the destinations overwrite the sources.
    If a graph has no edge at all, ``"pool"`` passes no gradient through the maximum; DGL passes it
    to node 0.

    **Fused path.** ``"mean"``, ``"gcn"`` and ``"pool"`` reduce in ``dgl_flash.ops.gspmm``: mean and
    maximum, times edge weights or not, are one CUDA kernel each without any tensor of the size of
    the edges. The maximum saves where in its row each winner stands, in as few bytes as the largest
    in-degree allows, for the kernel of the gradient. ``"lstm"`` has to lay out the sequences:
    destinations of 1, 2, 3 to 4, 5 to 8, ... in-edges form a batch each, filled up to its longest
    sequence, for torch's LSTM (cuDNN on a GPU), and the device is asked for the size of each batch.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SAGEConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = SAGEConv(8, 5, "mean")
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    bias: nn.Parameter | None

    def __init__(
        self,
        in_feats: int | tuple[int, int],
        out_feats: int,
        aggregator_type: str,
        feat_drop: float = 0.0,
        bias: bool = True,
        norm: Callable[[Tensor], Tensor] | None = None,
        activation: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__()
        # A set as in DGL, whose text has its order, which changes from process to process.
        known = {"mean", "gcn", "pool", "lstm"}
        if aggregator_type not in known:
            raise dgl_error(
                f"Invalid aggregator_type. Must be one of {known}. "
                f"But got {aggregator_type!r} instead."
            )
        self._in_src_feats, self._in_dst_feats = expand_as_pair(in_feats)
        self._out_feats = out_feats
        self._aggre_type = aggregator_type
        self.norm = norm
        self.feat_drop = nn.Dropout(feat_drop)
        self.activation = activation
        if aggregator_type == "pool":
            self.fc_pool = nn.Linear(self._in_src_feats, self._in_src_feats)
        if aggregator_type == "lstm":
            self.lstm = nn.LSTM(self._in_src_feats, self._in_src_feats, batch_first=True)
        self.fc_neigh = nn.Linear(self._in_src_feats, out_feats, bias=False)
        if aggregator_type != "gcn":
            self.fc_self = nn.Linear(self._in_dst_feats, out_feats, bias=bias)
        elif bias:
            self.bias = nn.Parameter(torch.zeros(out_feats))
        else:
            self.register_buffer("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights from Glorot's uniform distribution, those of the LSTM from torch's.

        The biases stay as they are, apart from those of the LSTM.
        """
        gain = nn.init.calculate_gain("relu")
        if self._aggre_type == "pool":
            nn.init.xavier_uniform_(self.fc_pool.weight, gain=gain)
        if self._aggre_type == "lstm":
            self.lstm.reset_parameters()
        if self._aggre_type != "gcn":
            nn.init.xavier_uniform_(self.fc_self.weight, gain=gain)
        nn.init.xavier_uniform_(self.fc_neigh.weight, gain=gain)

    def forward(
        self,
        graph: Any,
        feat: Tensor | tuple[Tensor, Tensor],
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Combine every destination with what its in-edges bring.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*, in_feats); on a block the first rows are the destinations. A pair holds
            (N_src, \*, in_src_feats) and (N_dst, \*, in_dst_feats). ``"lstm"`` takes two
            dimensions only.
        edge_weight : Tensor, optional
            (E,), or (E, ...) aligned with the last dimensions of what is aggregated, which has the
            width of the result for ``"mean"`` and ``"gcn"`` if that is the narrower one.

        Returns
        -------
        Tensor
            (N_dst, \*, out_feats)

        Raises
        ------
        AssertionError
            If there is not one weight an edge, as in DGL.
        DGLError
            If edge weights do not broadcast or have another dtype, there is not one row a source,
            or the parts of a pair differ in width with ``"gcn"``.
        TypeError
            If ``graph`` is no graph.
        """
        struct = read_graph(self, graph, feat)
        feat = _each(self.feat_drop, feat)
        if edge_weight is not None and edge_weight.shape[0] != struct.num_edges:
            raise AssertionError
        _, feat_dst = expand_as_pair(feat, graph)
        neigh = self._aggregate(graph, struct, feat, edge_weight)
        if self._aggre_type != "gcn":
            out = self.fc_self(feat_dst) + neigh
        else:
            out = neigh if self.bias is None else neigh + self.bias
        if self.activation is not None:
            out = self.activation(out)
        if self.norm is not None:
            out = self.norm(out)
        return out

    def _aggregate(
        self, graph: Any, struct: GraphStructure, feat: Any, edge_weight: Tensor | None
    ) -> Tensor:
        """Aggregate and project the sources of each destination."""
        feat_src, _ = expand_as_pair(feat, graph)
        if self._aggre_type == "pool":
            pooled = torch.relu(self.fc_pool(feat_src))
            return self.fc_neigh(reduce_neighbors(struct, "max", pooled, edge_weight))
        if self._aggre_type == "lstm":
            return self.fc_neigh(_last_states(self.lstm, struct, feat_src, edge_weight))
        project_first = self._in_src_feats > self._out_feats
        if self._aggre_type == "mean":
            values = self.fc_neigh(feat_src) if project_first else feat_src
            neigh = reduce_neighbors(struct, "mean", values, edge_weight)
        else:
            check_eq_shape(feat)
            pair = expand_as_pair(_each(self.fc_neigh, feat) if project_first else feat, graph)
            neigh = _mean_with_self(struct, *pair, edge_weight)
        return neigh if project_first else self.fc_neigh(neigh)


def _each(function: Callable[[Tensor], Tensor], feat: Any) -> Any:
    """Apply a function to a tensor, or to both parts of a pair."""
    return (function(feat[0]), function(feat[1])) if isinstance(feat, tuple) else function(feat)


def _mean_with_self(
    struct: GraphStructure, feat_src: Tensor, feat_dst: Tensor, edge_weight: Tensor | None
) -> Tensor:
    """Sum over the in-edges and the destination itself, divided by their number."""
    require_rows(feat_dst, struct.num_dst)
    mean = reduce_neighbors(struct, "mean", feat_src, edge_weight)
    # From the mean, since a half type holds neither the sum nor the degree of a hub.
    share = 1 / (struct.in_degrees().double() + 1)
    share = share.reshape(-1, *(1,) * (feat_dst.dim() - 1))
    return torch.addcmul(mean * (1 - share).to(mean.dtype), feat_dst, share.to(feat_dst.dtype))


def _where_cudnn_can(lstm: nn.LSTM, num_steps: int) -> AbstractContextManager[Any]:
    """Leave to torch's own LSTM what cuDNN refuses: long sequences, gradients in evaluation."""
    differentiates = torch.is_grad_enabled() and not lstm.training
    if num_steps < 2**16 and not differentiates:
        return nullcontext()
    return torch.backends.cudnn.flags(enabled=False)


def _last_states(
    lstm: nn.LSTM, struct: GraphStructure, feat: Tensor, edge_weight: Tensor | None
) -> Tensor:
    """Last hidden state of an LSTM over the sources of each destination, in edge-id order."""
    require_rows(feat, struct.num_src)
    if struct.num_edges == 0:
        return feat.new_zeros(struct.num_dst, lstm.hidden_size)
    src, dst = struct.edges()
    order = dst.argsort(stable=True)
    degrees = struct.in_degrees().long()
    starts = degrees.cumsum(0) - degrees
    if edge_weight is None:
        rows, row_ids = feat, src[order]
    else:
        rows, row_ids = ops.u_mul_e(struct, feat, edge_weight), order
    nodes, states = [], []
    low, high, longest = 0, 1, int(degrees.max())
    while low < longest:
        batch = ((degrees > low) & (degrees <= high)).nonzero().squeeze(1)
        if batch.numel() > 0:
            last = degrees[batch] - 1
            # A shorter sequence repeats its last row: its state is read before that.
            steps = torch.arange(min(high, longest), device=last.device)
            steps = torch.minimum(steps, last.unsqueeze(1))
            with _where_cudnn_can(lstm, steps.shape[1]):
                hidden, _ = lstm(rows[row_ids[starts[batch].unsqueeze(1) + steps]])
            nodes.append(batch)
            states.append(hidden[torch.arange(len(batch), device=last.device), last])
        low, high = high, 2 * high
    found = torch.cat(states)
    return found.new_zeros(struct.num_dst, lstm.hidden_size).index_copy(0, torch.cat(nodes), found)
