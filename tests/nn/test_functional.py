"""edge_softmax under DGL's import path."""

from __future__ import annotations

import inspect

import dgl_flash.nn.functional as ours

# isort: split
import dgl
import dgl.nn.functional as theirs
import pytest
import torch

import dgl_flash
from tests.graphs import small_zoo
from tests.nn.common import draw


def test_signature():
    found, expected = (inspect.signature(m.edge_softmax).parameters for m in (ours, theirs))
    assert list(found) == list(expected)
    assert [p.default for p in found.values()] == [p.default for p in expected.values()]


def test_it_is_the_op():
    assert ours.edge_softmax is dgl_flash.ops.edge_softmax


@pytest.mark.parametrize("name", sorted(small_zoo()))
@pytest.mark.parametrize("norm_by", ["dst", "src"])
def test_values(name, norm_by, device):
    graph = small_zoo()[name](torch.int64)
    logits = draw(graph.num_edges(), 2, 1)
    plain = graph if graph.is_block else graph.formats(["coo", "csr", "csc"])
    expected = theirs.edge_softmax(plain, logits, norm_by=norm_by)
    found = ours.edge_softmax(graph, logits.to(device), norm_by=norm_by)
    torch.testing.assert_close(found.cpu(), expected)


def test_rows_belong_to_edge_ids(device):
    graph = dgl.graph(([0, 1, 2, 2], [2, 0, 1, 0]))
    found = ours.edge_softmax(graph, torch.tensor([5.0, 1.0, 7.0, 1.0], device=device))
    torch.testing.assert_close(found.cpu(), torch.tensor([1.0, 0.5, 1.0, 0.5]))
