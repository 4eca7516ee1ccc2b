"""What is measured: an op at one shape and dtype, ready to run forward and backward on a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_flash import ops
from dgl_flash.structure import GraphStructure

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}
PASSES = ("forward", "backward", "both")


@dataclass(frozen=True)
class Case:
    """One op at one shape.

    Attributes
    ----------
    op : str
        ``"gatv2"`` or ``"spmm"``.
    heads, head_dim : int
        Features are (N, heads, head_dim).
    reduce : str
        What ``spmm`` computes: ``"sum"``, ``"mean"``, ``"both"`` (a sum with the normalisation of a
        GCN on both sides) or ``"weighted sum"`` (with a weight an edge that takes a gradient).
    """

    op: str
    heads: int
    head_dim: int
    reduce: str = "sum"

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.heads * self.head_dim

    @property
    def shape(self) -> str:
        """Shape as it stands in tables."""
        if self.op == "gatv2":
            return f"H={self.heads} D={self.head_dim}"
        return f"{self.reduce} W={self.width}"

    def prepare(self, struct: GraphStructure, dtype: torch.dtype) -> Call:
        """Draw seeded inputs on the graph's device."""
        generator = torch.Generator(struct.device).manual_seed(0)

        def draw(*shape: int) -> Tensor:
            drawn = torch.randn(*shape, device=struct.device, generator=generator)
            return drawn.to(dtype).requires_grad_()

        size = (self.heads, self.head_dim)
        if self.op == "gatv2":
            feats = draw(struct.num_src, *size), draw(struct.num_dst, *size), draw(*size)

            def run() -> Tensor:
                out = ops.gatv2(struct, *feats)
                assert isinstance(out, Tensor)  # it is a pair only with return_attention
                return out

            return Call(run, feats)
        feat = draw(struct.num_src, self.width)
        if self.reduce == "weighted sum":
            weight = draw(struct.num_edges)
            return Call(lambda: ops.spmm(struct, feat, weight), (feat, weight))
        if self.reduce == "both":
            wide = torch.float64 if dtype == torch.float64 else torch.float32
            src, dst = (struct.degree_scale(side, -0.5, wide) for side in ("src", "dst"))
            return Call(lambda: ops.spmm(struct, feat, src_scale=src, dst_scale=dst), (feat,))
        return Call(lambda: ops.spmm(struct, feat, reduce=self.reduce), (feat,))


class Call:
    """An op with its inputs, and its three passes as calls without arguments.

    Parameters
    ----------
    forward : callable
        Runs the op.
    inputs : sequence of Tensor
        What it is differentiated by.
    """

    def __init__(self, forward: Callable[[], Tensor], inputs: Sequence[Tensor]) -> None:
        self.forward = forward
        self._inputs = tuple(inputs)
        self._out = forward()
        generator = torch.Generator(self._out.device).manual_seed(1)
        noise = torch.randn(self._out.shape, device=self._out.device, generator=generator)
        self._grad = noise.to(self._out.dtype)

    def backward(self) -> tuple[Tensor, ...]:
        """Differentiate the output that was computed at the start."""
        return torch.autograd.grad(self._out, self._inputs, self._grad, retain_graph=True)

    def both(self) -> tuple[Tensor, ...]:
        """Run forward and backward."""
        return torch.autograd.grad(self.forward(), self._inputs, self._grad)


STANDARD = {
    "gatv2": (Case("gatv2", 2, 64),),
    "spmm": tuple(
        Case("spmm", 1, 256, reduce) for reduce in ("sum", "mean", "both", "weighted sum")
    ),
}
ALL = {
    "gatv2": (
        *STANDARD["gatv2"],
        Case("gatv2", 1, 16),
        Case("gatv2", 1, 64),
        Case("gatv2", 4, 32),
        Case("gatv2", 4, 64),
        Case("gatv2", 8, 8),
        Case("gatv2", 8, 64),
        Case("gatv2", 1, 7),
        Case("gatv2", 1, 512),
    ),
    "spmm": (
        *STANDARD["spmm"],
        *(Case("spmm", 1, width) for width in (16, 40, 64, 128, 512)),
    ),
}
