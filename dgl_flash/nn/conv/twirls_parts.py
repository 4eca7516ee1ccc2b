"""What TWIRLSConv is made of: propagation steps, edge weights from attention, and an MLP."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.structure import GraphStructure


@dataclass(frozen=True)
class Smoother:
    r"""The constants of a propagation step, between one attention and the next.

    Attributes
    ----------
    struct : GraphStructure
        The edges.
    weight : Tensor or None
        (E,), :math:`\tilde{D}_{uu}^{-1/2} w_e \tilde{D}_{vv}^{-1/2}`, or None when all
        :math:`w_e` are 1: ``scale`` is enough then.
    scale : Tensor
        (N,), :math:`\tilde{D}^{-1/2}`
    anchor : Tensor
        (N, d), what pulls every step towards the input: :math:`\alpha X`, divided by
        :math:`\tilde{D}` with pre-conditioning.
    """

    struct: GraphStructure
    weight: Tensor | None
    scale: Tensor
    anchor: Tensor

    def smooth(self, feat: Tensor) -> Tensor:
        r"""Multiply by :math:`\tilde{D}^{-1/2} A \tilde{D}^{-1/2}`, (N, d) to (N, d)."""
        if self.weight is not None:
            return ops.spmm(self.struct, feat, self.weight)
        return ops.spmm(self.struct, feat, src_scale=self.scale, dst_scale=self.scale)


class Propagate(nn.Module):
    """One step with pre-conditioning, equation 28 of the paper; without parameters."""

    def forward(self, smoother: Smoother, Y: Tensor, alp: float, lam: float) -> Tensor:
        """Step from (N, d) to (N, d)."""
        kept = torch.add(smoother.anchor, Y, alpha=1 - alp)
        return torch.add(kept, smoother.smooth(Y), alpha=alp * lam)


class PropagateNoPrecond(nn.Module):
    """One step with the normalised Laplacian, equation 30 of the paper; without parameters."""

    def forward(self, smoother: Smoother, Y: Tensor, alp: float, lam: float) -> Tensor:
        """Step from (N, d) to (N, d)."""
        kept = torch.add(smoother.anchor, Y, alpha=1 - alp * lam - alp)
        return torch.add(kept, smoother.smooth(Y), alpha=alp * lam)


class Attention(nn.Module):
    r"""Edge weights from the distance of the ends, equation 27 of the paper; without parameters.

    .. math::
        w_e = \frac{1}{\max(\tau, \lVert y_u - y_v \rVert^{2 - p})}, \quad
        \text{0 where the power exceeds } T

    Parameters
    ----------
    tau, T, p : float
        The thresholds and the exponent; no upper threshold if ``T`` is not positive.
    attn_dropout : float
        Dropout on the weights. Default 0.
    """

    def __init__(self, tau: float, T: float, p: float, attn_dropout: float = 0.0) -> None:
        super().__init__()
        self.tau = tau
        self.T = T
        self.p = p
        self.attn_dropout = attn_dropout

    def reweighting(self, distance: Tensor) -> Tensor:
        """Turn squared distances (E,) into weights (E,)."""
        # Rounding leaves small negative distances, of which no power exists.
        power = (distance.relu() + 1e-7).pow(1 - 0.5 * self.p)
        power = torch.where(power < self.tau, self.tau, power)
        if self.T > 0:
            power = torch.where(power > self.T, float("inf"), power)
        return 1 / power + 1e-9  # no degree is 0

    def forward(
        self, struct: GraphStructure, Y: Tensor, etas: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Weight the edges by features (N, d), each dimension by etas (d,) if given.

        Returns
        -------
        (Tensor, Tensor)
            Weights (E,), and their sums over the in-edges (N,) before dropout.
        """
        if etas is not None:
            Y = Y * etas.view(-1)
        # The difference of large numbers: too small for half types.
        Y = Y.to(torch.promote_types(Y.dtype, torch.float32))
        norm = Y.square().sum(-1)
        dot = ops.u_dot_v(struct, Y, Y).squeeze(1)
        weight = self.reweighting(ops.u_add_v(struct, norm, norm) - 2 * dot)
        degree = weighted_degree(struct, weight.new_ones(struct.num_src, 1), weight)
        if self.attn_dropout > 0:
            weight = F.dropout(weight, self.attn_dropout, training=self.training)
        return weight, degree


def weighted_degree(struct: GraphStructure, ones: Tensor, weight: Tensor | None = None) -> Tensor:
    """Sum weights (E,), or ones, over the in-edges of each node: from (N, 1) ones to (N,)."""
    return ops.spmm(struct, ones, weight).squeeze(1)


class MLP(nn.Module):
    """Linear layers with a normalisation, ReLU and dropout between them.

    Parameters
    ----------
    input_d, hidden_d, output_d : int
        Widths.
    num_layers : int
        Number of linear layers; 0 is the identity.
    dropout : float
        Dropout after each ReLU.
    norm : {"batch", "layer", "none"}
        Normalisation before each ReLU.
    init_activate : bool
        Whether to begin with an activation of features of width ``hidden_d``.
    """

    def __init__(
        self,
        input_d: int,
        hidden_d: int,
        output_d: int,
        num_layers: int,
        dropout: float,
        norm: str,
        init_activate: bool,
    ) -> None:
        super().__init__()
        self.init_activate = init_activate
        self.norm = norm
        self.dropout = dropout
        widths = [input_d, *(hidden_d,) * (num_layers - 1), output_d]
        self.layers = nn.ModuleList(
            [nn.Linear(widths[i], widths[i + 1]) for i in range(num_layers)]
        )
        self.norm_cnt = num_layers - 1 + int(init_activate)
        kinds: dict[str, type[nn.Module]] = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}
        if norm in kinds:
            self.norms = nn.ModuleList([kinds[norm](hidden_d) for _ in range(self.norm_cnt)])
        self.reset_params()

    def reset_params(self) -> None:
        """Draw the weights from Glorot's normal distribution and set the biases to 0."""
        for layer in self.layers:
            assert isinstance(layer, nn.Linear)
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, input_d) to (N, output_d)."""
        if self.init_activate:
            x = self._activate(x, 0)
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i < len(self.layers) - 1:
                x = self._activate(x, i + int(self.init_activate))
        return x

    def _activate(self, x: Tensor, position: int) -> Tensor:
        if self.norm != "none":
            x = self.norms[position](x)
        return F.dropout(F.relu(x), self.dropout, training=self.training)
