"""AGNNConv: attention by cosines, with one number to learn."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import expand_as_pair, read_graph
from dgl_flash.ops.broadcast import fit, spread


class AGNNConv(nn.Module):
    r"""Attention-based graph neural network, with the interface of ``dgl.nn.AGNNConv``.

    .. math::
        h'_v = \sum_{u \in \mathcal{N}(v)} \mathrm{softmax}_{u \in \mathcal{N}(v)} \left(
            \beta \cos(h_u, h_v) \right) h_u

    Parameters
    ----------
    init_beta : float
        Initial value of :math:`\beta`. Default 1.
    learn_beta : bool
        Whether :math:`\beta` is a parameter; else it is a buffer. Default True.
    allow_zero_in_degree : bool
        Accept destinations without in-edges; they receive zeros. Default False.

    Notes
    -----
    Source: K. K. Thekumparampil, C. Wang, S. Oh, L.-J. Li, "Attention-based Graph Neural Network
    for Semi-supervised Learning", 2018, https://arxiv.org/abs/1803.03735.

    Given a pair on a homogeneous graph, DGL puts the directions of both sides into one place, where
    those of the destinations overwrite those of the sources; here each side is used for itself.
    Features (N,) are numbers whose norm is taken over all nodes, as in DGL.

    **Fused path.** Directions are made for nodes, with :math:`\beta` a factor of those of the
    destinations. Scores, softmax and weighted sum run in one CUDA kernel
    (``dgl_flash.ops.dot_attention``), in float64, float32, float16 and bfloat16, for a width up to
    512; further dimensions of the features are heads. Memory for edges times width is never needed.
    Norms of half types are taken in float32. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import AGNNConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = AGNNConv()
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 8])
    """

    beta: Tensor

    def __init__(
        self, init_beta: float = 1.0, learn_beta: bool = True, allow_zero_in_degree: bool = False
    ) -> None:
        super().__init__()
        self._allow_zero_in_degree = allow_zero_in_degree
        beta = torch.Tensor([init_beta])
        if learn_beta:
            self.beta = nn.Parameter(beta)
        else:
            self.register_buffer("beta", beta)

    def set_allow_zero_in_degree(self, set_value: bool) -> None:
        """Accept (True) or refuse (False) destinations without in-edges from now on.

        Parameters
        ----------
        set_value : bool
            The new value.
        """
        self._allow_zero_in_degree = set_value

    def forward(self, graph: Any, feat: Tensor | tuple[Tensor, Tensor]) -> Tensor:
        r"""Attend over the in-edges of every destination.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor or pair of Tensor
            (N, \*); on a block the first rows are the destinations. A pair holds (N_src, \*) and
            (N_dst, \*). Cosines are of the last dimension, the dimensions before broadcast.

        Returns
        -------
        Tensor
            (N_dst, \*)

        Raises
        ------
        DGLError
            If there are destinations without in-edges and ``allow_zero_in_degree`` is False, or
            the widths of a pair differ.
        TypeError
            If ``graph`` is no graph, or the features have different dtypes.
        ValueError
            If the features do not fit the graph.
        RuntimeError
            If the features are integers.
        """
        struct = read_graph(self, graph, feat, self._allow_zero_in_degree)
        feat_src, feat_dst = expand_as_pair(feat, graph)
        unit_src = _directions(feat_src)
        unit_dst = unit_src if feat_dst is feat_src else _directions(feat_dst)
        key, query, shape = fit("dot", unit_src, self.beta * unit_dst)
        values = spread(fit("add", key, feat_src).rhs, shape)
        out = ops.dot_attention(
            struct,
            _heads(spread(query, shape), feat_dst.dtype),
            _heads(spread(key, shape), feat_src.dtype),
            _heads(values, feat_src.dtype),
            1.0,
        )
        assert isinstance(out, Tensor)
        return out.reshape(struct.num_dst, *shape)


def _directions(feat: Tensor) -> Tensor:
    """Divide by the norm; a half type holds neither the square of 300 nor 1e-12."""
    is_half = feat.dtype in (torch.float16, torch.bfloat16)
    return F.normalize(feat.float() if is_half else feat, dim=-1)


def _heads(values: Tensor, dtype: torch.dtype) -> Tensor:
    """View (N, *, D) or (N,) as (N, H, D)."""
    width = values.shape[-1] if values.dim() > 1 else 1
    return values.to(dtype).reshape(values.shape[0], math.prod(values.shape[1:-1]), width)
