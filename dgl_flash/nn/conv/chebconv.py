"""ChebConv: spectral filters as Chebyshev polynomials of the Laplacian."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_warning
from dgl_flash.nn.common import as_floats, degree_scale, read_graph, require_one_node_set


class ChebConv(nn.Module):
    r"""Chebyshev graph convolution, with the interface of ``dgl.nn.ChebConv``.

    .. math::
        H' = \sigma \Big( b + \sum_{k=0}^{K-1} Z^k W_k \Big), \qquad
        Z^0 = H, \quad Z^1 = \tilde L H, \quad Z^k = 2 \tilde L Z^{k-1} - Z^{k-2}

    .. math::
        \tilde L = \frac{2}{\lambda_{max}} \big( I - D^{-1/2} A D^{-1/2} \big) - I

    with :math:`A_{vu}` the number of edges :math:`u \to v` and :math:`D` the in-degrees, of which
    0 counts as 1. No self-loops are added.

    Parameters
    ----------
    in_feats, out_feats : int
        Input and output width.
    k : int
        Number of terms, :math:`K`.
    activation : callable, optional
        :math:`\sigma`. Default ``torch.nn.functional.relu``.
    bias : bool
        Whether there is a bias :math:`b`. Default True.

    Attributes
    ----------
    linear : nn.Linear
        From :math:`K \cdot` in_feats to out_feats, :math:`W_0 \ldots W_{K-1}` side by side.

    Notes
    -----
    Source: M. Defferrard, X. Bresson, P. Vandergheynst, "Convolutional Neural Networks on Graphs
    with Fast Localized Spectral Filtering", NeurIPS 2016, https://arxiv.org/abs/1606.09375.

    **Fused path.** Each of the :math:`K - 1` products with :math:`D^{-1/2} A D^{-1/2}` is one CUDA
    kernel (``dgl_flash.ops.spmm``) that applies both degree factors on the way, in float64,
    float32, float16 and bfloat16; there is no edge-sized tensor. The recurrence and the linear
    layer are plain torch on the nodes. On the CPU plain torch computes the same.

    ``lambda_max`` of one number serves every graph of a batch; DGL accepts that for a batch of one.
    For features of integers DGL cuts it down to an integer.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import ChebConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = ChebConv(8, 5, k=3)
    >>> conv(graph, torch.randn(4, 8), lambda_max=[2.0]).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_feats: int,
        out_feats: int,
        k: int,
        activation: Callable[[Tensor], Tensor] | None = F.relu,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self._k = k
        self._in_feats = in_feats
        self._out_feats = out_feats
        self.activation = activation
        self.linear = nn.Linear(k * in_feats, out_feats, bias)

    def forward(
        self,
        graph: Any,
        feat: Tensor,
        lambda_max: list[float] | Tensor | None = None,
    ) -> Tensor:
        r"""Filter the features of the nodes.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, in_feats); integers become floats.
        lambda_max : list of float or Tensor, optional
            The largest eigenvalue of the normalised Laplacian of each of the :math:`B` graphs of a
            batch, (B,) or (B, 1), as ``dgl.laplacian_lambda_max`` computes it; more than one need a
            ``DGLGraph``, which knows its batch. By default 2 with a warning, as in DGL: no
            eigenvalue is estimated.

        Returns
        -------
        Tensor
            (N, out_feats)

        Raises
        ------
        DGLError
            If the graph has more than one set of nodes.
        TypeError
            If ``graph`` is no graph.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features have another dtype than the module.
        """
        struct = read_graph(self, graph, feat)
        require_one_node_set(self, graph)
        feat = as_floats(feat)
        renorm = self._renorm(graph, feat, lambda_max)
        # DGL takes the in-degrees for both ends, also where the graph is directed.
        scale = degree_scale(struct, "dst", -0.5, feat)

        def smooth(value: Tensor) -> Tensor:
            return ops.spmm(struct, value, src_scale=scale, dst_scale=scale)

        terms = [feat]
        if self._k > 1:
            terms.append((renorm - 1) * feat - renorm * smooth(feat))
        for _ in range(2, self._k):
            before, last = terms[-2:]
            terms.append(2 * (renorm - 1) * last - 2 * renorm * smooth(last) - before)
        out = self.linear(torch.cat(terms, dim=1))
        return self.activation(out) if self.activation else out

    def _renorm(
        self, graph: Any, feat: Tensor, lambda_max: list[float] | Tensor | None
    ) -> float | Tensor:
        """2 / lambda_max: a number, (1, 1) or (N, 1)."""
        if lambda_max is None:
            dgl_warning(
                "lambda_max is not provided, using default value of 2.  "
                "Please use dgl.laplacian_lambda_max to compute the eigenvalues.",
                stacklevel=5,  # past this method, forward and the two frames of a module's call
            )
            return 1.0
        if isinstance(lambda_max, list):
            lambda_max = torch.Tensor(lambda_max)
        lambda_max = lambda_max.to(feat)
        if lambda_max.dim() == 1:
            lambda_max = lambda_max.unsqueeze(-1)
        if lambda_max.shape[0] != 1:
            sizes = graph.batch_num_nodes().to(lambda_max.device)
            lambda_max = lambda_max.repeat_interleave(sizes, dim=0)
        return 2.0 / lambda_max
