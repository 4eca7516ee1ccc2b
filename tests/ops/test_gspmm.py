"""Messages reduced at the destinations: every operator, broadcast and reducer as in ``dgl.ops``."""

from __future__ import annotations

import inspect
import itertools

import dgl_flash

# isort: split
import dgl
import dgl.ops as theirs
import pytest
import torch

from dgl_flash import ops, reference
from tests.graphs import zoo
from tests.nn.common import for_dgl, raised
from tests.numerics import outputs_and_grads
from tests.ops.common import (
    EDGE_ULPS,
    check_twins,
    draw,
    every_half,
    every_kind_of_row,
    on,
    skewed_graph,
    small_graph_of,
)

BINARY = ("add", "sub", "mul", "div")
# Shapes of a node's and of an edge's features: the same, either or both repeated, of fewer
# dimensions, none at all.
SHAPES = [
    ((4,), (4,)),
    ((4,), (1,)),
    ((1,), (4,)),
    ((2, 3), (2, 1)),
    ((2, 3), (2, 3)),
    ((2, 3), (1, 3)),
    ((2, 1), (1, 3)),
    ((2, 3), (3,)),
    ((3,), (2, 1)),
    ((2, 1, 3), (2, 4, 1)),
    ((3,), ()),
    ((), (3,)),
    ((), ()),
]
every_op = pytest.mark.parametrize("op", (*BINARY, "copy_lhs", "copy_rhs"))
every_reducer = pytest.mark.parametrize("reduce_op", ["sum", "mean", "max", "min"])
some_graphs = pytest.mark.parametrize(
    "name", ["permuted_edges", "bipartite_up", "block", "isolated_rows", "multi_edges", "batched"]
)


def away_from_zero(values):
    """So that a quotient is no matter of luck."""
    return values + values.sign() / 2


def operands(graph, op, shapes, dtype, device):
    kind = {"dtype": dtype, "device": device}
    given = {}
    if op != "copy_rhs":
        given["x"] = draw(graph.num_src_nodes(), *shapes[0], seed=1, **kind)
    if op != "copy_lhs":
        given["y"] = away_from_zero(draw(graph.num_edges(), *shapes[1], seed=2, **kind))
    return given


@every_reducer
@every_op
@some_graphs
@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
def test_as_dgl(name, op, reduce_op, device):
    for shapes in SHAPES:
        check_as_dgl(zoo()[name](torch.int64), shapes, op, reduce_op, device)


