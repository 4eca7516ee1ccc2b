"""Operands by type: gspmm and gsddmm on heterographs, as ``dgl.ops`` has them."""

from __future__ import annotations

import dgl_flash

# isort: split
import dgl
import dgl.ops as theirs
import pytest
import torch

from dgl_flash import ops
from tests.graphs import two_relations
from tests.nn.common import raised
from tests.ops.common import draw

REDUCERS = ("sum", "mean", "max", "min")
every_reducer = pytest.mark.parametrize("reduce_op", REDUCERS)
every_idtype = pytest.mark.parametrize("idtype", [torch.int32, torch.int64], ids=str)
pytestmark = pytest.mark.filterwarnings("ignore::dgl_flash.errors.FallbackWarning")


def three_types(idtype=torch.int64, empty=True):
    """Four relations, two of them from b to b, and one without edges; c is no destination."""
    generator = torch.Generator().manual_seed(3)
    sizes = {"a": 7, "b": 9, "c": 4}

    def ends(src, dst, count):
        return tuple(
            torch.randint(sizes[ntype], (count,), generator=generator, dtype=idtype)
            for ntype in (src, dst)
        )

    relations = [("a", "r", "b", 20), ("b", "s", "b", 15), ("b", "t", "b", 6), ("c", "u", "a", 9)]
    edges = {(src, name, dst): ends(src, dst, count) for src, name, dst, count in relations}
    if empty:
        edges["c", "v", "b"] = ends("c", "b", 0)
    return dgl.heterograph(edges, num_nodes_dict=sizes)


def as_block(idtype=torch.int64):
    return dgl.to_block(three_types(idtype))


every_graph = pytest.mark.parametrize("builder", [three_types, two_relations, as_block])


def by_node(graph, *shape, device, seed=0):
    sizes = [graph._graph.num_nodes(ntype) for ntype in range(len(graph.ntypes))]
    return [leaf(size, *shape, device=device, seed=seed + i) for i, size in enumerate(sizes)]


def by_edge(graph, *shape, device, seed=50):
    sizes = map(graph.num_edges, graph.canonical_etypes)
    return [leaf(size, *shape, device=device, seed=seed + i) for i, size in enumerate(sizes)]


def leaf(*shape, device, seed):
    return draw(*shape, dtype=torch.float64, device=device, seed=seed).requires_grad_()


def ends_of(graph, etype_id):
    """Node types of a relation, and its edges."""
    src, dst = graph._graph.metagraph.find_edge(etype_id)
    u, v = graph.edges(etype=graph.canonical_etypes[etype_id], order="eid")
    return src, dst, u.long(), v.long()


def combine(op, left, right):
    if op == "dot":
        return (left * right).sum(-1, keepdim=True)
    return getattr(torch, op)(left, right)


def reduced(graph, op, reduce_op, x, y):
    """All messages of a destination's type in one tensor, reduced by torch."""
    messages, owners = {}, {}
    for etype_id in range(len(graph.canonical_etypes)):
        src, dst, u, v = ends_of(graph, etype_id)
        device = (x or y)[0].device
        left = x[src][u.to(device)] if x is not None else None
        right = y[etype_id] if y is not None else None
        message = combine(op, left, right) if op in dir(torch) else left if y is None else right
        messages.setdefault(dst, []).append(message)
        owners.setdefault(dst, []).append(v.to(device))
    results = []
    for ntype in range(len(graph.ntypes)):
        if ntype not in messages:
            results.append(torch.empty(0, dtype=torch.float64))
            continue
        message, owner = torch.cat(messages[ntype]), torch.cat(owners[ntype])
        index = owner.reshape(-1, *(1,) * (message.dim() - 1)).expand_as(message)
        zeros = message.new_zeros((graph._graph.num_nodes(ntype), *message.shape[1:]))
        how = {"max": "amax", "min": "amin"}.get(reduce_op, reduce_op)
        results.append(zeros.scatter_reduce(0, index, message, how, include_self=False))
    return results


def check(found, expected, leaves):
    """Compare the results, and the gradients of all leaves."""
    assert isinstance(found, tuple)
    assert [tuple(out.shape) for out in found] == [tuple(out.shape) for out in expected]
    for out, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(out, wanted.to(out.device))
    gradients = []
    for outs in (found, expected):
        loss = sum((out.sin().sum() for out in outs if out.numel()), torch.tensor(0.0))
        gradients.append(torch.autograd.grad(loss, leaves, allow_unused=True))
    for mine, other in zip(*gradients, strict=True):
        wanted = None if other is None or not other.any() else other
        torch.testing.assert_close(None if wanted is None else mine, wanted)


@every_graph
@every_reducer
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "copy_lhs", "copy_rhs"])
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (2, 1)), ((), ()), ((1,), (4,))])
def test_reduce(builder, op, reduce_op, shapes, device):
    graph = builder()
    x = None if op == "copy_rhs" else by_node(graph, *shapes[0], device=device)
    y = None if op == "copy_lhs" else by_edge(graph, *shapes[1], device=device)
    found = ops.gspmm(graph, op, reduce_op, x, y)
    check(found, reduced(graph, op, reduce_op, x, y), (x or []) + (y or []))


