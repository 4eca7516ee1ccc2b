"""What single edges bring into attention: a bias of the score, a factor, and dropout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dgl_flash.kernels.jit import KernelKey
from dgl_flash.kernels.launch import Argument, get_kernel
from dgl_flash.kernels.memory import empty
from dgl_flash.ops import check
from dgl_flash.ops.choose import mean_degree
from dgl_flash.ops.choose_attention import DENSE_ROWS
from dgl_flash.ops.rows import packed

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, GraphStructure

DROPOUT_THREADS = 256


@dataclass(frozen=True)
class EdgeTerms:
    """All that edges may bring.

    Attributes
    ----------
    bias : Tensor or None
        (E, 1) or (E, H): what the score is increased by, or multiplied by.
    weight : Tensor or None
        (E, 1) or (E, H): what the attention is multiplied by.
    drop : float
        Probability that an attention value is dropped.
    seed : Tensor or None
        (1,) int64 on the device of the features, where kernels draw the mask.
    multiply : bool
        Whether the bias is a factor.
    """

    bias: Tensor | None = None
    weight: Tensor | None = None
    drop: float = 0.0
    seed: Tensor | None = None
    multiply: bool = False

    def packed(self, dtype: torch.dtype) -> EdgeTerms:
        """In the form that kernels read."""
        if self.bias is None and self.weight is None:
            return self
        bias, weight = (t if t is None else packed(t, dtype) for t in (self.bias, self.weight))
        return EdgeTerms(bias, weight, self.drop, self.seed, self.multiply)

    def flags(self, adj: Adjacency, reads_edges: bool = False) -> dict[str, int]:
        """Names of the prelude; ``reads_edges`` where the kernel has arrays of edges besides."""
        if self is NO_TERMS and not reads_edges:
            return _NO_FLAGS
        bias, weight = _kind(self.bias), _kind(self.weight)
        used = reads_edges or bias or weight or self.drop > 0
        return {
            "EDGE_BIAS": bias,
            "EDGE_WEIGHT": weight,
            "DROPOUT": 0 if self.drop == 0 else 2 if mean_degree(adj) >= DENSE_ROWS else 1,
            "MULTIPLY": int(self.multiply),
            "PERMUTED": int(bool(used) and adj.eids is not None),
        }

    def arguments(self, adj: Adjacency) -> tuple[Argument, ...]:
        """Arguments of a kernel."""
        return self.bias, self.weight, adj.eids, self.seed, *dropout_numbers(self.drop)


NO_TERMS = EdgeTerms()
_NO_FLAGS = dict.fromkeys(("EDGE_BIAS", "EDGE_WEIGHT", "DROPOUT", "MULTIPLY", "PERMUTED"), 0)


def _kind(numbers: Tensor | None) -> int:
    return 0 if numbers is None else 1 if numbers.shape[1] == 1 else 2


def dropout_numbers(drop: float) -> tuple[int, float]:
    """Below what a random word of 32 bits is dropped, and the scale of what is kept."""
    return min(round(drop * 2**32), 2**32 - 1), 0.0 if drop >= 1 else 1 / (1 - drop)


def draw_seed(device: torch.device) -> Tensor:
    """Draw the seed of a mask from torch's generator; the host never learns it, hence no wait."""
    return torch.randint(2**63 - 1, (1,), device=device)


def edge_mask(
    struct: GraphStructure, num_heads: int, dtype: torch.dtype, drop: float, seed: Tensor
) -> Tensor:
    """The mask that kernels apply, (E, H): 0 where they drop, else 1 / (1 - p)."""
    mask = empty((struct.num_edges, num_heads), dtype, struct.device)
    index_dtype = torch.int64 if mask.numel() >= 2**31 else torch.int32
    key = KernelKey("dropout.cu", "dropout_mask", dtype, index_dtype, (("H", num_heads),))
    blocks = -(-mask.numel() // DROPOUT_THREADS)
    kernel = get_kernel(key, struct.device.index)
    kernel((blocks, 1), DROPOUT_THREADS, seed, *dropout_numbers(drop), mask.numel(), mask)
    return mask


def edge_terms(
    op: str,
    struct: GraphStructure,
    feat: Tensor,
    *,
    edge_bias: Any,
    edge_weight: Any,
    attn_drop: float,
    multiply: bool = False,
) -> EdgeTerms:
    """Check the arguments of an op that belong to edges.

    Parameters
    ----------
    op : str
        Who asks.
    struct : GraphStructure
        The graph.
    feat : Tensor
        Features (N, H, D), whose dtype and device are wanted.
    edge_bias, edge_weight : Tensor or None
        (E,), (E, 1) or (E, H), with or without further dimensions of size 1.
    attn_drop : float
        A probability.
    multiply : bool
        Whether the bias is a factor.

    Returns
    -------
    EdgeTerms
        Without a seed.
    """
    if edge_bias is None and edge_weight is None and attn_drop == 0:
        return NO_TERMS
    drop = float(attn_drop)
    if not 0 <= drop <= 1:
        raise ValueError(
            f"{op}: expected `attn_drop` between 0 and 1, got {drop}; it is the share that is "
            f"dropped"
        )
    bias = _fold(op, "edge_bias", edge_bias, struct, feat)
    weight = _fold(op, "edge_weight", edge_weight, struct, feat)
    return EdgeTerms(bias, weight, drop, multiply=multiply and bias is not None)


def _fold(op: str, name: str, numbers: Any, struct: GraphStructure, feat: Tensor) -> Tensor | None:
    """View numbers of edges as (E, 1) or (E, H)."""
    if numbers is None:
        return None
    check.tensor(op, name, numbers)
    check.same_as(op, name, numbers, "the features", feat)
    num_edges, num_heads = struct.num_edges, feat.shape[1]
    shape = list(numbers.shape)
    while len(shape) > 2 and shape[-1] == 1:
        shape.pop()
    if len(shape) == 1:
        shape.append(1)
    if shape not in ([num_edges, 1], [num_edges, num_heads]):
        raise ValueError(
            f"{op}: expected `{name}` of shape (E,), (E, 1) or (E, H) = ({num_edges}, {num_heads}) "
            f"in edge-id order, got {tuple(numbers.shape)}; one number an edge, or one for each of "
            f"its heads, is needed"
        )
    return numbers.reshape(shape)


def by_head(grad: Tensor | None, numbers: Tensor | None) -> Tensor | None:
    """Sum a gradient (E, H) over the heads that share a number."""
    if grad is None or numbers is None:
        return None
    grad = grad.sum(dim=1, keepdim=True) if numbers.shape[1] == 1 else grad
    return grad.to(numbers.dtype)