def check_as_dgl(graph, shapes, op, reduce_op, device):
    given = operands(graph, op, shapes, torch.float64, torch.device("cpu"))
    # What dgl.ops leaves infinite in rows without edges is zero here, as its documentation says.
    has_edges = graph.in_degrees() > 0

    def run(gspmm, graph, where):
        def function(x=None, y=None):
            out = gspmm(graph, op, reduce_op, x, y)
            keep = has_edges.to(out.device).reshape(-1, *(1,) * (out.dim() - 1))
            return torch.where(keep, out, 0)

        return outputs_and_grads(function, {key: v.to(where) for key, v in given.items()})

    expected = run(theirs.gspmm, for_dgl(graph), "cpu")
    found = run(ops.gspmm, graph, device)
    for key, value in expected.items():
        torch.testing.assert_close(found[key].cpu(), value, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("reduce_op", ["sum", "mean"])
@every_op
@pytest.mark.parametrize(
    "shapes", [((2, 32), (2, 1)), ((64,), (64,)), ((7,), ()), ((3, 5), (1, 5))], ids=str
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_as_exact_as_torch(shapes, op, reduce_op, dtype, device):
    graph = skewed_graph()
    given = operands(graph, op, shapes, dtype, device)
    check_twins(
        lambda g, x=None, y=None: ops.gspmm(g, op, reduce_op, x, y),
        lambda s, x=None, y=None: reference.gspmm(s, op, reduce_op, x, y),
        graph,
        device,
        ulps={"grad_y": EDGE_ULPS[dtype]},
        **given,
    )


@pytest.mark.parametrize("name", ["empty", "no_nodes", "hub", "power_law", "single_node"])
@pytest.mark.parametrize("op", ["copy_lhs", "copy_rhs", "mul", "add"])
def test_extreme_graphs(name, op, device):
    graph = zoo()[name](torch.int32)
    given = operands(graph, op, ((8,), (8,)), torch.float32, device)
    check_twins(
        lambda g, x=None, y=None: ops.gspmm(g, op, "sum", x, y),
        lambda s, x=None, y=None: reference.gspmm(s, op, "sum", x, y),
        graph,
        device,
        ulps={"grad_y": EDGE_ULPS[torch.float32]},
        **given,
    )


@every_half
@every_kind_of_row
@pytest.mark.parametrize("op", ["copy_rhs", "mul", "add"])
def test_every_kind_of_row_in_16_bits(name, op, dtype, device):
    graph = zoo()[name](torch.int64)
    given = operands(graph, op, ((7,), (7,)), dtype, device)
    check_twins(
        lambda g, x=None, y=None: ops.gspmm(g, op, "sum", x, y),
        lambda s, x=None, y=None: reference.gspmm(s, op, "sum", x, y),
        graph,
        device,
        ulps={"grad_y": EDGE_ULPS[dtype]},
        **given,
    )


@every_half
def test_sums_of_halves_do_not_round_on_the_way(dtype, device):
    """10^5 ones would stop at 2,048 (256) if they were added up in 16 bits."""
    graph = zoo()["hub"](torch.int64)
    ones = torch.ones(graph.num_edges(), 1, dtype=dtype, device=device)
    out = ops.copy_e_mean(graph, ones)
    assert torch.equal(out.cpu().flatten(), (graph.in_degrees() > 0).to(dtype))


@every_op
@pytest.mark.parametrize("shapes", [((2, 2), (2, 1)), ((3,), (3,)), ((2, 1), (1, 2))], ids=str)
@pytest.mark.parametrize("reduce_op", ["sum", "mean"])
def test_gradients_of_gradients(shapes, op, reduce_op, device):
    graph = small_graph_of(6, 14)
    given = operands(graph, op, shapes, torch.float64, device)
    leaves = [value.requires_grad_() for value in given.values()]

    def run(*values):
        named = dict(zip(given, values, strict=True))
        return ops.gspmm(graph, op, reduce_op, named.get("x"), named.get("y"))

    assert torch.autograd.gradcheck(run, leaves, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, leaves, fast_mode=True)


def test_names_are_those_of_dgl():
    wanted = {name for name in dir(theirs) if not name.startswith("_")}
    modules = {"sddmm", "segment", "spmm"}  # DGL's files
    assert wanted - modules <= set(dir(ops))
    assert wanted - modules <= set(ops.__all__)


@pytest.mark.parametrize(
    "name",
    [
        *(f"u_{op}_e_{red}" for op, red in itertools.product(BINARY, ("sum", "mean"))),
        *(f"copy_{end}_{red}" for end, red in itertools.product("ue", ("sum", "mean", "max"))),
    ],
)
@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
def test_generated_functions(name, device):
    graph = zoo()["regular"](torch.int64)
    mine, other = getattr(ops, name), getattr(theirs, name)
    assert mine.__name__ == mine.__qualname__ == name
    assert list(inspect.signature(mine).parameters) == list(inspect.signature(other).parameters)
    assert "Parameters" in mine.__doc__
    sides = {"u": graph.num_src_nodes(), "e": graph.num_edges()}
    ends = [part for part in name.split("_") if part in sides]
    given = [
        away_from_zero(draw(sides[end], 3, seed=i, dtype=torch.float64, device="cpu"))
        for i, end in enumerate(ends)
    ]
    out = mine(graph, *(value.to(device) for value in given))
    torch.testing.assert_close(out.cpu(), other(graph, *given))


def test_max_and_min_of_ties_and_rows_without_edges():
    """0 -> 1 twice, values alike: the first edge wins; 0 and 2 receive nothing."""
    graph = dgl.graph(([0, 0], [1, 1]), num_nodes=3)
    for name in ("copy_e_max", "copy_e_min"):
        values = torch.full((2, 1), -1.0, requires_grad=True)
        out = getattr(ops, name)(graph, values)
        assert out.flatten().tolist() == [0, -1, 0]
        out.sum().backward()
        assert values.grad.flatten().tolist() == [1, 0]
    infinite = torch.full((2, 1), torch.inf)
    assert ops.copy_e_max(graph, infinite).flatten().tolist() == [0, 0, 0]


ERRORS = {
    "dtypes": ({"y": lambda t: t.double()}, "mul", "sum"),
    "shapes": ({"y": lambda t: t[:, :3].repeat(1, 1)}, "mul", "sum"),
}


@pytest.mark.parametrize("case", sorted(ERRORS))
def test_errors_are_those_of_dgl(case):
    changes, op, reduce_op = ERRORS[case]
    graph = zoo()["regular"](torch.int64)
    given = {"x": torch.ones(graph.num_nodes(), 4), "y": torch.ones(graph.num_edges(), 4)}
    given = {key: changes.get(key, lambda t: t)(value) for key, value in given.items()}
    mine = raised(lambda: ops.gspmm(graph, op, reduce_op, *given.values()))
    other = raised(lambda: theirs.gspmm(graph, op, reduce_op, *given.values()))
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("foo", "sum", "x", "y"), dgl.DGLError, "binary operator: foo"),
        (("mul", "foo", "x", "y"), dgl.DGLError, "reducer: foo"),
        (("mul", "sum", "x", None), TypeError, "`rhs_data` to be a torch.Tensor"),
        (("copy_lhs", "sum", None, None), TypeError, "`lhs_data` to be a torch.Tensor"),
        (("mul", "sum", "short", "y"), dgl.DGLError, r"\(N_src, \*\) = \(10, \*\)"),
        (("mul", "sum", "x", "long"), dgl.DGLError, r"\(E, \*\) = \(30, \*\)"),
        (("copy_lhs", "sum", "whole", None), TypeError, "dtype float64"),
    ],
    ids=str,
)
def test_readable_errors(arguments, error, text, device):
    graph = zoo()["regular"](torch.int64)
    values = {
        "x": torch.ones(10, 2, device=device),
        "y": torch.ones(30, 2, device=device),
        "short": torch.ones(9, 2, device=device),
        "long": torch.ones(31, 2, device=device),
        "whole": torch.ones(10, 2, device=device, dtype=torch.int64),
    }
    op, reduce_op, *sides = arguments
    with pytest.raises(error, match=text):
        ops.gspmm(graph, op, reduce_op, *(values.get(side) for side in sides))


