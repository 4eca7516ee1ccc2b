"""Products of rows with the matrix of their type."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from dgl_flash import reference
from dgl_flash.ops import check
from dgl_flash.reference.rows import accumulation_dtype
from dgl_flash.structure.adjacency import choose_index_dtype
from dgl_flash.structure.grouping import group_by_key
from dgl_flash.structure.segments import segment_offsets
from dgl_flash.structure.tiles import Layout, Runs, Tiles, choose_height, place_rows
from dgl_flash.structure.traced import is_tracing, outside_trace

INTEGERS = (torch.int32, torch.int64)


class PickRows(Function):
    """``out[i] = rows[ids[i]]`` for ids without repetition; its gradient is :class:`PlaceRows`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ids: Tensor) -> Tensor:
        """Gather (M, *) from (S, *)."""
        ctx.save_for_backward(ids)
        ctx.num_slots = rows.shape[0]
        return rows.index_select(0, ids)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None]:
        """Scatter to where the rows came from; no two meet, hence no atomics."""
        (ids,) = ctx.saved_tensors
        return PlaceRows.apply(grad_out, ids, ctx.num_slots), None


class PlaceRows(Function):
    """``out[ids[i]] = rows[i]``, zero elsewhere; its gradient is :class:`PickRows`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, ids: Tensor, num_slots: int) -> Tensor:
        """Scatter (M, *) to (S, *)."""
        ctx.save_for_backward(ids)
        return rows.new_zeros((num_slots, *rows.shape[1:])).index_copy_(0, ids.long(), rows)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        """Gather back."""
        (ids,) = ctx.saved_tensors
        return PickRows.apply(grad_out, ids), None, None


class PerTile(Function):
    """The weights of each tile; their gradient is :class:`SumTiles`."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, types: Tensor, bounds: Tensor) -> Tensor:
        """Copy (R, F) to (num_tiles, F)."""
        ctx.save_for_backward(types, bounds)
        return weight.index_select(0, types)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        """Sum over the tiles of each type."""
        return SumTiles.apply(grad_out, *ctx.saved_tensors), None, None


class SumTiles(Function):
    """The sum of what belongs to the tiles of a type; its gradient is :class:`PerTile`."""

    @staticmethod
    def forward(ctx: Any, parts: Tensor, types: Tensor, bounds: Tensor) -> Tensor:
        """Add up (num_tiles, F) to (R, F), always in the order of the tiles."""
        ctx.save_for_backward(types, bounds)
        return _sum_tiles(parts, bounds).to(parts.dtype)

    @staticmethod
    def backward(ctx: Any, grad_out: Tensor) -> tuple[Tensor, None, None]:
        """Hand the gradient of a type to each of its tiles."""
        return PerTile.apply(grad_out, *ctx.saved_tensors), None, None


def _sum_tiles(parts: Tensor, bounds: Tensor) -> Tensor:
    wide = parts.contiguous().to(accumulation_dtype(parts.dtype))
    return torch.segment_reduce(wide, "sum", offsets=bounds, axis=0, unsafe=True, initial=0)


def product(rows: Tensor, weight: Tensor, layout: Layout) -> Tensor:
    """Multiply rows that lie in the slots of a layout.

    Parameters
    ----------
    rows : Tensor
        (S, in)
    weight : Tensor
        (R, in, out), or (R, B, in / B, out / B) for matrices of B diagonal blocks.
    layout : Runs or Tiles
        Of S slots and R types.

    Returns
    -------
    Tensor
        (S, out)
    """
    if isinstance(layout, Tiles):
        return _tile_product(rows, weight, layout)
    if not layout.lengths:  # no types, hence no rows; there still is a width, and a gradient
        return reference.typed_mm(rows, weight.sum(0, keepdim=True), (0,))
    return reference.typed_mm(rows, weight, layout.lengths)


def add_outer_products(total: Tensor, rows: Tensor, others: Tensor, layout: Layout) -> None:
    """Add ``rows.T @ others`` of each type, the gradient of the weights in :func:`product`.

    Parameters
    ----------
    total : Tensor
        (R, in, out) or (R, B, in / B, out / B), float32 or float64; added to in place.
    rows, others : Tensor
        (S, in) and (S, out), zero in slots that hold nothing.
    layout : Runs or Tiles
        Of S slots and R types.
    """
    if isinstance(layout, Runs):
        reference.add_outer_products(total, rows, others, layout.lengths)
        return
    num_blocks = 1 if total.dim() == 3 else total.shape[1]
    left, right = (_by_tile(part, layout, num_blocks) for part in (rows, others))
    parts = torch.bmm(left.transpose(1, 2), right)
    flat = parts.reshape(layout.types.numel(), total.shape[1:].numel())
    total += _sum_tiles(flat, layout.bounds).view_as(total)


