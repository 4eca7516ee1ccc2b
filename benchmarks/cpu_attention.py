"""Attention on a CPU: one op of ours, and what layers of ``dgl.nn`` do after their projections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import dgl_flash

# isort: split
import dgl.ops
import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.graphs import BenchGraph

OPS = ("edge_softmax", "gatv2", "gat", "dot_attention")
SHAPES = ((2, 64), (4, 32))  # heads and their width
SLOPE = 0.2
# Of DGL's time: never more, and for the attention that DGL spreads out over the edges much less.
MUST = 1.0
MUST_GATV2 = {"forward": 1 / 3, "both": 1 / 2}


def _attend(graph: Any, scores: Tensor, values: Tensor) -> Tensor:
    return dgl.ops.u_mul_e_sum(graph, values, dgl.ops.edge_softmax(graph, scores))


def _gatv2(graph: Any, feat_src: Tensor, feat_dst: Tensor, attn: Tensor) -> Tensor:
    hidden = F.leaky_relu(dgl.ops.u_add_v(graph, feat_src, feat_dst), SLOPE)
    return _attend(graph, (hidden * attn).sum(dim=-1).unsqueeze(-1), feat_src)


def _gat(graph: Any, feat_src: Tensor, el: Tensor, er: Tensor) -> Tensor:
    sums = dgl.ops.u_add_v(graph, el.unsqueeze(-1), er.unsqueeze(-1))
    return _attend(graph, F.leaky_relu(sums, SLOPE), feat_src)


def _dot_attention(graph: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend(graph, dgl.ops.u_dot_v(graph, k, q) / q.shape[-1] ** 0.5, v)


DGL_WAYS: dict[str, Callable[..., Tensor]] = {
    "edge_softmax": dgl.ops.edge_softmax,
    "gatv2": _gatv2,
    "gat": _gat,
    "dot_attention": _dot_attention,
}


@dataclass(frozen=True)
class AttentionCase:
    """One kind of attention.

    Attributes
    ----------
    op : str
        Its name in ``dgl_flash.ops``.
    heads, head_dim : int
        Shape of a row.
    """

    op: str
    heads: int
    head_dim: int
    weights = ""

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.heads * (1 if self.op == "edge_softmax" else self.head_dim)

    def must(self, which: str) -> float:
        """Largest part of DGL's time that a pass may take."""
        return MUST_GATV2[which] if self.op == "gatv2" else MUST

    def draw(self, graph: BenchGraph, dtype: torch.dtype) -> list[Tensor]:
        """Operands, the same at every call."""
        generator = torch.Generator().manual_seed(0)

        def rows(count: int, *shape: int) -> Tensor:
            drawn = torch.randn(count, *shape, generator=generator, dtype=torch.float64)
            return drawn.to(dtype)

        num_src, num_dst = graph.struct.num_src, graph.struct.num_dst
        row = self.heads, self.head_dim
        if self.op == "edge_softmax":
            found = [rows(graph.struct.num_edges, self.heads, 1)]
        elif self.op == "gatv2":
            # Scores of about one, as a trained layer has them.
            found = [rows(num_src, *row), rows(num_dst, *row), rows(*row) / self.head_dim**0.5]
        elif self.op == "gat":
            found = [rows(num_src, *row), rows(num_src, self.heads), rows(num_dst, self.heads)]
        else:
            found = [rows(num_dst, *row), rows(num_src, *row), rows(num_src, *row)]
        return [operand.requires_grad_() for operand in found]

    def of_dgl(self, dgl_graph: Any) -> Callable[..., Tensor]:
        """DGL's way, of the operands."""
        return partial(DGL_WAYS[self.op], dgl_graph)

    def ours(self, graph: BenchGraph) -> Callable[..., Tensor]:
        """Our op, of the operands."""
        return partial(getattr(dgl_flash.ops, self.op), graph.struct)


def attention_cases() -> list[AttentionCase]:
    """Each op in each shape."""
    return [AttentionCase(op, *shape) for op in OPS for shape in SHAPES]
