"""The passes of all kinds of attention: what they are launched with and what they leave.

Each kind has four kernels: ``forward`` and ``attention`` walk the rows of the destinations, and so
does ``backward_dst``, which leaves two numbers a row and head for ``backward_src``, which walks the
rows of the sources and also writes the gradients of single edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from dgl_flash.kernels.jit import accumulator
from dgl_flash.kernels.launch import Argument
from dgl_flash.kernels.layout import Layout
from dgl_flash.kernels.memory import Scratch, empty
from dgl_flash.ops.edge_terms import EdgeTerms
from dgl_flash.ops.rows import RowKernel, RowLaunch

if TYPE_CHECKING:
    from dgl_flash.structure import Adjacency, GraphStructure

FEW_SHARES_BYTES = 2**22
Operands = tuple[Tensor, ...]
Gradients = list[Tensor | None]


def _no_flags(_: Operands) -> dict[str, int]:
    return {}


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels of one kind of attention.

    Attributes
    ----------
    name : str
        Of the op.
    choose_layout : callable
        From (pass, adjacency, H, D, bytes an element) to a layout.
    values, dst : int
        Which operand is summed, and which belongs to the destinations.
    src : tuple of int
        Which belong to the sources.
    scores_read_values : bool
        Whether the scores depend on what is summed.
    vector : int or None
        Which belongs to all rows alike, so that blocks leave shares of its gradient.
    flags : callable
        From the operands to further names of the prelude.
    merge_dst : callable
        Puts the pieces of long rows of ``backward_dst`` together.
    """

    name: str
    choose_layout: Callable[[str, Adjacency, int, int, int], Layout]
    values: int
    dst: int
    src: tuple[int, ...]
    scores_read_values: bool = False
    vector: int | None = None
    flags: Callable[[Operands], dict[str, int]] = _no_flags
    merge_dst: Callable[..., None]

    def _kernel(self, entry: str, choose_as: str | None = None) -> RowKernel:
        backward = entry.startswith("backward")
        file = f"{self.name}_backward" if backward else self.name
        return RowKernel(
            f"{file}.cu",
            f"{self.name}_{entry}",
            partial(self.choose_layout, choose_as or entry),
            shares=backward and self.vector is not None,
        )

    @cached_property
    def forward(self) -> RowKernel:
        """Output and log-sum-exp."""
        return self._kernel("forward")

    @cached_property
    def attention(self) -> RowKernel:
        """The attention itself."""
        return self._kernel("attention", choose_as="forward")

    @cached_property
    def backward_dst(self) -> RowKernel:
        """Gradient of the destinations' operand."""
        return self._kernel("backward_dst")

    @cached_property
    def backward_src(self) -> RowKernel:
        """Gradients of the sources' operands and of edges."""
        return self._kernel("backward_src")

    @cached_property
    def forward_entries(self) -> tuple[str, ...]:
        """What ``explain`` shows."""
        return (self.forward.entry,)


def merge_centered(
    rows: RowLaunch,
    operands: Operands,
    number: float,
    *,
    pieces: tuple[int, int],
    outputs: tuple[Argument, ...],
    head_dim: int,
) -> None:
    """End the cut rows of ``backward_dst``; ``number`` scales the gradient."""
    rows.merge(
        "merge_centered",
        operands[0].dtype,
        inputs=(number, *pieces),
        outputs=outputs,
        head_dim=head_dim,
    )


def bind(
    kernel: RowKernel,
    kind: Kernels,
    adj: Adjacency,
    operands: Operands,
    layout: Layout | None,
    flags: dict[str, int],
) -> RowLaunch:
    """Bind a kernel of a kind to an adjacency."""
    values = operands[kind.values]
    _, num_heads, head_dim = values.shape
    if kind.flags is not _no_flags:
        flags = {**flags, **kind.flags(operands)}
    return kernel.on(adj, values.dtype, num_heads, head_dim, layout, **flags)


