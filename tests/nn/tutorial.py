"""The layers of DGL's tutorial on sparse graph transformers, from their formulas, in dense torch.

They stand where for other layers ``dgl.nn`` does: same names and order of parameters.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tests.nn.common import ours


def attend(graph: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None = None) -> Tensor:
    """Softmax over the in-edges of each node, for (N, D, H) with the heads last."""
    src, dst = (end.long().to(q.device) for end in graph.edges(order="eid"))
    scores = (q[dst] * k[src]).sum(1)  # (E, H)
    if bias is not None:
        scores = scores + bias.reshape(len(dst), -1)
    owner = torch.arange(graph.num_dst_nodes(), device=q.device)[:, None] == dst  # (N_dst, E)
    highest = scores.detach().masked_fill(~owner[..., None], -torch.inf)
    highest = highest.amax(1) if len(dst) else highest.sum(1)
    parts = (scores - highest[dst]).exp()
    owner = owner.to(q.dtype)
    weights = parts / (owner @ parts)[dst]
    return torch.tensordot(owner, weights[:, None] * v[src], 1)


class SparseMHA(nn.Module):
    """Attention with the heads last."""

    def __init__(self, hidden_size: int = 80, num_heads: int = 8) -> None:
        super().__init__()
        self.shape = (hidden_size // num_heads, num_heads)
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(hidden_size, hidden_size))

    def forward(self, graph: Any, h: Tensor, edge_bias: Tensor | None = None) -> Tensor:
        q, k, v = (
            part(h).reshape(-1, *self.shape) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        # On a block the destinations are the first nodes.
        q = q[: graph.num_dst_nodes()] * self.shape[0] ** -0.5
        return self.out_proj(attend(graph, q, k, v, edge_bias).flatten(1))


class GTLayer(nn.Module):
    """Attention, then two linear maps, each with a residual and a norm over the batch."""

    def __init__(self, hidden_size: int = 80, num_heads: int = 8) -> None:
        super().__init__()
        self.MHA = SparseMHA(hidden_size, num_heads)
        self.batchnorm1 = nn.BatchNorm1d(hidden_size)
        self.batchnorm2 = nn.BatchNorm1d(hidden_size)
        self.FFN1 = nn.Linear(hidden_size, 2 * hidden_size)
        self.FFN2 = nn.Linear(2 * hidden_size, hidden_size)

    def forward(self, graph: Any, h: Tensor, edge_bias: Tensor | None = None) -> Tensor:
        h = self.batchnorm1(self.MHA(graph, h, edge_bias) + h[: graph.num_dst_nodes()])
        return self.batchnorm2(self.FFN2(self.FFN1(h).relu()) + h)


TUTORIAL = {"SparseMHA": SparseMHA, "GTLayer": GTLayer}


def of(library: Any, name: str) -> type[nn.Module]:
    """Our class, or that of the tutorial for any other library."""
    return getattr(ours, name) if library is ours else TUTORIAL[name]
