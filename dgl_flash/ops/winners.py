"""What winners let through: from nodes and edges to what they have won, and back.

``extremum`` keeps for each destination and number which edge of the row has won. Given that, a
maximum is linear: it reads rows of nodes or numbers of edges (:func:`pick`), and its gradient goes
back the same way (:func:`put`). Each of the two is the derivative of the other one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.kernels.jit import KernelKey, accumulator
from dgl_flash.kernels.launch import get_kernel
from dgl_flash.kernels.layout import make_layout
from dgl_flash.kernels.memory import Scratch, empty, empty_bytes
from dgl_flash.ops.choose_extremum import (
    backward_layout,
    collect_layout,
    edges_layout,
    lists_layout,
    wants_lists,
)
from dgl_flash.ops.dispatch import kernels_run
from dgl_flash.ops.gradients import row_width
from dgl_flash.ops.rows import RowKernel, RowLaunch, packed

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure

BACKWARD = RowKernel("extremum_backward.cu", "extremum_backward", backward_layout)
EDGES = RowKernel("extremum_backward.cu", "extremum_edges", edges_layout)
# The same kernel where each edge has a row: no sum over heads, hence slices.
EDGE_ROWS = RowKernel("extremum_backward.cu", "extremum_edges", backward_layout)
SORT = RowKernel("extremum_lists.cu", "extremum_sort", lists_layout)
COLLECT = RowKernel("extremum_lists.cu", "extremum_collect", lists_layout)
PICK_THREADS = 256


def put_to_nodes(struct: GraphStructure, winners: Tensor, grad: Tensor) -> Tensor:
    """Sum (N_dst, F) to (N_src, F)."""
    width = winners.shape[2]
    if wants_lists(struct.in_adj) and struct.num_src * width > 0:
        return put_by_lists(struct, [(winners, grad)])
    out = empty((struct.num_src, width), grad.dtype, grad.device)
    if out.numel() == 0:
        return out
    if struct.num_edges == 0:
        return out.zero_()
    _by_bytes(struct, winners, grad, out)
    return out


def _by_bytes(struct: GraphStructure, winners: Tensor, grad: Tensor, out: Tensor) -> None:
    num_bytes, num_dst, width = winners.shape
    rows = BACKWARD.on(struct.out_adj, grad.dtype, 1, width, WINNER_BYTES=num_bytes)
    pieces = Scratch(accumulator(grad.dtype), grad.device, rows.num_chunks * width)
    (part_sum,) = pieces.addresses
    rows((grad, winners, struct.out_places(), num_dst), (out, part_sum))
    rows.merge("merge_sum", grad.dtype, inputs=(part_sum,), outputs=(out,))


def put_by_lists(
    struct: GraphStructure, prizes: Sequence[tuple[Tensor, Tensor]], initial: Tensor | None = None
) -> Tensor:
    """Sum to sources in two steps: list what each edge has won, then read each source's lists.

    Parameters
    ----------
    struct : GraphStructure
        The graph, with edges.
    prizes : sequence of tuple
        Winners (B, N_dst, F) and what they have won (N_dst, F), of one contest or two.
    initial : Tensor, optional
        (N_src, F) to add to.

    Returns
    -------
    Tensor
        (N_src, F)
    """
    (winners, grad), *others = prizes
    other_winners, other_grad = others[0] if others else (None, None)
    num_bytes, num_dst, width = winners.shape
    dtype, device, num_edges = grad.dtype, grad.device, struct.num_edges
    out = empty((struct.num_src, width), dtype, device)
    bound = _lists(struct, dtype, width, num_bytes, len(prizes))
    spans, entries = empty_bytes((bound.spans,), device), empty_bytes((bound.entries,), device)
    bound.sort((grad, winners, other_grad, other_winners, num_edges), (spans, entries))
    rows = bound.collect
    pieces = Scratch(accumulator(dtype), device, rows.num_chunks * width)
    (part_sum,) = pieces.addresses
    lists = (spans, entries, struct.out_positions())
    rows((initial, *lists, num_dst, num_edges), (out, part_sum))
    rows.merge("merge_sum", dtype, inputs=(part_sum,), outputs=(out,))
    return out


class _Lists(NamedTuple):
    """Both steps bound to a graph, and the bytes between them."""

    sort: RowLaunch
    collect: RowLaunch
    spans: int
    entries: int


def _lists(
    struct: GraphStructure, dtype: torch.dtype, width: int, num_bytes: int, contests: int
) -> _Lists:
    """Bind once: layouts that depend on both adjacencies take longer to find than to launch."""
    rows, adj = struct.in_adj, struct.out_adj
    key = ("lists", dtype, width, num_bytes, contests)
    found = adj.launches.get(key)
    if found is None:
        layout = lists_layout(rows, 1, width, dtype.itemsize)
        collect = collect_layout(rows, adj, width, dtype.itemsize)
        sort = {"WINNER_BYTES": num_bytes, "MOST_PLACES": 2 * layout.chunk, "CONTESTS": contests}
        slots = layout.slices * struct.num_dst * layout.slice_width * contests
        found = adj.launches[key] = _Lists(
            SORT.on(rows, dtype, 1, width, layout, **sort),
            COLLECT.on(adj, dtype, 1, width, collect, WINNER_BYTES=1, CONTESTS=contests),
            layout.slices * struct.num_edges * 4,
            slots * 2 * dtype.itemsize,
        )
    return found


def _put_to_edges(struct: GraphStructure, winners: Tensor, grad: Tensor, num_parts: int) -> Tensor:
    num_bytes, _, width = winners.shape
    out = empty((struct.num_edges, num_parts), grad.dtype, grad.device)
    if out.numel() == 0:
        return out
    adj = struct.in_adj
    if num_parts == width > 1:
        kernel, kind, num_heads = EDGE_ROWS, 3, 1
    else:
        kernel, kind, num_heads = EDGES, 1 if num_parts == 1 else 2, num_parts
    rows = kernel.on(
        adj,
        grad.dtype,
        num_heads,
        width // num_heads,
        WINNER_BYTES=num_bytes,
        WEIGHT=kind,
        PERMUTED=adj.eids is not None,
    )
    rows((grad, winners, adj.eids), (out,))
    return out


def _launch_pick(struct: GraphStructure, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
    num_bytes, num_dst, width = winners.shape
    out = empty((num_dst, width), values.dtype, values.device)
    num_parts = values.shape[1]
    if out.numel() == 0:
        return out
    adj = struct.in_adj
    kind = 3 if num_parts == width else 1 if num_parts == 1 else 2
    num_heads = num_parts if kind == 2 else 1
    layout = make_layout(
        num_heads, width // num_heads, values.dtype.itemsize, vectors=1, row_slots=1, unroll=1
    )
    flags = {
        "WINNER_BYTES": num_bytes,
        "WEIGHT": kind,
        "EDGE_ROWS": int(on_edges),
        "PERMUTED": int(adj.eids is not None),
    }
    constants = (*layout.constants(num_heads, width // num_heads), *flags.items())
    key = KernelKey(
        "extremum_backward.cu", "extremum_pick", values.dtype, adj.index_dtype, constants
    )
    kernel = get_kernel(key, adj.indptr.device.index)
    blocks = -(-num_dst * width // PICK_THREADS)
    arguments = (values, winners, adj.eids, adj.indptr, adj.indices, num_dst, out)
    kernel((blocks, 1), PICK_THREADS, *arguments)
    return out


def put_forward(
    struct: GraphStructure, winners: Tensor, grad: Tensor, on_edges: bool, num_parts: int
) -> Tensor:
    """Give winners what they have won, on whatever it lies; as in ``reference.put_won``."""
    if not kernels_run(grad.device) or grad.shape[1] == 0:
        return reference.put_won(struct, winners, grad, on_edges, num_parts)
    grad = packed(grad)
    if on_edges:
        return _put_to_edges(struct, winners, grad, num_parts)
    return put_to_nodes(struct, winners, grad)


def pick_forward(struct: GraphStructure, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
    """Read what winners have, on whatever it lies; as in ``reference.pick_won``."""
    if not kernels_run(values.device) or values.shape[1] == 0:
        return reference.pick_won(struct, winners, values, on_edges)
    return _launch_pick(struct, winners, packed(values), on_edges)


class PutFunction(Function):
    """From what is won to sources or edges."""

    @staticmethod
    def forward(
        ctx: Any,
        struct: GraphStructure,
        winners: Tensor,
        grad: Tensor,
        on_edges: bool,
        num_parts: int,
    ) -> Tensor:
        """Sum (N_dst, F) to (N_src, F) or (E, P)."""
        ctx.struct, ctx.on_edges = struct, on_edges
        ctx.save_for_backward(winners)
        return put_forward(struct, winners, grad, on_edges, num_parts)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Read the gradient of each winner."""
        (winners,) = ctx.saved_tensors
        return (
            None,  # struct
            None,  # winners
            pick(ctx.struct, winners, grad_out, ctx.on_edges),  # grad
            None,  # on_edges
            None,  # num_parts
        )


