"""Which form of the three products an op uses right now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dgl_flash.ops.gradients import EAGER, Products
from dgl_flash.structure.traced import edge_tensors, is_tracing

if TYPE_CHECKING:
    from dgl_flash.structure import GraphStructure


def products_of(struct: GraphStructure) -> tuple[Products, Any]:
    """The products, eager or for ``torch.compile``, and the edges as they take them."""
    if is_tracing():
        from dgl_flash.ops.traced_products import TRACED

        return TRACED, edge_tensors(struct)
    return EAGER, struct
