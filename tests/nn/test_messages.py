"""Statistics of messages: those of the layers, and those of mailboxes, which are DGL's."""

from __future__ import annotations

import importlib
from functools import partial

import dgl_flash  # noqa: F401

# isort: split
import dgl
import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash import ops
from dgl_flash.nn.aggregators import AGGREGATORS
from dgl_flash.nn.conv import pnaconv
from dgl_flash.nn.mailbox import edge_batch, reduce_mailboxes
from dgl_flash.nn.messages import Messages, signed_root
from dgl_flash.structure import structure
from tests.graphs import small_zoo
from tests.nn.common import TWO_NODE_SETS, draw, may_fall_back

dgls = importlib.import_module("dgl.nn.pytorch.conv.pnaconv")

pytestmark = may_fall_back  # of maximum and minimum

STATISTICS = {
    "mean": Messages.mean,
    "sum": Messages.sum,
    "max": Messages.max,
    "min": Messages.min,
    "var": Messages.var,
    "std": Messages.std,
    "moment3": partial(Messages.moment, order=3),
    "moment4": partial(Messages.moment, order=4),
    "moment5": partial(Messages.moment, order=5),
}


def test_one_neighbour_has_no_deviation(device):
    graph = dgl.graph(([0, 1, 2], [1, 2, 0]))
    messages = Messages(structure(graph, device), draw(3, 4).to(device), draw(3, 4).to(device))
    for found in (messages.var(), messages.std(), messages.moment(3), messages.moment(4)):
        assert not found.any()


def test_statistics_by_hand(device):
    """Of 11, 14 and 17 at node 3, with and without a summand of the destination."""
    graph = dgl.graph(([0, 1, 2], [3, 3, 3]))
    struct = structure(graph, device)
    rows = torch.tensor([[1.0], [4.0], [7.0], [0.0]], device=device)
    for messages in (
        Messages(struct, rows, 10 + 0 * rows),
        Messages(struct, 10 + rows[:3], on_edges=True),
    ):
        found = {
            "mean": messages.mean(),
            "sum": messages.sum(),
            "max": messages.max(),
            "min": messages.min(),
            "var": messages.var(),
            "std": messages.std(),
            "moment4": messages.moment(4),
            "weighted": messages.weighted_sum(
                torch.tensor([[1.0], [0.0], [2.0]], device=device),
                torch.tensor([[0.0], [0.0], [0.0], [3.0]], device=device),
            ),
        }
        values = {name: tensor[3].item() for name, tensor in found.items()}
        expected = {"mean": 14, "sum": 42, "max": 17, "min": 11, "var": 6, "std": 6**0.5}
        expected.update(moment4=54**0.25, weighted=45)
        assert values == pytest.approx(expected, rel=1e-5)


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
    found = STATISTICS[statistic](Messages(struct, rows, shift, on_edges))
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
    """Of three or four different messages each."""
    nodes = torch.arange(7)
    src = torch.cat([*((nodes + step) % 7 for step in (1, 2, 4)), torch.tensor([3])])
    struct = structure(dgl.graph((src, torch.cat([nodes.repeat(3), nodes[:1]]))), device)
    rows = draw(22 if on_edges else 7, 2).double().to(device).requires_grad_()
    shift = draw(7, 2, seed=1).double().to(device).requires_grad_()

    def call(rows, shift):
        return STATISTICS[statistic](Messages(struct, rows, shift, on_edges))

    assert check(call, (rows, shift), nondet_tol=1e-10)
