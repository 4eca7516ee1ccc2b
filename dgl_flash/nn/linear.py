"""TypedLinear, a linear map whose matrix depends on the type of the row."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from dgl_flash import ops

REGULARIZERS = (None, "basis", "bdd")


class TypedLinear(nn.Module):
    r"""Multiply each row by the matrix of its type, with the interface of ``dgl.nn.TypedLinear``.

    .. math::
        y_i = x_i W_{t(i)}

    Fewer parameters than R matrices are needed where the matrices share a basis, or consist of
    diagonal blocks:

    .. math::
        W_r = \sum_{b=1}^{B} a_{rb} V_b \quad \text{(basis)}, \qquad
        W_r = \operatorname{diag}(Q_{r1}, \dots, Q_{rB}) \quad \text{(bdd)}

    Parameters
    ----------
    in_size, out_size : int
        Input and output width.
    num_types : int
        R.
    regularizer : {None, "basis", "bdd"}
        Form of the matrices; None, the default, leaves them free.
    num_bases : int, optional
        B, needed with a regularizer. ``"bdd"`` cuts both widths into B equal parts.

    Attributes
    ----------
    W : Parameter
        (R, in_size, out_size); the bases (B, in_size, out_size); or the blocks, flat,
        (R, B * in_size / B * out_size / B).
    coeff : Parameter
        :math:`a`, (R, B); with ``"basis"`` only.

    Raises
    ------
    ValueError
        If ``regularizer`` is unknown, ``num_bases`` is missing or does not divide the widths.

    Notes
    -----
    Source of the regularizers: M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov,
    M. Welling, "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018,
    https://arxiv.org/abs/1703.06103.

    **Fused path.** On CUDA one batched product serves all types, see ``dgl_flash.ops.gather_mm``;
    blocks are multiplied as blocks, and no matrix is copied for each row as in DGL. The host never
    waits for the device.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import TypedLinear
    >>> layer = TypedLinear(8, 5, 3)
    >>> layer(torch.randn(4, 8), torch.tensor([0, 2, 1, 0])).shape
    torch.Size([4, 5])
    """

    def __init__(
        self,
        in_size: int,
        out_size: int,
        num_types: int,
        regularizer: str | None = None,
        num_bases: int | None = None,
    ) -> None:
        super().__init__()
        if regularizer not in REGULARIZERS:
            raise ValueError(
                f'Supported regularizer options: "basis", "bdd", but got {regularizer}'
            )
        self.in_size = in_size
        self.out_size = out_size
        self.num_types = num_types
        if regularizer is None:
            self.W = nn.Parameter(torch.empty(num_types, in_size, out_size))
        elif num_bases is None:
            raise ValueError(f'Missing "num_bases" for {regularizer} regularization.')
        elif regularizer == "basis":
            self.W = nn.Parameter(torch.empty(num_bases, in_size, out_size))
            self.coeff = nn.Parameter(torch.empty(num_types, num_bases))
            self.num_bases = num_bases
        else:
            if in_size % num_bases != 0 or out_size % num_bases != 0:
                raise ValueError("Input and output sizes must be divisible by num_bases.")
            self.submat_in = in_size // num_bases
            self.submat_out = out_size // num_bases
            size = num_bases * self.submat_in * self.submat_out
            self.W = nn.Parameter(torch.empty(num_types, size))
            self.num_bases = num_bases
        self.regularizer = regularizer
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the matrices as ``torch.nn.Linear`` does, the coefficients after Glorot."""
        fan_in = self.submat_in if self.regularizer == "bdd" else self.in_size
        bound = 1 / math.sqrt(fan_in)
        nn.init.uniform_(self.W, -bound, bound)
        if self.regularizer == "basis":
            nn.init.xavier_uniform_(self.coeff, gain=nn.init.calculate_gain("relu"))

    def get_weight(self) -> Tensor:
        """Matrices of all types.

        Returns
        -------
        Tensor
            (R, in_size, out_size); with ``"bdd"`` the parameter ``W`` as it is.
        """
        if self.regularizer != "basis":
            return self.W
        return (self.coeff @ self.W.flatten(1)).view(-1, self.in_size, self.out_size)

    def _matrices(self) -> Tensor:
        """Matrices in the form that the ops take: (R, in, out), or (R, B, in / B, out / B)."""
        weight = self.get_weight()
        if self.regularizer != "bdd":
            return weight
        return weight.view(-1, self.num_bases, self.submat_in, self.submat_out)

    def forward(self, x: Tensor, x_type: Tensor, sorted_by_type: bool = False) -> Tensor:
        """Transform the rows.

        Parameters
        ----------
        x : Tensor
            (N, in_size)
        x_type : Tensor
            (N,), int32 or int64, values in [0, R).
        sorted_by_type : bool
            Promise that ``x_type`` ascends, which saves the sort.

        Returns
        -------
        Tensor
            (N, out_size)

        Raises
        ------
        TypeError
            If ``x`` is no floating-point tensor of the dtype of the module, or types that are not
            promised to be sorted are no int32 or int64.
        ValueError
            If shapes do not fit, or sorted types are out of range.
        IndexError
            If a type is out of range.
        """
        weight = self._matrices()
        if not sorted_by_type:
            return ops.gather_mm(x, weight, idx_b=x_type)
        bounds = torch.arange(self.num_types + 1, dtype=x_type.dtype, device=x_type.device)
        return ops.segment_mm(x, weight, torch.searchsorted(x_type, bounds).diff())

    def __repr__(self) -> str:
        """Return the description that printing the module shows."""
        text = (
            f"TypedLinear(in_size={self.in_size}, out_size={self.out_size}, "
            f"num_types={self.num_types}"
        )
        if self.regularizer is not None:
            text += f", regularizer={self.regularizer}, num_bases={self.num_bases}"
        return text + ")"