def test_our_own_graphs_and_structures_are_taken(device):
    graph = zoo()["bipartite_up"](torch.int64)
    src, dst = graph.edges()
    own = dgl_flash.graph((src, dst), num_src_nodes=3, num_dst_nodes=5)
    x = draw(3, 4, seed=1, dtype=torch.float32, device=device)
    expected = ops.copy_u_sum(graph, x)
    assert torch.equal(ops.copy_u_sum(own, x), expected)
    assert torch.equal(ops.copy_u_sum(on(device, graph), x), expected)


def test_autocast_casts_both_sides(device):
    graph = zoo()["regular"](torch.int64)
    x, y = torch.ones(10, 2, device=device), torch.ones(30, 2, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        out = ops.u_mul_e_sum(graph, x, y)
    assert out.dtype == torch.bfloat16


@pytest.mark.parametrize("reduce_op", ["max", "min"])
@pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")
def test_nan_is_passed_over(reduce_op, device):
    """As in DGL, where a row of nothing else is infinite; here that is 0, like an empty row."""
    graph = dgl.graph(([0, 1, 2, 0, 3], [0, 0, 0, 1, 2]), num_nodes=4)
    nan = float("nan")
    feat = torch.tensor([nan, 1.0, 2.0, -3.0], device=device, requires_grad=True)
    out = ops.gspmm(graph, "copy_lhs", reduce_op, feat, None)
    best = 2.0 if reduce_op == "max" else 1.0
    assert out.tolist() == [best, 0.0, -3.0, 0.0]
    out.sum().backward()
    assert feat.grad.tolist() == [0.0, float(best == 1.0), float(best == 2.0), 1.0]
    expected = theirs.gspmm(graph, "copy_lhs", reduce_op, feat.detach().cpu(), None)
    assert torch.equal(torch.where(expected.isinf(), 0, expected), out.detach().cpu())
