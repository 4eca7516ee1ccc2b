"""Every kernel once on small graphs, for compute-sanitizer: `make sanitize`.

A test run under the sanitizer would spend its time in pytest; this goes straight to the launches.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

from dgl_flash import ops
from dgl_flash.ops.gatv2_joint import gatv2_joint
from dgl_flash.ops.search_spmm import compile_all, layouts_of, passes_of
from dgl_flash.structure import Graph, graph
from dgl_flash.structure.joint import Joint, padded

SHAPES = ((2, 64), (3, 7), (1, 100), (8, 8))
DTYPES = (torch.float32, torch.bfloat16)
STATISTICS = ("sum", "mean", "max", "min", "var", "std")


def graphs() -> Iterator[Graph]:
    """A skewed bipartite graph whose hubs are cut, short even rows, and dense ones."""
    src, dst = torch.randint(0, 60, (900,)), torch.randint(0, 40, (900,))
    dst[:500] = 7
    src[300:700] = 5
    yield graph((src, dst), num_src_nodes=60, num_dst_nodes=40)
    yield graph((torch.randint(0, 50, (150,)), torch.arange(150) // 3), num_nodes=50)
    yield graph((torch.randint(0, 16, (800,)), torch.randint(0, 16, (800,))), num_nodes=16)


def hubs() -> Iterator[Graph]:
    """Few edges a row, then many: bytes are compared, or lists read. Both ways a row is cut."""
    for num_nodes in (300, 30):
        src, dst = torch.randint(0, num_nodes, (2, 2400))
        dst[:1100] = 7
        src[800:2000] = 5
        yield graph((src, dst), num_nodes=num_nodes)


def every_layout(made: Graph, width: int, dtype: torch.dtype) -> None:
    """Sum as the rule does not choose on graphs as small as these: all that can be tuned."""
    struct = made._structure.to(torch.device("cuda"))
    for weights in (0, 1, width):
        for todo in passes_of(struct, width, dtype, edge_weight_heads=weights):
            compile_all(todo.run, layouts_of(todo), struct.device, lambda: None)
            if todo.library is not None:
                todo.library()


def attention(made: Graph, src: torch.Tensor, dst: torch.Tensor, attn: torch.Tensor) -> None:
    """Every kind, plain and with all that edges may bring."""
    numbers = torch.rand(made.num_edges(), src.shape[1], device="cuda").to(src.dtype)
    numbers.requires_grad_()
    left, right = src.sum(-1), dst.sum(-1)
    for options in (
        {},
        {
            "edge_bias": numbers,
            "edge_weight": numbers,
            "attn_drop": 0.5,
            "return_attention": True,
        },
    ):
        for found in (
            ops.gatv2(made, src, dst, attn, **options),
            ops.gat(made, src, left, right, **options),
            ops.dot_attention(made, dst, src, src, **options),
            ops.dot_attention(made, dst, src, src.exp(), **options),
        ):
            outputs = found if isinstance(found, tuple) else (found,)
            loss = sum(out.float().square().sum() for out in outputs)
            torch.autograd.grad(loss, (src, dst), retain_graph=True)
    attention_of_relations(made, src, dst, attn)


def attention_of_relations(
    made: Graph, src: torch.Tensor, dst: torch.Tensor, attn: torch.Tensor
) -> None:
    """The graph twice and its reverse, in one launch."""
    struct = made._structure.to(torch.device("cuda"))
    joint = Joint([struct, struct.reverse(), struct], "aba", "bab")
    sizes = {"a": src, "b": dst}
    given = [
        torch.cat([F.pad(rows, (0, 0, 0, 0, 0, padded(len(rows)) - len(rows))) for rows in side])
        for side in ([sizes[key] for key in "aab"], [sizes[key] for key in "bba"])
    ]
    out = gatv2_joint(joint, given[0], given[1], attn.expand(3, *attn.shape), 0.2)
    torch.autograd.grad(out.float().square().sum(), (src, dst, attn))


def extremes(made: Graph, src: torch.Tensor, edge: torch.Tensor) -> None:
    """Maxima and minima with every kind of message, and statistics of both kinds of rows."""
    numbers = edge[:, :1, :1], edge[:, :, :1], edge
    with torch.no_grad():
        ops.copy_u_max(made, src)
        ops.statistics(made, src, STATISTICS)
    for found in (
        (ops.copy_u_max(made, src), ops.copy_u_min(made, src), ops.copy_e_max(made, edge)),
        [ops.u_mul_e_max(made, src, each) for each in numbers],
        [ops.u_add_e_min(made, src, each) for each in numbers],
        ops.statistics(made, src, STATISTICS),
        ops.statistics(made, src),
        ops.statistics(made, edge, STATISTICS, on_edges=True),
        ops.statistics(made, edge, on_edges=True),
    ):
        loss = sum(out.float().square().sum() for out in found)
        torch.autograd.grad(loss, (src, edge), allow_unused=True)


Draw = Callable[..., torch.Tensor]


def products(
    made: Graph, src: torch.Tensor, dst: torch.Tensor, edge: torch.Tensor, draw: Draw
) -> None:
    """Sums, dot products and softmaxes, fused and by relations."""
    width = src[0].numel()
    weight = ops.edge_softmax(made, ops.u_dot_v(made, src, dst))
    summed = ops.spmm(made, src, weight) + ops.spmm(made, src, reduce="mean")
    torch.autograd.grad(summed.float().square().sum(), (src, dst))
    both = ops.u_mul_e(made, src, ops.v_add_e(made, dst, edge))
    reduced = ops.u_mul_e_sum(made, src, both) + ops.copy_e_mean(made, both)
    dots = ops.e_dot_v(made, edge, dst)
    scale = made._structure.degree_scale("src", -0.5, torch.float32).cuda()
    scaled = ops.spmm(made, src, src_scale=scale)
    loss = sum(part.float().square().sum() for part in (reduced, dots, scaled))
    torch.autograd.grad(loss, (src, dst, edge))
    etypes = torch.randint(0, 5, (made.num_edges(),), device="cuda")
    typed = ops.relational_sum(made, src.flatten(1), draw(5, width, 8), etypes)
    torch.autograd.grad(typed.float().square().sum(), src)
    every_layout(made, width, src.dtype)


def cases(only: str) -> Iterator[tuple[Graph, tuple[int, int], torch.dtype, str]]:
    """Graph, shape, dtype, and which family to run, all of them if it has no name."""
    yield from itertools.product(graphs(), SHAPES, DTYPES, [only])
    if only != "attention":
        yield from itertools.product(hubs(), SHAPES, DTYPES, ["extremum"])


def main(share: str = "1/1", only: str = "") -> None:
    """Run all ops forward and backward, or the n-th of m shares of them: m can compile at once.

    ``only`` may be ``"attention"`` or ``"extremum"``.
    """
    nth, count = (int(part) for part in share.split("/"))
    torch.manual_seed(0)
    for made, (heads, width), dtype, family in list(cases(only))[nth - 1 :: count]:

        def draw(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()

        src = draw(made.num_src_nodes(), heads, width)
        dst = draw(made.num_dst_nodes(), heads, width)
        edge = draw(made.num_edges(), heads, width)
        if family in ("", "attention"):
            attention(made, src, dst, draw(heads, width))
        if family in ("", "extremum"):
            extremes(made, src, edge)
        if family == "":
            products(made, src, dst, edge, draw)
    torch.cuda.synchronize()
    print("every kernel ran")


if __name__ == "__main__":
    main(*sys.argv[1:])
