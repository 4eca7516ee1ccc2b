"""Statistics of the messages at a destination, taken without spelling the messages out."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from dgl_flash import ops
from dgl_flash.structure import GraphStructure

_MOMENT = "moment"  # and the order


class Messages:
    r"""Messages whose destination enters as one summand, and what can be said of them.

    .. math::
        m_e = r_u + t_v \quad \text{or} \quad m_e = r_e + t_v, \qquad e = (u \to v)

    Mean, sum, maximum and minimum move with :math:`t`, variance and moments do not see it: all run
    over :math:`r` alone. What one statistic has computed the next does not compute again, and those
    that are announced come from one call of :func:`dgl_flash.ops.statistics`.

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
    names : collection of str
        Statistics that will be asked for, as :meth:`statistic` takes them. Others may be asked for
        too, and take a pass of their own each.

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
        names: Collection[str] = (),
    ) -> None:
        self.struct = struct
        self.dtype = rows.dtype
        self._rows = rows
        self._shift = shift
        self._on_edges = on_edges
        self._announced = tuple(dict.fromkeys(_source(name) for name in names))
        self._kept: dict[str, Tensor] = {}

    def statistic(self, name: str) -> Tensor:
        """Return a statistic of each feature.

        Parameters
        ----------
        name : str
            ``"mean"``, ``"sum"``, ``"max"``, ``"min"``, ``"var"``, ``"std"``, or ``"moment"`` and
            the order of a central moment, as in ``"moment3"``: the signed root of that order.

        Returns
        -------
        Tensor
            (N_dst, F)
        """
        if name.startswith(_MOMENT):
            return self._moment(int(name.removeprefix(_MOMENT)))
        found = self._find(_source(name))
        if name in ("var", "std"):
            return found
        found = found if self._shift is None else found + self._shift
        return self._times_degree(found) if name == "sum" else found

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

    def _find(self, name: str) -> Tensor:
        """Look a statistic of the rows up; the first to be asked for brings all announced ones."""
        if name not in self._kept:
            names = self._announced if name in self._announced else (name,)
            found = ops.statistics(self.struct, self._rows, names, on_edges=self._on_edges)
            self._kept.update(zip(names, found, strict=True))
        return self._kept[name]

    def _times_degree(self, mean: Tensor) -> Tensor:
        wide = torch.float64 if mean.dtype == torch.float64 else torch.float32
        return (mean * self.struct.in_degrees().to(wide).unsqueeze(1)).to(mean.dtype)

    def _moment(self, order: int) -> Tensor:
        if "deviations" not in self._kept:
            subtract = ops.e_sub_v if self._on_edges else ops.u_sub_v
            self._kept["deviations"] = subtract(self.struct, self._rows, self._find("mean"))
        powers = self._kept["deviations"].pow(order)
        return signed_root(ops.copy_e_mean(self.struct, powers), order)


def _source(name: str) -> str:
    """Which statistic of the rows another one is made from."""
    return "mean" if name == "sum" or name.startswith(_MOMENT) else name


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
