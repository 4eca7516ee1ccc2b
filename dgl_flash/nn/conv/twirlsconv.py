"""TWIRLSConv: graph convolution as the descent of an energy, with robust edge weights."""

from __future__ import annotations

import weakref
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.errors import dgl_error
from dgl_flash.nn.common import read_graph
from dgl_flash.nn.conv.twirls_parts import (
    MLP,
    Attention,
    Propagate,
    PropagateNoPrecond,
    Smoother,
    weighted_degree,
)
from dgl_flash.structure import GraphStructure, is_tracing
from dgl_flash.structure.self_loops import with_self_loops


class TWIRLSConv(nn.Module):
    r"""Convolution by iteratively reweighted least squares, as ``dgl.nn.TWIRLSConv``.

    .. math::
        h' = \mathrm{MLP_{aft}} \left( \mathrm{unfold}(\mathrm{MLP_{bef}}(h)) \right)

    where unfolding, :class:`TWIRLSUnfoldingAndAttention`, runs on the graph with exactly one
    self-loop at each node.

    Parameters
    ----------
    input_d, output_d, hidden_d : int
        Input, output and hidden width.
    prop_step : int
        Number of propagation steps.
    num_mlp_before, num_mlp_after : int
        Number of linear layers before and after the propagation. Default 1.
    norm : {"none", "batch", "layer"}
        Normalisation within the MLPs. Default ``"none"``.
    precond : bool
        Pre-conditioning instead of the normalised Laplacian. Default True.
    alp : float
        :math:`\alpha`, the step size; 0 (default) means :math:`1 / (\lambda + 1)`.
    lam : float
        :math:`\lambda`, the weight of smoothness. Default 1.
    attention : bool
        Reweight the edges after half of the steps. Default False.
    tau, T, p : float
        Thresholds and exponent of the edge weights, see there. Default 0.2, -1 (none), 1.
    use_eta : bool
        Learn a weight for each dimension in the attention. Default False.
    attn_bef : bool
        Reweight the edges before the first step too. Default False.
    dropout, attn_dropout, inp_dropout : float
        Dropout in the MLPs, on edge weights, on the input. Default 0.

    Attributes
    ----------
    mlp_bef, mlp_aft : nn.Module
        Linears in ``layers``, normalisations in ``norms``.
    unfolding : TWIRLSUnfoldingAndAttention
        The propagation.
    cached_unfolding : Tensor or None
        Only where no parameter or dropout precedes the propagation: its last result.

    Notes
    -----
    Source: Y. Yang et al., "Graph Neural Networks Inspired by Classical Iterative Algorithms", ICML
    2021, https://arxiv.org/abs/2103.06064.

    DGL keeps its first propagated features for ever, also for another graph or other features, and
    fails in the second backward pass if they need a gradient. Here they are kept for the same graph
    and the same, unchanged feature tensor, where no gradient or dropout passes through the
    propagation, and are not copied or saved with the module.

    **Fused path.** See :class:`TWIRLSUnfoldingAndAttention`. The graph with self-loops is built
    once and kept with the graph.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import TWIRLSConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = TWIRLSConv(8, 5, 16, prop_step=4)
    >>> conv(graph, torch.randn(4, 8)).shape
    torch.Size([4, 5])
    """

    cached_unfolding: Tensor | None

    def __init__(
        self,
        input_d: int,
        output_d: int,
        hidden_d: int,
        prop_step: int,
        num_mlp_before: int = 1,
        num_mlp_after: int = 1,
        norm: str = "none",
        precond: bool = True,
        alp: float = 0,
        lam: float = 1,
        attention: bool = False,
        tau: float = 0.2,
        T: float = -1,
        p: float = 1,
        use_eta: bool = False,
        attn_bef: bool = False,
        dropout: float = 0.0,
        attn_dropout: float = 0.0,
        inp_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.input_d = input_d
        self.output_d = output_d
        self.hidden_d = hidden_d
        self.prop_step = prop_step
        self.num_mlp_before = num_mlp_before
        self.num_mlp_after = num_mlp_after
        self.norm = norm
        self.precond = precond
        self.attention = attention
        self.alp = alp
        self.lam = lam
        self.tau = tau
        self.T = T
        self.p = p
        self.use_eta = use_eta
        self.init_att = attn_bef
        self.dropout = dropout
        self.attn_dropout = attn_dropout
        self.inp_dropout = inp_dropout
        self.attn_aft = prop_step // 2 if attention else -1
        self.cacheable = not attention and num_mlp_before == 0 and inp_dropout <= 0
        if self.cacheable:
            self.cached_unfolding = None
            self._cached_for: tuple[Any, Any, Any] | None = None
        # Without layers on one side the other side ends at the width that is there.
        self.size_bef_unf = output_d if num_mlp_after == 0 else hidden_d
        self.size_aft_unf = input_d if num_mlp_before == 0 else hidden_d
        self.mlp_bef = MLP(
            input_d, hidden_d, self.size_bef_unf, num_mlp_before, dropout, norm, init_activate=False
        )
        self.unfolding = TWIRLSUnfoldingAndAttention(
            hidden_d,
            alp,
            lam,
            prop_step,
            self.attn_aft,
            tau,
            T,
            p,
            use_eta,
            attn_bef,
            attn_dropout,
            precond,
        )
        self.mlp_aft = MLP(
            self.size_aft_unf,
            hidden_d,
            output_d,
            num_mlp_after,
            dropout,
            norm,
            init_activate=num_mlp_before > 0 and num_mlp_after > 0,
        )

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Transform, propagate and transform again.

        Parameters
        ----------
        graph : DGLGraph, dgl_flash.Graph or GraphStructure
            A homogeneous graph, with or without self-loops.
        feat : Tensor
            (N, input_d)

        Returns
        -------
        Tensor
            (N, output_d)

        Raises
        ------
        DGLError
            If sources and destinations are not one set of nodes.
        TypeError
            If ``graph`` is no graph.
        RuntimeError, DGLError
            If the features do not fit the graph or the module.
        """
        struct = read_graph(self, graph, feat)
        _require_one_set(graph, struct, "remove_self_loop")
        struct = with_self_loops(struct)
        if self.cacheable:
            return self.mlp_aft(self._unfold_once(struct, feat))
        if self.inp_dropout > 0:
            feat = F.dropout(feat, self.inp_dropout, training=self.training)
        return self.mlp_aft(self.unfolding(struct, self.mlp_bef(feat)))

    def _unfold_once(self, struct: GraphStructure, feat: Tensor) -> Tensor:
        """Propagate the input, or take the last result if the input is the same."""
        drops = self.init_att and self.attn_dropout > 0 and self.training
        if is_tracing() or drops or feat.is_inference():
            return self.unfolding(struct, feat)
        autocast = torch.is_autocast_enabled(feat.device.type)
        state = (feat._version, autocast)
        if self.cached_unfolding is not None and self._cached_for is not None:
            known_struct, known_feat, known_state = self._cached_for
            if known_struct() is struct and known_feat() is feat and known_state == state:
                return self.cached_unfolding
        out = self.unfolding(struct, feat)
        if not out.requires_grad:
            self.cached_unfolding = out
            self._cached_for = (weakref.ref(struct), weakref.ref(feat), state)
        return out

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self.cacheable:
            state.update(cached_unfolding=None, _cached_for=None)
        return state


class TWIRLSUnfoldingAndAttention(nn.Module):
    r"""The propagation of TWIRLS, with the interface of ``dgl.nn.TWIRLSUnfoldingAndAttention``.

    With :math:`D` the weighted in-degrees, :math:`\tilde{D} = \lambda D + (1 - \lambda) I` and
    :math:`Y^{(0)} = X`, a step is

    .. math::
        Y^{(k+1)} = (1 - \alpha) Y^{(k)} + \alpha \lambda \tilde{D}^{-1/2} A \tilde{D}^{-1/2}
        Y^{(k)} + \alpha \tilde{D}^{-1} X \quad \text{(precond)}

        Y^{(k+1)} = (1 - \alpha \lambda - \alpha) Y^{(k)} + \alpha \lambda D^{-1/2} A D^{-1/2}
        Y^{(k)} + \alpha X \quad \text{(otherwise)}

    and an attention, where there is one, replaces the entries of :math:`A` by

    .. math::
        w_{uv} = \frac{1}{\max(\tau, \lVert y_u - y_v \rVert^{2 - p})}, \quad
        \text{0 where the power exceeds } T

    Parameters
    ----------
    d : int
        Width of the features, needed with ``use_eta`` only.
    alp : float
        :math:`\alpha`; 0 means :math:`1 / (\lambda + 1)`.
    lam : float
        :math:`\lambda`
    prop_step : int
        Number of steps.
    attn_aft : int
        Number of steps before the attention; -1 (default): no attention.
    tau, T, p : float
        Thresholds and exponent. Default 0.2, -1 (no upper threshold), 1.
    use_eta : bool
        Learn a weight for each dimension in the attention. Default False.
    init_att : bool
        One more attention before the first step. Default False.
    attn_dropout : float
        Dropout on the edge weights. Default 0.
    precond : bool
        Which of the two steps. Default True.

    Attributes
    ----------
    etas : Parameter or None
        (d,)

    Notes
    -----
    Source: Y. Yang et al., "Graph Neural Networks Inspired by Classical Iterative Algorithms", ICML
    2021, https://arxiv.org/abs/2103.06064, equations 27, 28 and 30.

    DGL takes float32 only, leaves its edge weights in the frames of the graph, and divides by a
    degree of 0 where a node has no in-edge. Here all floating dtypes work, the graph is only read,
    and such a degree counts as 1; add self-loops to the graph, as :class:`TWIRLSConv` does.

    **Fused path.** A step is one CUDA kernel, ``dgl_flash.ops.spmm`` with normalisation and
    weights, in float64, float32, float16 and bfloat16, and two sums of node features. An attention
    computes scalars of edges, (E,), a few at a time, in float32 at least; its distances are
    ``dgl_flash.ops.u_dot_v``. Nothing of the size edges times width is made. On the CPU
    plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import TWIRLSUnfoldingAndAttention
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0])).add_self_loop()
    >>> unfold = TWIRLSUnfoldingAndAttention(8, alp=1, lam=1, prop_step=3)
    >>> unfold(graph, torch.ones(4, 8)).shape
    torch.Size([4, 8])
    """

    def __init__(
        self,
        d: int,
        alp: float,
        lam: float,
        prop_step: int,
        attn_aft: int = -1,
        tau: float = 0.2,
        T: float = -1,
        p: float = 1,
        use_eta: bool = False,
        init_att: bool = False,
        attn_dropout: float = 0,
        precond: bool = True,
    ) -> None:
        super().__init__()
        self.d = d
        self.alp = alp if alp > 0 else 1 / (lam + 1)
        self.lam = lam
        self.tau = tau
        self.p = p
        self.prop_step = prop_step
        self.attn_aft = attn_aft
        self.use_eta = use_eta
        self.init_att = init_att
        self._precond = precond
        step = Propagate if precond else PropagateNoPrecond
        self.prop_layers = nn.ModuleList([step() for _ in range(prop_step)])
        self.init_attn = Attention(tau, T, p, attn_dropout) if init_att else None
        self.attn_layer = Attention(tau, T, p, attn_dropout) if attn_aft >= 0 else None
        self.etas = nn.Parameter(torch.ones(d)) if use_eta else None

    def forward(self, g: Any, X: Tensor) -> Tensor:
        """Propagate the features.

        Parameters
        ----------
        g : DGLGraph, dgl_flash.Graph or GraphStructure
            A homogeneous graph.
        X : Tensor
            (N, d)

        Returns
        -------
        Tensor
            (N, d)

        Raises
        ------
        DGLError
            If sources and destinations are not one set of nodes.
        TypeError
            If ``g`` is no graph.
        RuntimeError, DGLError
            If the features do not fit the graph or the module.
        """
        struct = read_graph(self, g, X)
        _require_one_set(g, struct, type(self).__name__)
        smoother = self._smoother(struct, X, X, self.init_attn)
        Y = X
        for k, layer in enumerate(self.prop_layers):
            Y = layer(smoother, Y, self.alp, self.lam)
            if k == self.attn_aft - 1:
                smoother = self._smoother(struct, X, Y, self.attn_layer)
        return Y

    def _smoother(
        self, struct: GraphStructure, X: Tensor, Y: Tensor, attention: Attention | None
    ) -> Smoother:
        """Prepare steps on the edges as they are, or as an attention on Y weights them."""
        wide = torch.promote_types(X.dtype, torch.float32)
        weight = None
        # Degrees, and distances that are differences, are too delicate for half types.
        with torch.autocast(X.device.type, enabled=False):
            if attention is None:
                degree = weighted_degree(struct, X.new_ones(struct.num_src, 1, dtype=wide))
            else:
                weight, degree = attention(struct, Y, self.etas)
            if self._precond:
                degree = self.lam * degree + (1 - self.lam)
            degree = torch.where(degree == 0, 1, degree)
            scale = degree.pow(-0.5)
            if weight is not None:
                weight = (weight * ops.u_mul_v(struct, scale, scale)).to(X.dtype)
            pull = self.alp / degree if self._precond else torch.full_like(degree, self.alp)
            anchor = X * pull.unsqueeze(-1).to(X.dtype)
        return Smoother(struct, weight, scale, anchor)


def _require_one_set(graph: Any, struct: GraphStructure, who: str) -> None:
    if getattr(graph, "is_homogeneous", struct.num_src == struct.num_dst):
        return
    etype = getattr(graph, "canonical_etypes", ["of two sizes"])[0]
    raise dgl_error(
        f"{who} does not support unidirectional bipartite graphs: {etype}."
        "Please make sure the types of head node and tail node are identical."
    )