@every_idtype
def test_as_dgl(idtype, device):
    """DGL takes no mean, no relation without edges, and no block in this form."""
    graph = three_types(idtype, empty=False)
    x, y = by_node(graph, 3, device=device), by_edge(graph, 3, device=device)
    calls = {"copy_u_sum": (x,), "copy_e_max": (y,), "u_mul_e_sum": (x, y), "u_sub_e_min": (x, y)}
    calls |= {"u_add_v": (x, x), "u_dot_v": (x, x), "e_div_v": (y, x), "v_sub_u": (x, x)}
    calls |= {"copy_u": (x,), "copy_v": (x,), "e_mul_u": (y, x)}
    for name, operands in calls.items():
        expected = getattr(theirs, name)(graph, *(on_cpu(tensors) for tensors in operands))
        found = getattr(ops, name)(graph, *operands)
        assert len(found) == len(expected)
        for mine, other in zip(found, expected, strict=True):
            # DGL leaves rows without edges infinite.
            other = torch.where(other.isinf(), 0, other).to(mine)
            torch.testing.assert_close(mine, other, msg=lambda text, name=name: f"{name}: {text}")


def on_cpu(tensors):
    return [tensor.detach().cpu() for tensor in tensors]


@every_graph
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "dot"])
@pytest.mark.parametrize("targets", ["uv", "vu", "ue", "ev", "uu"])
@pytest.mark.parametrize("shapes", [((3,), (3,)), ((2, 3), (3,))], ids=str)
def test_map(builder, op, targets, shapes, device):
    graph = builder()
    given = {
        target: (by_edge if target == "e" else by_node)(graph, *shape, device=device, seed=seed)
        for target, shape, seed in zip(targets, shapes, (0, 20), strict=True)
    }
    lhs, rhs = given[targets[0]], given[targets[1]]
    expected = []
    for etype_id in range(len(graph.canonical_etypes)):
        src, dst, u, v = ends_of(graph, etype_id)
        rows = []
        for target, data in zip(targets, (lhs, rhs), strict=True):
            here = {"u": (src, u), "v": (dst, v), "e": (etype_id, slice(None))}[target]
            rows.append(data[here[0]][here[1] if target == "e" else here[1].to(device)])
        dims = max(row.dim() for row in rows)
        rows = [row.reshape(len(row), *(1,) * (dims - row.dim()), *row.shape[1:]) for row in rows]
        expected.append(combine(op, *rows))
    found = ops.gsddmm(graph, op, lhs, rhs, *targets)
    check(found, tuple(expected), lhs if lhs is rhs else lhs + rhs)


def test_widths_of_their_own(device):
    """Each type of destination may have its own; DGL allows it too."""
    graph = two_relations()
    x = by_node(graph, 3, device=device)
    users = graph.ntypes.index("user")
    y = [
        leaf(graph.num_edges(etype), 2 if etype[2] == "item" else 5, 1, device=device, seed=i)
        for i, etype in enumerate(graph.canonical_etypes)
    ]
    found = ops.u_mul_e_sum(graph, x, y)
    assert found[users].shape == (4, 5, 3)
    assert found[1 - users].shape == (6, 2, 3)
    check(found, reduced(graph, "mul", "sum", [part[:, None] for part in x], y), x + y)


def test_a_change_of_the_graph_is_seen(device):
    graph = three_types()
    x = by_node(graph, 3, device=device)
    ops.copy_u_sum(graph, x)
    graph.add_edges([0, 1], [2, 2], etype="s")
    check(ops.copy_u_sum(graph, x), reduced(graph, "copy_lhs", "sum", x, None), x)


def test_one_launch_for_all_relations(device):
    graph = three_types()
    x = by_node(graph, 3, device=device)
    with dgl_flash.ops.dispatch.record() as choices:
        ops.copy_u_sum(graph, x)
    assert [choice.op for choice in choices] == ["gspmm"]


def test_types_that_are_not_read_may_be_missing(device):
    graph = two_relations()  # items are no source
    x = by_node(graph, 3, device=device)
    expected = ops.copy_u_sum(graph, x)
    x[graph.ntypes.index("item")] = None
    for mine, other in zip(ops.copy_u_sum(graph, x), expected, strict=True):
        assert torch.equal(mine, other)


def test_compiled(device):
    graph = three_types()
    x, y = by_node(graph, 3, device=device), by_edge(graph, 3, device=device)
    expected = ops.u_mul_e_sum(graph, x, y)
    found = torch.compile(ops.u_mul_e_sum, backend="aot_eager", fullgraph=True)(graph, x, y)
    for mine, other in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, other)


def test_wrong_arguments(device):
    graph = two_relations()
    x, y = by_node(graph, 3, device=device), by_edge(graph, 3, device=device)
    user = graph.ntypes.index("user")

    def error(*arguments):
        return raised(lambda: ops.gspmm(graph, *arguments))

    assert isinstance(error("copy_lhs", "sum", x[0], None), dgl.DGLError)
    assert "a list of tensors, one for each type of edge" in str(error("mul", "sum", x, y[0]))
    assert "(2), got 1; pass them in the order of g.etypes" in str(error("mul", "sum", x, y[:1]))
    short = list(x)
    short[user] = x[user][:3]
    text = str(error("copy_lhs", "sum", short, None))
    assert f"expected `lhs_data[{user}]` of shape (4, *), got (3, 3)" in text
    short[user] = None
    assert isinstance(error("copy_lhs", "sum", short, None), TypeError)
    assert "not valid for broadcasting" in str(
        error("mul", "sum", x, by_edge(graph, 2, device=device))
    )
    assert "Unsupported SpMM binary operator" in str(error("pow", "sum", x, y))
    assert "Unsupported SpMM reducer" in str(error("mul", "prod", x, y))
    mixed = three_types()
    wide = by_node(mixed, 3, device=device)
    wide[0] = leaf(7, 4, device=device, seed=0)
    assert "messages of one shape at node type 'b'" in str(
        raised(lambda: ops.copy_u_sum(mixed, wide))
    )


def test_a_list_on_a_graph_of_one_relation(device):
    graph = two_relations()["follows"]
    feat = draw(4, 3, dtype=torch.float32, device=device, seed=0)
    assert isinstance(raised(lambda: ops.copy_u_sum(graph, [feat])), TypeError)
