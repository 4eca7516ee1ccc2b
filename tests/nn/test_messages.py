"""Statistics of messages: those of the layers, and those of mailboxes, which are DGL's."""

from __future__ import annotations

import importlib

import dgl_flash  # noqa: F401

# isort: split
import dgl
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash import ops
from dgl_flash.nn import DGNConv, PNAConv
from dgl_flash.nn.aggregators import AGGREGATORS
from dgl_flash.nn.conv import pnaconv
from dgl_flash.nn.mailbox import edge_batch, reduce_mailboxes
from dgl_flash.nn.messages import Messages, signed_root
from dgl_flash.structure import structure
from tests.graphs import small_zoo
from tests.nn.common import TWO_NODE_SETS, draw

dgls = importlib.import_module("dgl.nn.pytorch.conv.pnaconv")


ONE_PASS = ("mean", "max", "min", "std", "var", "sum")
STATISTICS = (*ONE_PASS, "moment3", "moment4", "moment5")


@pytest.fixture
def passes(monkeypatch):
    """Count the calls of ``ops.statistics``: the names that each asked for."""
    asked = []
    real = ops.statistics

    def spy(graph, feat, names, **kwargs):
        asked.append(names)
        return real(graph, feat, names, **kwargs)

    monkeypatch.setattr(ops, "statistics", spy)
    return asked


def test_one_neighbour_has_no_deviation(device):
    graph = dgl.graph(([0, 1, 2], [1, 2, 0]))
    messages = Messages(structure(graph, device), draw(3, 4).to(device), draw(3, 4).to(device))
    for name in ("var", "std", "moment3", "moment4"):
        assert not messages.statistic(name).any()


def test_statistics_by_hand(device):
    """Of 11, 14 and 17 at node 3, with and without a summand of the destination."""
    graph = dgl.graph(([0, 1, 2], [3, 3, 3]))
    struct = structure(graph, device)
    rows = torch.tensor([[1.0], [4.0], [7.0], [0.0]], device=device)
    for messages in (
        Messages(struct, rows, 10 + 0 * rows),
        Messages(struct, 10 + rows[:3], on_edges=True),
    ):
        names = (*ONE_PASS, "moment4")
        found = {name: messages.statistic(name) for name in names}
        found["weighted"] = messages.weighted_sum(
            torch.tensor([[1.0], [0.0], [2.0]], device=device),
            torch.tensor([[0.0], [0.0], [0.0], [3.0]], device=device),
        )
        values = {name: tensor[3].item() for name, tensor in found.items()}
        expected = {"mean": 14, "sum": 42, "max": 17, "min": 11, "var": 6, "std": 6**0.5}
        expected.update(moment4=54**0.25, weighted=45)
        assert values == pytest.approx(expected, rel=1e-5)


def graph_of_differences(device):
    """Three or four neighbours at each of 7 nodes, all of them different."""
    nodes = torch.arange(7)
    src = torch.cat([*((nodes + step) % 7 for step in (1, 2, 4)), torch.tensor([3])])
    return structure(dgl.graph((src, torch.cat([nodes.repeat(3), nodes[:1]]))), device)


@pytest.mark.parametrize("on_edges", [False, True])
def test_announced_statistics_are_one_pass(on_edges, passes, device):
    struct = graph_of_differences(device)
    rows = draw(22 if on_edges else 7, 3).double().to(device).requires_grad_()
    shift = draw(7, 3, seed=1).double().to(device).requires_grad_()
    grads = [draw(7, 3, seed=seed).double().to(device) for seed in range(len(STATISTICS))]

    def run(names):
        messages = Messages(struct, rows, shift, on_edges, names)
        found = [messages.statistic(name) for name in STATISTICS]
        messages.statistic("std")  # kept
        return *found, *torch.autograd.grad(found, (rows, shift), grads)

    together = run(STATISTICS)
    assert passes == [("mean", "max", "min", "std", "var")]  # the mean serves sum and moments
    passes.clear()
    single = run(())
    assert passes == [(name,) for name in ("mean", "max", "min", "std", "var")]
    for one, other in zip(together, single, strict=True):
        torch.testing.assert_close(one, other)


def test_what_is_not_announced_takes_a_pass_of_its_own(passes, device):
    struct = graph_of_differences(device)
    messages = Messages(struct, draw(7, 3).to(device), names=("max", "min"))
    assert not passes  # nothing is computed before it is asked for
    for name in ("std", "min", "max", "std"):
        messages.statistic(name)
    assert passes == [("std",), ("max", "min")]