def _by_tile(rows: Tensor, tiles: Tiles, num_blocks: int) -> Tensor:
    """Rows as (tiles x B, height, width / B)."""
    num_tiles, width = tiles.types.numel(), rows.shape[1] // num_blocks
    # With one block, as usual, the transposition moves nothing.
    by_block = rows.reshape(num_tiles, tiles.height, num_blocks, width).transpose(1, 2)
    return by_block.reshape(num_tiles * num_blocks, tiles.height, width)


def _tile_product(rows: Tensor, weight: Tensor, tiles: Tiles) -> Tensor:
    blocks = weight.unsqueeze(1) if weight.dim() == 3 else weight  # (R, B, in / B, out / B)
    num_types, num_blocks, block_in, block_out = blocks.shape
    num_tiles = tiles.types.numel()
    flat = blocks.reshape(num_types, num_blocks * block_in * block_out)
    if torch.is_grad_enabled():
        copies = PerTile.apply(flat, tiles.types, tiles.bounds)
    else:
        copies = flat.index_select(0, tiles.types)
    out = torch.bmm(
        _by_tile(rows, tiles, num_blocks),
        copies.reshape(num_tiles * num_blocks, block_in, block_out),
    )
    out = out.reshape(num_tiles, num_blocks, tiles.height, block_out).transpose(1, 2)
    return out.reshape(num_tiles * tiles.height, num_blocks * block_out)


def _multiply(a: Tensor, b: Tensor, layout: Layout, slots: Tensor | None) -> Tensor:
    if slots is None:
        return product(a, b, layout)
    placed = PlaceRows.apply(a, slots, layout.num_slots)
    return PickRows.apply(product(placed, b, layout), slots)


def _height(a: Tensor, b: Tensor) -> int:
    # A type's weights hold in * out numbers, or in * out / B in B blocks.
    return choose_height(a.shape[0], b.shape[0], a.shape[1], b.shape[-1])


def _by_lengths(lengths: Tensor, a: Tensor, b: Tensor) -> tuple[Layout, Tensor | None]:
    """Layout of segments."""
    check_lengths("segment_mm", "seglen_a", lengths, "a", a.shape[0])
    offsets = segment_offsets(lengths, a.shape[0])
    if offsets.device.type != "cpu":
        offsets = offsets.to(a.device)
    return place_rows(offsets, a.shape[0], _height(a, b), a.device)


def _by_types(types: Tensor, a: Tensor, b: Tensor) -> tuple[Layout, Tensor | None]:
    """Layout of rows in any order."""
    num_rows, num_types = a.shape[0], b.shape[0]
    types = types.to(a.device)
    if types.device.type == "cpu" and num_rows:
        smallest, largest = (int(end) for end in torch.aminmax(types))
        if smallest < 0 or largest >= num_types:
            raise IndexError(
                f"gather_mm: expected `idx_b` in [0, {num_types}), got values from {smallest} to "
                f"{largest}; `b` has {num_types} matrices"
            )
    keys = types.to(choose_index_dtype(num_types, 0, num_rows))
    offsets, order = group_by_key(keys, num_types)
    sorted_keys = keys.index_select(0, order)
    layout, placed = place_rows(offsets.long(), num_rows, _height(a, b), a.device, sorted_keys)
    if placed is None:
        placed = torch.arange(num_rows, device=a.device)
    return layout, torch.empty_like(placed).scatter_(0, order.long(), placed)


def check_lengths(op: str, name: str, lengths: Tensor, rows: str, num_rows: int) -> None:
    """Raise unless lengths of segments, as far as the host sees them, share out all rows."""
    if lengths.device.type != "cpu":
        if lengths.numel() == 0 and num_rows:
            raise ValueError(
                f"{op}: expected `{name}` to sum up to the rows of `{rows}`, {num_rows}, got none"
            )
        return
    total = int(lengths.sum())
    if total != num_rows:
        raise ValueError(
            f"{op}: expected `{name}` to sum up to the rows of `{rows}`, {num_rows}, "
            f"got a sum of {total}"
        )
    if lengths.numel() and int(lengths.min()) < 0:
        raise ValueError(
            f"{op}: expected `{name}` to be at least 0, got a length of {int(lengths.min())}"
        )


def check_index(op: str, name: str, index: Tensor) -> None:
    """Raise unless ``index`` is a tensor of integers."""
    if not isinstance(index, Tensor) or index.dtype not in INTEGERS:
        got = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"{op}: expected `{name}` to be a tensor of int32 or int64, got {got}")


def check_operands(op: str, rows: tuple[str, Tensor, str], matrices: tuple[str, Tensor]) -> None:
    """Raise unless rows, given with the name of their number, fit the matrices."""
    row_name, a, size = rows
    name, b = matrices
    check.tensor(op, row_name, a)
    check.tensor(op, name, b)
    check.same_as(op, name, b, row_name, a)
    if a.dim() != 2:
        raise ValueError(f"{op}: expected `{row_name}` of shape ({size}, in), got {tuple(a.shape)}")
    fits = b.dim() in (3, 4)
    if not fits or b.shape[1:-1].numel() != a.shape[1]:
        raise ValueError(
            f"{op}: expected `{name}` of shape (R, in, out) with in = {a.shape[1]} like "
            f"`{row_name}`, got {tuple(b.shape)}"
        )


