"""The two models of the demo, written once for any namespace that has DGL's layers.

A builder takes that namespace as ``dglnn``. ``import dgl.nn as dglnn`` and
``import dgl_flash.nn as dglnn`` are the only difference between the two programs compared.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class GATv2(nn.Module):
    """Two layers of GATv2 attention, heads concatenated, then averaged [1]_.

    Parameters
    ----------
    dglnn : namespace
        ``dgl.nn`` or ``dgl_flash.nn``.
    in_feats, hidden, classes, heads : int
        Width of the features, of a head, of the output; number of heads of both layers.
    dropout, attn_drop : float
        Dropout of the features between the layers, and of the attention of both.

    References
    ----------
    .. [1] Brody, Alon, Yahav, "How attentive are graph attention networks?", 2022.
    """

    def __init__(
        self,
        dglnn: Any,
        in_feats: int,
        hidden: int,
        classes: int,
        heads: int,
        *,
        dropout: float = 0.0,
        attn_drop: float = 0.0,
    ) -> None:
        super().__init__()
        self.first = dglnn.GATv2Conv(
            in_feats, hidden, heads, attn_drop=attn_drop, activation=functional.elu
        )
        self.second = dglnn.GATv2Conv(
            heads * hidden, classes, heads, feat_drop=dropout, attn_drop=attn_drop
        )

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Compute class scores of shape (N, classes) from features of shape (N, in_feats)."""
        hidden = self.first(graph, feat).flatten(1)
        return self.second(graph, hidden).mean(1)


class GCN(nn.Module):
    """Two graph convolutions with symmetric normalisation [1]_.

    Parameters
    ----------
    dglnn : namespace
        ``dgl.nn`` or ``dgl_flash.nn``.
    in_feats, hidden, classes : int
        Width of the features, between the layers, of the output.
    dropout : float
        Dropout of the features between the layers.

    References
    ----------
    .. [1] Kipf, Welling, "Semi-supervised classification with graph convolutional networks", 2017.
    """

    def __init__(
        self, dglnn: Any, in_feats: int, hidden: int, classes: int, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.first = dglnn.GraphConv(in_feats, hidden, activation=functional.relu)
        self.second = dglnn.GraphConv(hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Compute class scores of shape (N, classes) from features of shape (N, in_feats)."""
        hidden = self.first(graph, feat)
        return self.second(graph, self.dropout(hidden))


def build(
    model: str, dglnn: Any, in_feats: int, classes: int, hidden: int, heads: int
) -> nn.Module:
    """Build ``"GATv2"`` or ``"GCN"``, at equal width between the layers."""
    if model == "GATv2":
        return GATv2(dglnn, in_feats, hidden, classes, heads)
    return GCN(dglnn, in_feats, hidden * heads, classes)