@pytest.mark.parametrize("edge_feat_size", [0, 5])
@pytest.mark.parametrize("kind", [PNAConv, DGNConv])
def test_a_tower_takes_one_pass(kind, edge_feat_size, passes, device):
    graph = dgl.graph(([0, 1, 2, 3, 0], [1, 2, 3, 0, 2]))
    aggregators = ["mean", "max", "min", "std", "moment3", "sum"]
    more = {} if kind is PNAConv else {"eig_vec": draw(4, 1).to(device)}
    if kind is DGNConv:
        aggregators.insert(2, "dir1-av")
    sizes = {"num_towers": 2, "edge_feat_size": edge_feat_size}
    layer = kind(8, 6, aggregators, ["identity"], 2.5, **sizes).to(device)
    edge_feat = draw(5, edge_feat_size).to(device) if edge_feat_size else None
    assert layer(graph, draw(4, 8).to(device), edge_feat, **more).shape == (4, 6)
    assert passes == [("mean", "max", "min", "std")] * 2  # a tower each


@pytest.mark.parametrize("name", [*dgls.AGGREGATORS, *dgls.SCALERS])
def test_functions_of_mailboxes_are_dgls(name):
    """Also those that other tests have registered are there under the same names."""
    if name.startswith("dir"):
        assert name in pnaconv.AGGREGATORS
        return
    mailbox = draw(6, 5, 4)
    if name in dgls.AGGREGATORS:
        found, expected = (part.AGGREGATORS[name](mailbox) for part in (pnaconv, dgls))
    else:
        kwargs = {} if name == "identity" else {"D": 5, "delta": 2.5}
        found, expected = (part.SCALERS[name](mailbox, **kwargs) for part in (pnaconv, dgls))
    torch.testing.assert_close(found, expected)


def test_names_of_the_module_are_dgls():
    names = {name for name in vars(dgls) if not name.startswith("_")} - {"np", "nn", "torch"}
    assert names <= set(vars(pnaconv))


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("on_edges", [False, True])
@pytest.mark.parametrize("name", sorted(small_zoo().keys() - TWO_NODE_SETS))
def test_statistics_are_those_of_mailboxes(name, on_edges, statistic, device):
    struct = structure(small_zoo()[name](torch.int64), device)
    rows = draw(struct.num_edges if on_edges else struct.num_src, 4).double().to(device)
    shift = draw(struct.num_dst, 4, seed=1).double().to(device)
    found = Messages(struct, rows, shift, on_edges).statistic(statistic)
    spelled = rows if on_edges else ops.copy_u(struct, rows)
    expected = reduce_mailboxes(
        struct,
        {},
        {"msg": ops.e_add_v(struct, spelled, shift)},
        lambda nodes: AGGREGATORS[statistic](nodes.mailbox["msg"]),
    )
    reached = struct.in_degrees() > 0
    if expected is None:
        assert not reached.any()
        return
    # Moments and deviations of what is equal are roots of rounding.
    torch.testing.assert_close(found[reached], expected[reached], rtol=1e-6, atol=1e-4)


def test_mailboxes_are_in_the_order_of_the_edges(device):
    graph = dgl.graph(([2, 0, 1, 2, 0], [1, 1, 0, 1, 2]))
    struct = structure(graph, device)
    nodes = {"h": torch.arange(3.0, device=device)}
    batch = edge_batch(struct, nodes, {})
    assert batch.src["h"].tolist() == [2, 0, 1, 2, 0]
    assert batch.dst["h"].tolist() == [1, 1, 0, 1, 2]
    seen = {}

    def note(nodes):
        for own, messages in zip(nodes.data["h"], nodes.mailbox["m"], strict=True):
            seen[int(own)] = messages.tolist()
        return nodes.data["h"]

    ids = {"m": torch.arange(5.0, device=device)}
    assert reduce_mailboxes(struct, nodes, ids, note).tolist() == [0, 1, 2]
    assert seen == {0: [2], 1: [0, 1, 3], 2: [4]}


@pytest.mark.parametrize("order", [2, 3, 5])
def test_signed_roots(order, device):
    values = torch.tensor([8.0, -8, 0, 1e-30], device=device, requires_grad=True)
    found = signed_root(values, order)
    found.sum().backward()
    assert found[:3].tolist() == pytest.approx([8 ** (1 / order), -(8 ** (1 / order)), 0])
    assert values.grad.isfinite().all()
    assert values.grad[2] == 0


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("on_edges", [False, True])
def test_derivatives(on_edges, statistic, check, device):
    struct = graph_of_differences(device)
    rows = draw(22 if on_edges else 7, 2).double().to(device).requires_grad_()
    shift = draw(7, 2, seed=1).double().to(device).requires_grad_()

    def call(rows, shift):
        return Messages(struct, rows, shift, on_edges).statistic(statistic)

    assert check(call, (rows, shift), nondet_tol=1e-10)
