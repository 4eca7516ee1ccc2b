"""CuGraphRelGraphConv: RelGraphConv with all matrices in one parameter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.conv.cugraph_base import CuGraphBaseConv, read_inputs
from dgl_flash.structure import GraphStructure


class CuGraphRelGraphConv(CuGraphBaseConv):
    r"""Relational graph convolution, as ``dgl.nn.CuGraphRelGraphConv`` and without cuGraph.

    .. math::
        h'_v = b + h_v W_0 + \sum_{r} \sum_{u \in \mathcal{N}_r(v)} c_{vr} \, h_u W_r, \qquad
        W_r = \sum_b a_{rb} V_b \;\text{with a basis}

    where :math:`\mathcal{N}_r(v)` are the in-neighbours along edges of relation :math:`r`, and
    :math:`c_{vr}` is 1, or the inverse of their number.

    Parameters
    ----------
    in_feat, out_feat : int
        Input and output width.
    num_rels : int
        Number of relations R.
    regularizer : {None, "basis"}
        Form of the matrices. Default None.
    num_bases : int, optional
        Number of bases B, needed with ``"basis"``.
    bias : bool
        Whether there is a bias :math:`b`. Default True.
    self_loop : bool
        Whether there is a matrix :math:`W_0`. Default True.
    dropout : float
        Dropout of the result. Default 0.
    apply_norm : bool
        Take the mean over the neighbours of each relation and not the sum. Default False.

    Attributes
    ----------
    W : Parameter
        (R, in_feat, out_feat), or (B, in_feat, out_feat) for the bases :math:`V`. With a self-loop
        one more matrix comes last, :math:`W_0`.
    coeff : Parameter or None
        (R, B), :math:`a`.
    bias : Parameter or None
        (out_feat,)

    Raises
    ------
    ValueError
        If ``regularizer`` is unknown, or ``num_bases`` missing.

    Notes
    -----
    Source: M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling,
    "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018,
    https://arxiv.org/abs/1703.06103.

    DGL's class needs pylibcugraphops 23.04, thus Python 3.8 or 3.10 and a GPU. This one reads its
    checkpoints and runs wherever this package does.

    **Fused path.** The sum is ``dgl_flash.ops.relational_sum``, as in :class:`RelGraphConv`; int32
    and int64 relations are equally fast. ``apply_norm`` sorts the edges once more in each forward.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import CuGraphRelGraphConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = CuGraphRelGraphConv(8, 5, 3, regularizer="basis", num_bases=2)
    >>> conv(graph, torch.randn(4, 8), torch.tensor([0, 1, 1, 2])).shape
    torch.Size([4, 5])
    """

    MAX_IN_DEGREE_MFG = 500
    bias: nn.Parameter | None
    coeff: nn.Parameter | None

    def __init__(
        self,
        in_feat: int,
        out_feat: int,
        num_rels: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
        bias: bool = True,
        self_loop: bool = True,
        dropout: float = 0.0,
        apply_norm: bool = False,
    ) -> None:
        super().__init__()
        self.in_feat = in_feat
        self.out_feat = out_feat
        self.num_rels = num_rels
        self.apply_norm = apply_norm
        self.dropout = nn.Dropout(dropout)
        self.self_loop = self_loop
        if regularizer not in (None, "basis"):
            raise ValueError(
                f"Supported regularizer options: 'basis' or None, but got '{regularizer}'."
            )
        if regularizer is None:
            num_matrices = num_rels
        elif num_bases is None:
            raise ValueError('Missing "num_bases" for basis regularization.')
        else:
            num_matrices = self.num_bases = num_bases
        self.W = nn.Parameter(torch.empty(num_matrices + bool(self_loop), in_feat, out_feat))
        if regularizer is None:
            self.coeff = None
        else:
            self.coeff = nn.Parameter(torch.empty(num_rels, num_matrices))
        self.regularizer = regularizer
        if bias:
            self.bias = nn.Parameter(torch.empty(out_feat))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def _matrices(self) -> Tensor:
        """``W`` without that of the self-loop."""
        return self.W[:-1] if self.self_loop else self.W

    def reset_parameters(self) -> None:
        r"""Draw the matrices from :math:`U(-1/\sqrt{in}, 1/\sqrt{in})`; the bias becomes 0.

        Coefficients, and then the matrix of the self-loop, are from Glorot's uniform distribution.
        """
        bound = 1 / math.sqrt(self.in_feat)
        gain = nn.init.calculate_gain("relu")
        nn.init.uniform_(self._matrices(), -bound, bound)
        if self.coeff is not None:
            nn.init.xavier_uniform_(self.coeff, gain=gain)
        if self.self_loop:
            nn.init.xavier_uniform_(self.W[-1], gain)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(
        self, g: Any, feat: Tensor, etypes: Tensor | Sequence[int], max_in_degree: int | None = None
    ) -> Tensor:
        """Convolve the features of the sources into the destinations.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N_src, in_feat), the first rows are the destinations.
        etypes : Tensor or list of int
            (E,), relation of each edge, integers in [0, R), on any device.
        max_in_degree : int, optional
            Not needed: no kernel here has a limit, and nothing asks for it.

        Returns
        -------
        Tensor
            (N_dst, out_feat)

        Raises
        ------
        TypeError
            If ``g`` is no graph, ``feat`` no tensor, or a dtype does not fit.
        ValueError
            If the features do not fit the graph or the module.
        IndexError
            If a relation is out of range.
        DGLError
            If there is not one relation an edge.
        """
        struct = read_inputs(self, g, feat)
        if not isinstance(etypes, Tensor):
            etypes = torch.as_tensor(etypes, dtype=torch.int64)
        elif etypes.dtype in (torch.int8, torch.uint8, torch.int16):
            etypes = etypes.int()
        weight = self._matrices()
        if self.coeff is not None:
            weight = (self.coeff @ weight.flatten(1)).unflatten(1, weight.shape[1:])
        norm = _one_by_count(struct, etypes, feat) if self.apply_norm else None
        h = ops.relational_sum(struct, feat, weight, etypes, norm)
        if self.self_loop:
            h = h + feat[: struct.num_dst] @ self.W[-1]
        if self.bias is not None:
            h = h + self.bias
        return self.dropout(h)


def _one_by_count(struct: GraphStructure, etypes: Tensor, feat: Tensor) -> Tensor:
    """Inverse number of the edges that share destination and relation with an edge, (E,)."""
    etypes = etypes.to(feat.device).long()
    if etypes.shape != (struct.num_edges,):
        return feat.new_ones(struct.num_edges)  # the op says what is wrong
    _, dst = struct.edges()
    # Relations out of range are the op's to refuse; here each only has to be another one.
    low, high = etypes.aminmax() if len(etypes) else (0, 0)
    pairs = dst.long() * (high - low + 1) + (etypes - low)
    ordered = pairs.sort().values
    counts = torch.searchsorted(ordered, pairs, right=True) - torch.searchsorted(ordered, pairs)
    return counts.double().reciprocal().to(feat.dtype)
