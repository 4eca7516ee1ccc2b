"""Every kernel once on small graphs, for compute-sanitizer: `make sanitize`.

A test run under the sanitizer would spend its time in pytest; this goes straight to the launches.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from dgl_flash import ops
from dgl_flash.ops.search_spmm import compile_all, layouts_of, passes_of
from dgl_flash.structure import Graph, graph

SHAPES = ((2, 64), (3, 7), (1, 100), (8, 8))
DTYPES = (torch.float32, torch.bfloat16)


def graphs() -> Iterator[Graph]:
    """A skewed bipartite graph whose hubs are cut, and short even rows."""
    src, dst = torch.randint(0, 60, (900,)), torch.randint(0, 40, (900,))
    dst[:500] = 7
    src[300:700] = 5
    yield graph((src, dst), num_src_nodes=60, num_dst_nodes=40)
    yield graph((torch.randint(0, 50, (150,)), torch.arange(150) // 3), num_nodes=50)


def every_layout(made: Graph, width: int, dtype: torch.dtype) -> None:
    """Sum as the rule does not choose on graphs as small as these: all that can be tuned."""
    struct = made._structure.to(torch.device("cuda"))
    for weights in (0, 1, width):
        for todo in passes_of(struct, width, dtype, edge_weight_heads=weights):
            compile_all(todo.run, layouts_of(todo), struct.device, lambda: None)
            if todo.library is not None:
                todo.library()


def main() -> None:
    """Run all ops forward and backward."""
    torch.manual_seed(0)
    for made, (heads, width), dtype in itertools.product(graphs(), SHAPES, DTYPES):

        def draw(*shape: int, dtype: torch.dtype = dtype) -> torch.Tensor:
            return torch.randn(*shape, device="cuda").to(dtype).requires_grad_()

        src = draw(made.num_src_nodes(), heads, width)
        dst = draw(made.num_dst_nodes(), heads, width)
        attn = draw(heads, width)
        attended = ops.gatv2(made, src, dst, attn)
        assert isinstance(attended, torch.Tensor)  # it is a pair only with return_attention
        weight = ops.edge_softmax(made, ops.u_dot_v(made, src, dst))
        summed = ops.spmm(made, src, weight) + ops.spmm(made, src, reduce="mean")
        loss = attended.float().square().sum() + summed.float().square().sum()
        torch.autograd.grad(loss, (src, dst, attn))
        edge = draw(made.num_edges(), heads, width)
        both = ops.u_mul_e(made, src, ops.v_add_e(made, dst, edge))
        reduced = ops.u_mul_e_sum(made, src, both) + ops.copy_e_mean(made, both)
        dots = ops.e_dot_v(made, edge, dst)
        scale = made._structure.degree_scale("src", -0.5, torch.float32).cuda()
        scaled = ops.spmm(made, src, src_scale=scale)
        loss = sum(part.float().square().sum() for part in (reduced, dots, scaled))
        torch.autograd.grad(loss, (src, dst, edge))
        etypes = torch.randint(0, 5, (made.num_edges(),), device="cuda")
        typed = ops.relational_sum(made, src.flatten(1), draw(5, heads * width, 8), etypes)
        torch.autograd.grad(typed.float().square().sum(), src)
        every_layout(made, heads * width, dtype)
    torch.cuda.synchronize()
    print("every kernel ran")


if __name__ == "__main__":
    main()