def forward(
    kind: Kernels,
    struct: GraphStructure,
    operands: Operands,
    number: float,
    terms: EdgeTerms,
    layout: Layout | None = None,
) -> tuple[Tensor, Tensor]:
    """Output, and the log-sum-exp of each row and head.

    Parameters
    ----------
    kind : Kernels
        Which attention.
    struct : GraphStructure
        The graph, on a CUDA device.
    operands : tuple of Tensor
        Packed.
    number : float
        Slope or scale.
    terms : EdgeTerms
        What edges bring, packed.
    layout : Layout, optional
        Another one than the chosen one.

    Returns
    -------
    tuple of Tensor
        (N_dst, H, D), and (N_dst, H) in the dtype of the arithmetic, base 2.
    """
    adj, values = struct.in_adj, operands[kind.values]
    _, num_heads, head_dim = values.shape
    dtype, device = values.dtype, values.device
    rows = bind(kind.forward, kind, adj, operands, layout, terms.flags(adj))
    out = empty((struct.num_dst, num_heads, head_dim), dtype, device)
    lse = empty((struct.num_dst, num_heads), accumulator(dtype), device)
    width, states = num_heads * head_dim, num_heads * 2
    pieces = Scratch(lse.dtype, device, rows.num_chunks * width, rows.num_chunks * states)
    part_sum, part_state = pieces.addresses
    rows((*operands, number, *terms.arguments(adj)), (out, lse, part_sum, part_state))
    rows.merge("merge_softmax", dtype, inputs=(part_sum, part_state), outputs=(out, lse))
    return out, lse


def attention(
    kind: Kernels,
    struct: GraphStructure,
    operands: Operands,
    number: float,
    terms: EdgeTerms,
    lse: Tensor,
) -> Tensor:
    """The attention after dropout and weights, (E, H) in edge-id order; arguments as above."""
    adj, values = struct.in_adj, operands[kind.values]
    rows = bind(kind.attention, kind, adj, operands, None, terms.flags(adj, reads_edges=True))
    out = empty((struct.num_edges, values.shape[1]), values.dtype, values.device)
    rows((*operands, number, lse, *terms.arguments(adj)), (out,))
    return out


def _width(operand: Tensor) -> int:
    return math.prod(operand.shape[1:])


def backward(
    kind: Kernels,
    struct: GraphStructure,
    operands: Operands,
    number: float,
    terms: EdgeTerms,
    lse: Tensor,
    grad_out: Tensor,
    grad_attention: Tensor | None,
    wanted: Sequence[bool],
    layouts: tuple[Layout | None, Layout | None] = (None, None),
) -> Gradients:
    """Gradients of bias (E, H), weight (E, H) and operands, None for those that are not wanted.

    Parameters
    ----------
    kind, struct, operands, number, terms
        As in :func:`forward`.
    lse : Tensor
        Of the forward.
    grad_out : Tensor
        (N_dst, H, D), packed.
    grad_attention : Tensor or None
        (E, H), packed, where the attention was used.
    wanted : sequence of bool
        For bias, weight and operands.
    layouts : tuple
        Others than the chosen ones.

    Returns
    -------
    list
        In the order of ``wanted``.
    """
    values = operands[kind.values]
    dtype, acc_dtype, device = values.dtype, lse.dtype, values.device
    num_heads, row_width = values.shape[1], _width(values)
    by_dst, by_src = _bind_backward(
        kind, struct, operands, terms, grad_attention is not None, wanted, layouts
    )
    dst_width, src_widths = _width(operands[kind.dst]), [_width(operands[at]) for at in kind.src]
    src_chunks = by_src.num_chunks if by_src else 0
    shares = _Shares(kind, row_width, acc_dtype, by_dst, by_src)
    scratch = Scratch(
        acc_dtype,
        device,
        struct.num_dst * num_heads * 2,
        shares.size,
        # Pieces of one pass, then of the other.
        max(by_dst.num_chunks * 2 * dst_width, src_chunks * sum(src_widths)),
        by_dst.num_chunks * num_heads * 2,
    )
    row_state, part_attn, parts, part_totals = scratch.addresses
    given = (*operands, number, grad_out, grad_attention, lse)

    def gradient_of(operand: int) -> Tensor:
        return empty(tuple(operands[operand].shape), dtype, device)

    grads: Gradients = [None] * (2 + len(operands))
    grad_dst = grads[2 + kind.dst] = gradient_of(kind.dst)
    by_dst(
        (*given, *terms.arguments(struct.in_adj)),
        (grad_dst, row_state, parts, part_totals, *shares.addresses(part_attn)),
    )
    kind.merge_dst(
        by_dst,
        operands,
        number,
        pieces=(parts, part_totals),
        outputs=(grad_dst, row_state, *shares.addresses(part_attn, by_dst.grid[0])),
    )
    if by_src is None:
        return grads
    shares.make_room(part_attn)
    # What is summed over the heads afterwards is not rounded before.
    grad_edges = [
        empty((struct.num_edges, num_heads), acc_dtype if numbers.shape[1] == 1 else dtype, device)
        if numbers is not None and want
        else None
        for numbers, want in zip((terms.bias, terms.weight), wanted, strict=False)
    ]
    grads_src = [gradient_of(operand) for operand in kind.src]
    starts = [parts + src_chunks * sum(src_widths[:at]) * acc_dtype.itemsize for at in (0, 1)]
    part_grads = starts[: len(kind.src)]
    by_src(
        (*given, row_state, *terms.arguments(struct.out_adj)),
        (*grads_src, *grad_edges, *part_grads, *shares.addresses(part_attn, shares.kept)),
    )
    for grad, part, width in zip(grads_src, part_grads, src_widths, strict=True):
        head_dim = width // num_heads
        by_src.merge("merge_sum", dtype, inputs=(part,), outputs=(grad,), head_dim=head_dim)
    grads[:2] = grad_edges
    for operand, grad in zip(kind.src, grads_src, strict=True):
        grads[2 + operand] = grad
    if kind.vector is not None and wanted[2 + kind.vector]:
        grad_vector = grads[2 + kind.vector] = gradient_of(kind.vector)
        by_src.merge_shares(dtype, part_attn, shares.total, grad_vector)
    return [grad if want else None for grad, want in zip(grads, wanted, strict=True)]


