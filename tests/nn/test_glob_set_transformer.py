"""The set transformer gives DGL's outputs and gradients, however its batches are laid out."""

from __future__ import annotations

import gc
import inspect
import weakref
from functools import partial

import dgl_flash.nn.glob as our_glob

# isort: split
import dgl.nn.pytorch.glob as their_glob
import pytest
import torch
from dgl.base import DGLWarning
from torch.autograd import gradcheck, gradgradcheck

from dgl_flash.nn.glob import set_attention
from dgl_flash.nn.glob.set_attention import Sets, sets_of
from tests.nn.batches import FULL, empty_graphs, every_batch, every_gap, gaps, members, mixed
from tests.nn.common import (
    assert_same,
    draw,
    every_idtype,
    ours,
    raised,
    run,
    theirs,
    twins,
)
from tests.numerics import assert_accurate

BUILDERS = {
    "sab": partial(twins, "SetTransformerEncoder", 6, 2, 3, 5, 2),
    "isab": partial(twins, "SetTransformerEncoder", 6, 2, 3, 5, 1, "isab", 3),
    "decoder": partial(twins, "SetTransformerDecoder", 6, 2, 3, 5, 1, 2),
}
BLOCKS = {
    "MultiHeadAttention": (6, 2, 3, 5),
    "SetAttentionBlock": (6, 2, 3, 5),
    "InducedSetAttentionBlock": (4, 6, 2, 3, 5),
    "PMALayer": (4, 6, 2, 3, 5),
}
every_kind = pytest.mark.parametrize("kind", BUILDERS)
every_block = pytest.mark.parametrize("name", BLOCKS)


def same(pair, graph, feat, device):
    """Norms and softmaxes in a row round more often than a convolution."""
    return assert_same(pair, graph, feat, device, ulps=512)


@every_batch
@every_kind
@every_idtype
def test_batches(kind, name, idtype, device):
    graph = FULL[name](idtype)
    found = same(BUILDERS[kind](), graph, draw(graph.num_nodes(), 6), device)
    rows = graph.batch_size if kind == "decoder" else graph.num_nodes()
    assert found["out0"].shape == (rows, 12 if kind == "decoder" else 6)


@every_gap
@every_kind
def test_members_without_nodes(kind, name, device):
    """Each member is as DGL transforms it by itself."""
    graph = gaps(name)
    feat = draw(graph.num_nodes(), 6)
    mine, other = BUILDERS[kind]()
    other.load_state_dict(mine.state_dict())
    found = run(mine, graph, feat, device, torch.float32)
    outputs = []
    for dtype in (torch.float32, torch.float64):
        alone = [other.to(dtype)(part, rows.to(dtype)) for part, rows in members(graph, feat)]
        outputs.append(torch.cat(alone).detach())
    assert_accurate(found["out0"].cpu(), *outputs, ulps=64)
    assert all(value.isfinite().all() for value in found.values())


@every_kind
@pytest.mark.parametrize("name", empty_graphs())
def test_graphs_without_nodes(kind, name, device):
    graph = empty_graphs()[name]
    mine, other = BUILDERS[kind]()
    expected = other(graph, draw(0, 6))
    found = run(mine, graph, draw(0, 6), device, torch.float32)
    torch.testing.assert_close(found["out0"].cpu(), expected)


@every_kind
@pytest.mark.parametrize("most", [30, 600, 5000])
def test_scores_in_parts(kind, most, device, monkeypatch):
    """Made again in the backward pass, with the same results."""
    monkeypatch.setattr(set_attention, "MOST_SCORES", most)
    graph = FULL["mixed"]()
    same(BUILDERS[kind](), graph, draw(graph.num_nodes(), 6), device)


@pytest.mark.parametrize("check", [gradcheck, gradgradcheck])
@pytest.mark.parametrize("most", [2, 2**26])
def test_derivatives_of_attention(check, most, device, monkeypatch):
    monkeypatch.setattr(set_attention, "MOST_SCORES", most)
    queries = Sets(torch.tensor([2, 0, 1, 1]), device)
    keys = Sets(torch.tensor([3, 1, 0, 1]), device)
    pairing = queries.pairing(keys)
    operands = [
        draw(rows, 1, 2, seed=rows).double().to(device).requires_grad_() for rows in (4, 5, 5)
    ]
    assert check(pairing.attend, operands, nondet_tol=1e-10)


def test_memory_is_that_of_pairs_of_nodes():
    """Not that of the largest member for all: less than 4 times the scores that there are."""
    sizes = torch.tensor([1, 2, 3, 5, 9, 17, 700] * 20)
    pairing = Sets(sizes, torch.device("cpu")).pairing(Sets(sizes, torch.device("cpu")))
    scores = sum(g.num_sets * g.num_queries * g.num_keys for g in pairing.groups)
    assert scores < 4 * int(sizes.square().sum())
    assert pairing.queries.num_slots < 2 * int(sizes.sum())


