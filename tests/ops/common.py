"""Inputs that the op tests share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from dgl_flash.structure import GraphStructure, structure
from tests.graphs import random_graph, small_zoo, zoo
from tests.numerics import check_op

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
WIDTHS = (1, 3, 7, 8, 31, 32, 33, 64, 100, 256, 512)
HEADS = (1, 3, 8)

every_graph = pytest.mark.parametrize("name", sorted(zoo()))
small_graph = pytest.mark.parametrize("name", sorted(small_zoo()))
every_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
every_half = pytest.mark.parametrize("dtype", DTYPES[2:], ids=lambda dtype: str(dtype)[6:])
every_kind_of_row = pytest.mark.parametrize(
    "name", ["block", "bipartite_up", "empty", "hub", "isolated_rows", "multi_edges"]
)
# Of what only kernels know, such as layouts.
only_cuda = pytest.mark.parametrize(
    "device", [pytest.param("cuda", marks=pytest.mark.gpu)], indirect=True
)
every_idtype = pytest.mark.parametrize("idtype", (torch.int32, torch.int64), ids=("int32", "int64"))


def shape_cases() -> list[Any]:
    """Every width, every head count and every dtype, without all of their products."""
    cases = [(3, width, torch.float32) for width in WIDTHS]
    cases += [(heads, width, torch.float32) for heads in HEADS for width in (7, 64)]
    cases += [
        (heads, width, dtype) for dtype in DTYPES for heads, width in ((2, 64), (3, 7), (1, 100))
    ]
    cases += [(1, 512, torch.float64), (1, 512, torch.bfloat16), (8, 32, torch.float16)]
    cases += [(64, 8, torch.float32), (16, 511, torch.float32)]
    return [
        pytest.param(*case, id=f"H{case[0]}-D{case[1]}-{str(case[2])[6:]}")
        for case in dict.fromkeys(cases)
    ]


every_shape = pytest.mark.parametrize(("num_heads", "head_dim", "dtype"), shape_cases())


def draw(*shape: int, dtype: torch.dtype, device: torch.device, seed: int) -> Tensor:
    """Standard normal values, the same on every device."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return values.to(dtype).to(device)


def skewed_graph(seed: int = 0) -> Any:
    """A few hundred nodes, one row long enough to be cut, many empty ones."""
    import dgl

    generator = torch.Generator().manual_seed(seed)
    src = torch.randint(0, 300, (2500,), generator=generator)
    dst = torch.randint(0, 200, (2500,), generator=generator)
    dst[:1500] = 17
    src[1000:2000] = 5
    order = torch.randperm(2500, generator=generator)
    return dgl.graph((src[order], dst[order]), num_nodes=300)


def even_graph() -> Any:
    """Short rows of the same length, as in a road network: two share a warp."""
    import dgl

    nodes = torch.arange(60)
    src = torch.cat([(nodes + step) % 60 for step in (1, 2, 58)])
    order = torch.randperm(180, generator=torch.Generator().manual_seed(0))
    return dgl.graph((src[order], nodes.repeat(3)[order]), num_nodes=60)


def dense_graph(degree: int) -> Any:
    """Long rows, from which on loads are wider and blocks larger."""
    return random_graph(24, 24 * degree, seed=4)


LAYOUT_GRAPHS = {
    "even": even_graph,
    "some": functools.partial(dense_graph, 15),
    "long": functools.partial(dense_graph, 25),
    "dense": functools.partial(dense_graph, 220),
}
# The rows decide on the layout too, so that every dtype and a tail meet each of them.
every_layout = pytest.mark.parametrize("rows", sorted(LAYOUT_GRAPHS))
every_tail = pytest.mark.parametrize(
    ("num_heads", "head_dim"),
    [(2, 64), (3, 7), (1, 256), (4, 32), (2, 100)],
    ids=["H2-D64", "H3-D7", "H1-D256", "H4-D32", "H2-D100"],
)


def small_graph_of(num_nodes: int = 12, num_edges: int = 40) -> Any:
    """For gradcheck."""
    return random_graph(num_nodes, num_edges, seed=3)


def on(device: torch.device, graph: Any) -> GraphStructure:
    """Structure of a CPU graph on the device under test."""
    return structure(graph, device)


# A gradient to one edge is one dot product; where its terms cancel, the order of the sum shows.
EDGE_ULPS = {torch.float64: 4000, torch.float32: 100, torch.float16: 4, torch.bfloat16: 4}


def check_twins(
    op: Callable[..., Any],
    twin: Callable[..., Any],
    graph: Any,
    device: torch.device,
    *,
    ulps: Mapping[str, float] | None = None,
    nothing: float = 0.0,
    **inputs: Any,
) -> None:
    """Judge an op on ``graph`` against its reference on the same device."""
    struct = on(device, graph)
    check_op(
        lambda **kw: op(graph, **kw),
        lambda **kw: twin(struct, **kw),
        inputs,
        ulps=ulps,
        nothing=nothing,
    )