def _bind_backward(
    kind: Kernels,
    struct: GraphStructure,
    operands: Operands,
    terms: EdgeTerms,
    by_edge: bool,
    wanted: Sequence[bool],
    layouts: tuple[Layout | None, Layout | None],
) -> tuple[RowLaunch, RowLaunch | None]:
    """Both passes; the second only where something needs it."""
    more = {"GRAD_ATTENTION": int(by_edge)}
    adj = struct.in_adj
    flags = {**terms.flags(adj, by_edge), **more}
    by_dst = bind(kind.backward_dst, kind, adj, operands, layouts[0], flags)
    others = [want for at, want in enumerate(wanted) if at != 2 + kind.dst]
    if not any(others):
        return by_dst, None
    adj = struct.out_adj
    writes = {"GRAD_BIAS": int(wanted[0]), "GRAD_WEIGHT": int(wanted[1])}
    flags = {**terms.flags(adj, by_edge or any(wanted[:2])), **more, **writes}
    return by_dst, bind(kind.backward_src, kind, adj, operands, layouts[1], flags)


class _Shares:
    """Where the blocks' shares of the gradient of a vector lie, for kinds that have one.

    Few shares of the first pass wait for the end; many are merged at once, to make room.
    """

    def __init__(
        self,
        kind: Kernels,
        row_width: int,
        acc_dtype: torch.dtype,
        by_dst: RowLaunch,
        by_src: RowLaunch | None,
    ) -> None:
        self.used, self.by_dst, self.acc_dtype = kind.vector is not None, by_dst, acc_dtype
        self.bytes = row_width * acc_dtype.itemsize
        self.first = by_dst.grid[0] + by_dst.num_long
        second = by_src.grid[0] if by_src else 0
        self.few = (self.first + second) * self.bytes <= FEW_SHARES_BYTES
        self.kept = self.first if self.few else 1
        self.total = self.kept + second
        self.size = max(self.first, self.total) * row_width if self.used else 0

    def addresses(self, start: int, nth: int = 0) -> tuple[int, ...]:
        """The argument of a kernel that writes shares from the ``nth`` onward, if it does."""
        return (start + nth * self.bytes,) if self.used else ()

    def make_room(self, start: int) -> None:
        """After the first pass."""
        if self.used and not self.few:
            self.by_dst.merge_shares(self.acc_dtype, start, self.first, start)
