"""The three kinds of attention, as tests that hold for all of them see them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from dgl_flash import ops, reference
from dgl_flash.ops.edge_terms import draw_seed, edge_mask
from dgl_flash.structure import GraphStructure
from tests.ops.common import draw, on


@dataclass(frozen=True)
class Kind:
    """An op, its reference, and what its operands are.

    Attributes
    ----------
    op, twin : callable
        The op, and its reference.
    shapes : callable
        From (N_src, N_dst, H, D) to the shapes of the operands by name.
    """

    op: Callable[..., Any]
    twin: Callable[..., Any]
    shapes: Callable[[int, int, int, int], dict[str, tuple[int, ...]]]

    def inputs(
        self, graph: Any, num_heads: int, head_dim: int, dtype: torch.dtype, device: Any
    ) -> dict[str, Tensor]:
        """Operands that make scores of about one: a softmax that is not saturated."""
        struct = on(device, graph)
        shapes = self.shapes(struct.num_src, struct.num_dst, num_heads, head_dim)
        made = {
            name: draw(*shape, dtype=dtype, device=device, seed=seed)
            for seed, (name, shape) in enumerate(shapes.items(), 1)
        }
        if "attn" in made:
            made["attn"] = made["attn"] / head_dim**0.5
        return made


KINDS = {
    "gatv2": Kind(
        ops.gatv2,
        reference.gatv2,
        lambda n, m, h, d: {"feat_src": (n, h, d), "feat_dst": (m, h, d), "attn": (h, d)},
    ),
    "gat": Kind(
        ops.gat,
        reference.gat,
        lambda n, m, h, d: {"feat_src": (n, h, d), "el": (n, h), "er": (m, h)},
    ),
    "dot_attention": Kind(
        ops.dot_attention,
        reference.dot_attention,
        lambda n, m, h, d: {"q": (m, h, d), "k": (n, h, d), "v": (n, h, d)},
    ),
}
every_kind = pytest.mark.parametrize("kind", list(KINDS))


def mask_of(
    struct: GraphStructure, num_heads: int, dtype: torch.dtype, drop: float, seed: int
) -> Tensor:
    """The mask, (E, H), that an op applies right after ``torch.manual_seed(seed)``."""
    torch.manual_seed(seed)
    if struct.device.type == "cpu":
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return F.dropout(torch.ones(struct.num_edges, num_heads, dtype=wide), drop).to(dtype)
    return edge_mask(struct, num_heads, dtype, drop, draw_seed(struct.device))
