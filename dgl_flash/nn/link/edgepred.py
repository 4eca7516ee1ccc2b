"""EdgePredictor, a score or features for pairs of nodes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

OPS = ["dot", "cos", "ele", "cat"]


class EdgePredictor(nn.Module):
    r"""Combine the features of two nodes, with the interface of ``dgl.nn.EdgePredictor``.

    .. math::
        y_{uv} = h_u^\top h_v \;\text{(dot)}, \quad
        \frac{h_u^\top h_v}{\|h_u\|_2 \|h_v\|_2} \;\text{(cos)}, \quad
        h_u \odot h_v \;\text{(ele)}, \quad
        h_u \Vert h_v \;\text{(cat)}

    With both widths given, a linear map follows.

    Parameters
    ----------
    op : {"dot", "cos", "ele", "cat"}
        How two rows become one.
    in_feats : int, optional
        D, the width of the features.
    out_feats : int, optional
        Output width of the linear map. Without it, or without ``in_feats``, there is no map.
    bias : bool
        Add a bias after the linear map. Default False.

    Attributes
    ----------
    linear : nn.Linear or None
        From 1 (``"dot"``, ``"cos"``), D (``"ele"``) or 2 D (``"cat"``) to ``out_feats``.

    Raises
    ------
    AssertionError
        If ``op`` is unknown.

    Notes
    -----
    Source: X. He, L. Liao, H. Zhang, L. Nie, X. Hu, T.-S. Chua, "Neural Collaborative Filtering",
    WWW 2017, https://arxiv.org/abs/1708.05031, which compares products with learned maps of
    both rows.

    Where DGL is wrong: its ``"dot"`` reads the numbers of ``h_dst`` in the shape of ``h_src``, so
    that a transposed ``h_dst`` gives numbers without a meaning; here it is an error.

    **Fused path.** There is none: the rows come gathered, and one batched product, or one pass
    over them in plain torch, remains. To score the edges of a graph without gathering rows, use
    ``dgl_flash.ops.gsddmm``.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import EdgePredictor
    >>> h_src, h_dst = torch.randn(3, 4), torch.randn(3, 4)
    >>> EdgePredictor("dot")(h_src, h_dst).shape
    torch.Size([3, 1])
    >>> EdgePredictor("cat", 4, 5)(h_src, h_dst).shape
    torch.Size([3, 5])
    """

    def __init__(
        self,
        op: str,
        in_feats: int | None = None,
        out_feats: int | None = None,
        bias: bool = False,
    ) -> None:
        super().__init__()
        if op not in OPS:
            raise AssertionError(f"Expect op to be in {OPS}, got {op}")
        self.op = op
        self.linear: nn.Linear | None
        if in_feats is None or out_feats is None:
            self.linear = None
        else:
            width = {"ele": in_feats, "cat": 2 * in_feats}.get(op, 1)
            self.linear = nn.Linear(width, out_feats, bias=bias)

    def reset_parameters(self) -> None:
        """Draw the linear map as ``torch.nn.Linear`` does."""
        if self.linear is not None:
            self.linear.reset_parameters()

    def forward(self, h_src: Tensor, h_dst: Tensor) -> Tensor:
        """Combine the rows of each pair.

        Parameters
        ----------
        h_src, h_dst : Tensor
            (E, D): one row for each end of E pairs.

        Returns
        -------
        Tensor
            (E, out_feats); without a linear map (E, 1), (E, D) or (E, 2 D), see ``linear``.

        Raises
        ------
        TypeError
            If the features are no tensors.
        ValueError
            If features for ``"dot"`` are no matrices.
        RuntimeError
            If shapes or dtypes do not fit.
        """
        if self.op == "dot":
            h = _dot(h_src, h_dst)
        elif self.op == "cos":
            h = functional.cosine_similarity(h_src, h_dst).unsqueeze(-1)
        elif self.op == "ele":
            h = h_src * h_dst
        else:
            h = torch.cat([h_src, h_dst], dim=-1)
        return h if self.linear is None else self.linear(h)


def _dot(h_src: Tensor, h_dst: Tensor) -> Tensor:
    """Row by row, (E, 1); as a product of matrices, which sums half types in float32."""
    for name, value in (("h_src", h_src), ("h_dst", h_dst)):
        if not isinstance(value, Tensor):
            raise TypeError(
                f"EdgePredictor: expected `{name}` to be a tensor, got {type(value).__name__}; "
                f"pass torch.as_tensor(...)"
            )
        if value.dim() != 2:
            raise ValueError(
                f"EdgePredictor: expected `{name}` of shape (E, D), got {tuple(value.shape)}; "
                f"pass one row for each pair"
            )
    return torch.bmm(h_src.unsqueeze(1), h_dst.unsqueeze(2)).squeeze(-1)