def _check(op: str, a: Tensor, b: Tensor, which: str, index: Tensor, dim_text: str) -> None:
    if isinstance(b, Tensor) and b.dim() not in (3, 4):
        raise ValueError(dim_text)
    check_operands(op, ("a", a, "N"), ("b", b))
    check_index(op, which, index)
    size, name = (a.shape[0], "N") if which == "idx_b" else (b.shape[0], "R")
    if tuple(index.shape) != (size,):
        raise ValueError(
            f"{op}: expected `{which}` of shape ({name},) = ({size},), got {tuple(index.shape)}"
        )


def segment_mm(a: Tensor, b: Tensor, seglen_a: Tensor) -> Tensor:
    r"""Multiply consecutive rows by one matrix a segment, as ``dgl.ops.segment_mm`` does.

    .. math::
        c_i = a_i B_r, \qquad i \text{ in segment } r

    Parameters
    ----------
    a : torch.Tensor
        (N, D1), float64, float32, float16 or bfloat16.
    b : torch.Tensor
        (R, D1, D2). Beyond DGL also (R, K, D1 / K, D2 / K): the K diagonal blocks of each matrix,
        all else being zero.
    seglen_a : torch.Tensor
        (R,), int32 or int64, rows of each segment, on the CPU or with ``a``. Segments may be empty.

    Returns
    -------
    torch.Tensor
        (N, D2), dtype of ``a``.

    Raises
    ------
    TypeError
        When an operand is no floating-point tensor, dtypes differ or lengths are no integers.
    ValueError
        When shapes or devices do not fit, a length is negative, or the lengths do not sum up to N.
        Lengths on a GPU are not looked at: rows beyond their sum count to the last segment.

    Notes
    -----
    DGL leaves rows out, without a word, when lengths sum up to less than N.

    **Fused path.** On CUDA the rows of a segment are cut into tiles of one height, the last padded
    with zeros, and one batched product of cuBLAS does all segments, without waiting for the device.
    It costs one padded copy of ``a`` and of the result; the gradient of ``b`` is a batched product
    too and a sum over the tiles in their order: no atomics, bit-equal from run to run. On the CPU
    there is a product a segment. Gradients of any order. In ``torch.compile`` the call interrupts
    the traced graph.
    """
    if is_tracing():
        return _segment_mm_outside(a, b, seglen_a)
    a, b = check.autocast(a, b)
    _check("segment_mm", a, b, "seglen_a", seglen_a, "segment_mm expects B to be a 3D tensor.")
    return _multiply(a, b, *_by_lengths(seglen_a, a, b))


def gather_mm(a: Tensor, b: Tensor, *, idx_b: Tensor) -> Tensor:
    r"""Multiply each row by the matrix that its index names, as ``dgl.ops.gather_mm`` does.

    .. math::
        c_i = a_i B_{t(i)}

    Parameters
    ----------
    a : torch.Tensor
        (N, D1), float64, float32, float16 or bfloat16.
    b : torch.Tensor
        (R, D1, D2). Beyond DGL also (R, K, D1 / K, D2 / K): the K diagonal blocks of each matrix,
        all else being zero.
    idx_b : torch.Tensor
        :math:`t`, (N,), int32 or int64, values in [0, R).

    Returns
    -------
    torch.Tensor
        (N, D2), dtype of ``a``.

    Raises
    ------
    TypeError
        When an operand is no floating-point tensor, dtypes differ or indices are no integers.
    ValueError
        When shapes or devices do not fit.
    IndexError
        When an index is out of range, negative ones included; on a GPU such an index ends in a
        device-side assertion of torch.

    Notes
    -----
    **Fused path.** A stable sort of ``idx_b`` finds the place of each row in the tiles of
    :func:`segment_mm`; the rows are moved there once and back once. DGL has a copy of a matrix for
    each row up to 10^6 rows of width 8, and wrong results beyond for an index out of range.
    """
    if is_tracing():
        return _gather_mm_outside(a, b, idx_b=idx_b)
    a, b = check.autocast(a, b)
    dim_text = f"Expected dimension of B is 3. Got {b.dim()}" if isinstance(b, Tensor) else ""
    _check("gather_mm", a, b, "idx_b", idx_b, dim_text)
    return _multiply(a, b, *_by_types(idx_b, a, b))


# Sorting and counting depend on values: torch.compile calls both and does not follow them.
_segment_mm_outside = outside_trace(segment_mm)
_gather_mm_outside = outside_trace(gather_mm)