def test_rows_that_lie_well_are_left_where_they_are():
    pairing = Sets(torch.tensor([4, 4]), torch.device("cpu")).pairing(
        Sets(torch.tensor([7, 7]), torch.device("cpu"))
    )
    assert pairing.queries.slots is None
    assert pairing.keys.slots is None
    assert [group.sizes for group in pairing.groups] == [None]


def test_sets_do_not_keep_themselves_alive():
    sets = sets_of([2, 3], torch.device("cpu"))
    sets.pairing(sets)
    sets.alike(3).pairing(sets)
    assert sets.pairing(sets) is sets.pairing(sets)
    gone = weakref.ref(sets)
    gc.disable()
    try:
        del sets
        assert gone() is None
    finally:
        gc.enable()


@every_kind
def test_dropout_draws_what_dgl_draws(kind):
    """Of the feed-forward parts; as in DGL there is none in the attention."""
    builder = BUILDERS[kind]
    pair = builder(dropouth=0.4, dropouta=0.9)
    graph = mixed()
    feat = draw(graph.num_nodes(), 6)
    results = []
    for layer in pair:
        torch.manual_seed(11)
        results.append(layer(graph, feat))
    torch.testing.assert_close(*results)
    assert not torch.allclose(results[0], pair[0](graph, feat))
    torch.testing.assert_close(*(layer.eval()(graph, feat) for layer in pair))


def test_large_scores(device):
    graph = mixed()
    for build in BUILDERS.values():
        layer = build()[0].to(device)
        assert layer(graph, 1e4 * draw(graph.num_nodes(), 6).to(device)).isfinite().all()


def block_twins(name, **options):
    layers = []
    for library in (our_glob, their_glob):
        torch.manual_seed(7)
        layers.append(getattr(library, name)(*BLOCKS[name], **options))
    return layers


@every_block
def test_contracts_of_blocks(name):
    """They are not in dgl.nn itself, but people take them from its module."""
    mine, other = block_twins(name, dropouth=0.1, dropouta=0.2)
    assert repr(mine) == repr(other)
    assert list(mine.state_dict()) == list(other.state_dict())
    for key, value in other.state_dict().items():
        assert torch.equal(mine.state_dict()[key], value), key
    assert hasattr(mine, "reset_parameters") == hasattr(other, "reset_parameters")
    for method in ("__init__", "forward", "extra_repr"):
        found, expected = (
            list(inspect.signature(getattr(type(layer), method)).parameters)
            for layer in (mine, other)
        )
        assert found == expected, method
    for layer in (mine, other):
        if hasattr(layer, "reset_parameters"):
            torch.manual_seed(3)
            layer.reset_parameters()
    for key, value in other.state_dict().items():
        assert torch.equal(mine.state_dict()[key], value), key


@every_block
@pytest.mark.parametrize("kind", [list, torch.tensor])
def test_blocks_take_lengths(name, kind, device):
    mine, other = block_twins(name)
    feat, memory = draw(6, 6), draw(7, 6, seed=1)
    lengths, others = kind([2, 3, 1]), kind([1, 4, 2])
    if name == "MultiHeadAttention":
        expected = other(feat, memory, [2, 3, 1], [1, 4, 2])
        found = mine.to(device)(feat.to(device), memory.to(device), lengths, others)
    else:
        expected = other(feat, [2, 3, 1])
        found = mine.to(device)(feat.to(device), lengths)
    torch.testing.assert_close(found.cpu(), expected)


def test_lengths_that_do_not_fit():
    mine, _ = block_twins("MultiHeadAttention")
    for arguments in ((4, 7, [2, 3], [3, 4]), (5, 6, [2, 3], [3, 4]), (5, 7, [5], [3, 4])):
        rows, memory, lengths, others = arguments
        with pytest.raises(ValueError, match=r"^MultiHeadAttention: expected as many"):
            mine(draw(rows, 6), draw(memory, 6), lengths, others)


def test_errors():
    graph = mixed()
    for build in BUILDERS.values():
        error = raised(partial(build()[0], graph, draw(3, 6)))
        assert "Expect number of features to match number of nodes" in str(error)
    for options in ({"block_type": "isab"}, {"block_type": "other"}):
        errors = [
            raised(partial(library.SetTransformerEncoder, 6, 2, 3, 5, **options))
            for library in (ours, theirs)
        ]
        assert [type(error) for error in errors] == [KeyError] * 2
        assert str(errors[0]) == str(errors[1]).replace("{}", "other")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("SetTransformerEncoder", (6, 2, 3, 5, 1, "isab", 1)),
        ("SetTransformerDecoder", (6, 2, 3, 5, 1, 1)),
    ],
)
def test_warning_about_a_single_learned_row(name, args):
    texts = []
    for library in (ours, theirs):
        with pytest.warns(DGLWarning) as caught:
            getattr(library, name)(*args)
        texts.append([str(warning.message) for warning in caught])
    assert texts[0] == texts[1]


def test_parts_are_named_in_the_package():
    for name in BLOCKS:
        assert name in our_glob.__all__
        assert not hasattr(ours, name)
