"""Statistics of the messages at a destination, taken without spelling the messages out."""

from __future__ import annotations

import torch
from torch import Tensor

from dgl_flash import ops
from dgl_flash.structure import GraphStructure


class Messages:
    r"""Messages whose destination enters as one summand, and what can be said of them.

    .. math::
        m_e = r_u + t_v \quad \text{or} \quad m_e = r_e + t_v, \qquad e = (u \to v)

    Mean, sum, maximum and minimum move with :math:`t`, variance and moments do not see it: all run
    over :math:`r` alone. What one statistic has computed the next does not compute again.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    rows : Tensor
        :math:`r`, (N_src, F) or with ``on_edges`` (E, F).
    shift : Tensor, optional
        :math:`t`, (N_dst, F); None stands for 0.
    on_edges : bool
        Whether the rows belong to edges.

    Attributes
    ----------
    struct : GraphStructure
        The graph.
    dtype : torch.dtype
        Of the rows.

    Notes
    -----
    Destinations without in-edges have no messages: whoever asks has to set their rows.
    """

    def __init__(
        self,
        struct: GraphStructure,
        rows: Tensor,
        shift: Tensor | None = None,
        on_edges: bool = False,
    ) -> None:
        self.struct = struct
        self.dtype = rows.dtype
        self._rows = rows
        self._shift = shift
        self._on_edges = on_edges
        self._kept: dict[str, Tensor] = {}

    def mean(self) -> Tensor:
        """Return the mean, (N_dst, F)."""
        return self._shifted(self._mean())

    def sum(self) -> Tensor:
        """Return the sum, (N_dst, F), from the same pass as the mean."""
        mean = self.mean()
        wide = torch.float64 if mean.dtype == torch.float64 else torch.float32
        return (mean * self.struct.in_degrees().to(wide).unsqueeze(1)).to(mean.dtype)

    def max(self) -> Tensor:
        """Return the largest of each feature, (N_dst, F)."""
        return self._shifted(self._reduce("max", self._rows))

    def min(self) -> Tensor:
        """Return the smallest of each feature, (N_dst, F)."""
        return self._shifted(self._reduce("min", self._rows))

    def var(self) -> Tensor:
        """Return the variance, (N_dst, F)."""
        if "var" not in self._kept:
            squares = self._reduce("mean", self._rows * self._rows)
            self._kept["var"] = torch.relu(squares - self._mean() * self._mean())
        return self._kept["var"]

    def std(self) -> Tensor:
        """Return the standard deviation, (N_dst, F)."""
        return signed_root(self.var(), 2)

    def moment(self, order: int) -> Tensor:
        """Return the signed root of a central moment, (N_dst, F).

        Parameters
        ----------
        order : int
            Of the moment, and of the root.

        Returns
        -------
        Tensor
            (N_dst, F)
        """
        if "deviations" not in self._kept:
            subtract = ops.e_sub_v if self._on_edges else ops.u_sub_v
            self._kept["deviations"] = subtract(self.struct, self._rows, self._mean())
        powers = self._kept["deviations"].pow(order)
        return signed_root(ops.copy_e_mean(self.struct, powers), order)

    def weighted_sum(self, weight: Tensor, total: Tensor) -> Tensor:
        """Return the sum of the messages, each times a number.

        Parameters
        ----------
        weight : Tensor
            (E, 1)
        total : Tensor
            (N_dst, 1), the sum of the weights of each destination.

        Returns
        -------
        Tensor
            (N_dst, F)
        """
        if self._on_edges:
            out = ops.copy_e_sum(self.struct, self._rows * weight)
        else:
            out = ops.u_mul_e_sum(self.struct, self._rows, weight)
        return out if self._shift is None else out + self._shift * total

    def _mean(self) -> Tensor:
        if "mean" not in self._kept:
            self._kept["mean"] = self._reduce("mean", self._rows)
        return self._kept["mean"]

    def _reduce(self, reduce_op: str, rows: Tensor) -> Tensor:
        if self._on_edges:
            return ops.gspmm(self.struct, "copy_rhs", reduce_op, None, rows)
        return ops.gspmm(self.struct, "copy_lhs", reduce_op, rows, None)

    def _shifted(self, values: Tensor) -> Tensor:
        return values if self._shift is None else values + self._shift


def signed_root(values: Tensor, order: int) -> Tensor:
    """Take the root of the absolute value and keep the sign.

    Parameters
    ----------
    values : Tensor
        Any shape.
    order : int
        Of the root.

    Returns
    -------
    Tensor
        The same shape. At 0, where the root has no derivative, the derivatives are 0.
    """
    filled = values.abs().masked_fill(values == 0, 1)
    return values.sign() * filled.pow(1 / order)