class PickFunction(Function):
    """From sources or edges to what is won."""

    @staticmethod
    def forward(
        ctx: Any, struct: GraphStructure, winners: Tensor, values: Tensor, on_edges: bool
    ) -> Tensor:
        """Read (N_src, F) or (E, P) into (N_dst, F)."""
        ctx.struct, ctx.on_edges, ctx.num_parts = struct, on_edges, values.shape[1]
        ctx.save_for_backward(winners)
        return pick_forward(struct, winners, values, on_edges)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Any, ...]:
        """Give each winner its part of the gradient."""
        (winners,) = ctx.saved_tensors
        return (
            None,  # struct
            None,  # winners
            put(ctx.struct, winners, grad_out, ctx.on_edges, ctx.num_parts),  # values
            None,  # on_edges
        )


def put(
    struct: GraphStructure, winners: Tensor, grad: Tensor, on_edges: bool, num_parts: int
) -> Tensor:
    """:func:`put_forward` through autograd, where it looks."""
    run = PutFunction.apply if torch.is_grad_enabled() else put_forward
    return run(struct, winners, grad, on_edges, num_parts)


def pick(struct: GraphStructure, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
    """:func:`pick_forward` through autograd, where it looks."""
    run = PickFunction.apply if torch.is_grad_enabled() else pick_forward
    return run(struct, winners, values, on_edges)


class Moves(Protocol):
    """Both moves on one representation of the edges, a GraphStructure or its tensors."""

    def put(
        self, edges: Any, winners: Tensor, grad: Tensor, on_edges: bool, num_parts: int
    ) -> Tensor:
        """From what is won to sources or edges."""

    def pick(self, edges: Any, winners: Tensor, values: Tensor, on_edges: bool) -> Tensor:
        """From sources or edges to what is won."""


class _Eager:
    """The moves as autograd functions."""

    put = staticmethod(put)
    pick = staticmethod(pick)


EAGER: Moves = _Eager()


def of_extremum(
    moves: Moves,
    edges: Any,
    message: str,
    on_edges: bool,
    winners: Tensor,
    operands: tuple[Tensor | None, Tensor | None],
    shapes: tuple[torch.Size, torch.Size | None],
    grad_out: Tensor,
    needed: tuple[bool, bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of a maximum to rows, and to numbers of edges.

    Parameters
    ----------
    moves, edges
        The moves, and the edges as they take them.
    message : {"copy", "add", "mul"}
        How a message is made of a row and a number of the edge.
    on_edges : bool
        Whether the rows belong to edges.
    winners : Tensor
        (B, N_dst, F)
    operands, shapes
        Rows and numbers, of which a product needs the values, and the shapes of both.
    grad_out : Tensor
        (N_dst, *)
    needed : tuple of bool
        Which gradients are wanted.

    Returns
    -------
    tuple of Tensor or None
        In the shapes of the operands.
    """
    width = winners.shape[2]
    grad = grad_out.reshape(grad_out.shape[0], width)
    of_rows = of_numbers = None
    feat, numbers = operands
    if needed[0]:
        won = grad
        if message == "mul":
            assert numbers is not None
            flat = numbers.reshape(numbers.shape[0], row_width(numbers))
            won = grad * moves.pick(edges, winners, flat, True)
        of_rows = moves.put(edges, winners, won, on_edges, width).reshape(shapes[0])
    if needed[1] and shapes[1] is not None:
        won = grad
        if message == "mul":
            assert feat is not None
            won = grad * moves.pick(edges, winners, feat.reshape(feat.shape[0], width), False)
        num_parts = shapes[1].numel() // max(shapes[1][0], 1)
        of_numbers = moves.put(edges, winners, won, True, num_parts).reshape(shapes[1])
    return of_rows, of_numbers
