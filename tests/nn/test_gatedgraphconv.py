"""GatedGraphConv gives DGL's outputs and gradients."""

from __future__ import annotations

from functools import partial

import dgl_flash

# isort: split
import dgl
import pytest
import torch

from tests.graphs import (
    batched,
    bipartite_up,
    block,
    coo_only,
    csc_only,
    empty,
    no_nodes,
    path,
    regular,
    two_relations,
    zoo,
)
from tests.nn.common import (
    TWO_NODE_SETS,
    assert_same,
    draw,
    every_idtype,
    features,
    homogeneous_graph,
    ours,
    raised,
    randomise,
    run,
    theirs,
    twins,
)

GATED = partial(twins, "GatedGraphConv")


def types(graph, count=3, dtype=torch.int64):
    generator = torch.Generator().manual_seed(8)
    return torch.randint(count, (graph.num_edges(),), generator=generator).to(dtype)


@homogeneous_graph
def test_zoo_of_one_type(name, device):
    graph = zoo()[name](torch.int64)
    assert_same(GATED(4, 5, 2, 1), graph, features(graph, 4), device)


@pytest.mark.parametrize("name", sorted(zoo().keys() - TWO_NODE_SETS - {"empty", "no_nodes"}))
def test_zoo_of_three_types(name, device):
    graph = zoo()[name](torch.int64)
    layers = GATED(4, 5, 2, 3)
    assert_same(layers, graph, features(graph, 4), device, etypes=types(graph))


@pytest.mark.parametrize("builder", [empty, no_nodes])
@pytest.mark.parametrize("count", [1, 3])
def test_types_without_edges(builder, count, device):
    """Where DGL raises: the recurrent unit takes in zeros."""
    graph = builder()
    layer = GATED(4, 5, 2, count)[0]
    randomise(layer)
    feat = features(graph, 4)
    found = run(layer, graph, feat, device, torch.float32, etypes=types(graph))
    state = torch.cat([feat, torch.zeros(len(feat), 1)], dim=1).to(device)
    for _ in range(2):
        state = layer.gru(torch.zeros_like(state), state)
    torch.testing.assert_close(found["out0"], state.detach())
    assert not found["grad_linears.0.weight"].any()


@every_idtype
@pytest.mark.parametrize("builder", [batched, regular, coo_only, csc_only])
@pytest.mark.parametrize("etype_dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_all_id_types(builder, idtype, etype_dtype, device):
    graph = builder(idtype)
    given = types(graph, dtype=etype_dtype)
    assert_same(GATED(4, 5, 2, 3), graph, features(graph, 4), device, etypes=given)


@pytest.mark.parametrize("steps", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 2, 9, 40])
@pytest.mark.parametrize("bias", [False, True])
def test_steps_and_numbers_of_types(steps, count, bias, device):
    """More types than edges of a node, and types that no edge has."""
    graph = regular()
    layers = GATED(5, 5, steps, count, bias=bias)
    given = None if count == 1 else types(graph, count)
    assert_same(layers, graph, features(graph, 5), device, etypes=given)


@pytest.mark.parametrize("width", [1, 3, 5])
def test_narrow_features_are_filled_up(width, device):
    graph = regular()
    assert_same(GATED(4, 5, 2, 3), graph, features(graph, width), device, etypes=types(graph))


def test_one_type_that_is_given(device):
    """Edges of another type than 0 send nothing."""
    graph = regular()
    assert_same(GATED(4, 5, 2, 1), graph, features(graph, 4), device, etypes=types(graph, 2))


def test_types_may_be_changed_in_place(device):
    graph = regular()
    layer = GATED(4, 5, 2, 3)[0].to(device)
    feat, given = features(graph, 4).to(device), types(graph).to(device)
    before = layer(graph, feat, given)
    given.copy_(given.flip(0))
    after = layer(graph, feat, given)
    assert not torch.allclose(before, after)
    assert torch.equal(after, layer(graph, feat, given.clone()))


def test_path_by_hand(device):
    """0 -> 1 -> 2 with a type for each edge; the unit is replaced by what it takes in."""
    layer = GATED(1, 1, 1, 2)[0].to(device)
    layer.gru = TakeIn()
    with torch.no_grad():
        for linear, weight, bias in zip(layer.linears, (2, 3), (0.5, -1), strict=True):
            linear.weight.fill_(weight)
            linear.bias.fill_(bias)
    feat = torch.tensor([[1.0], [10.0], [100.0]], device=device)
    out = layer(path(), feat, torch.tensor([1, 0], device=device))
    assert out.flatten().tolist() == [0, 2, 20.5]


class TakeIn(torch.nn.Module):
    def forward(self, message, state):
        return message


def test_widths_that_shrink():
    mine, other = (
        raised(partial(library.GatedGraphConv, 6, 5, 2, 1)) for library in (ours, theirs)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("value", [-1, 3, 100])
def test_types_out_of_range(value):
    graph = regular()
    given = types(graph)
    given[7] = value
    mine, other = (
        raised(partial(layer, graph, features(graph, 4), given)) for layer in GATED(4, 5, 2, 3)
    )
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_features_that_are_too_wide():
    graph = regular()
    calls = [partial(layer, graph, features(graph, 6)) for layer in GATED(4, 5, 2, 1)]
    mine, other = (raised(call) for call in calls)
    assert (type(mine), str(mine)) == (type(other), str(other))


@pytest.mark.parametrize("builder", [block, bipartite_up, two_relations])
def test_graphs_that_are_not_homogeneous(builder):
    graph = builder()
    feat = draw(graph.num_src_nodes(graph.canonical_etypes[0][0]), 4)
    mine, other = (raised(partial(layer, graph, feat)) for layer in GATED(4, 5, 2, 1))
    assert (type(mine), str(mine)) == (type(other), str(other))


def test_missing_types():
    graph = regular()
    error = raised(partial(GATED(4, 5, 2, 3)[0], graph, features(graph, 4)))
    assert isinstance(error, TypeError)
    assert "expected `etypes` for 3 edge types, got None" in str(error)


@pytest.mark.parametrize("count", [1, 3])
def test_types_of_other_edges(count):
    graph = regular()
    layer = GATED(4, 5, 2, count)[0]
    error = raised(partial(layer, graph, features(graph, 4), torch.zeros(29, dtype=torch.long)))
    assert isinstance(error, ValueError)
    assert "(E,) = (30,), got (29,)" in str(error)


def test_zero_in_degree_is_no_concern(device):
    """The setter exists for HeteroGraphConv, and decides nothing."""
    graph = dgl.graph(([0], [1]), num_nodes=3)
    layers = GATED(4, 5, 2, 1)
    for layer in layers:
        layer.set_allow_zero_in_degree(False)
    assert_same(layers, graph, features(graph, 4), device)


def test_own_container(device):
    graph = regular()
    layer = GATED(4, 5, 2, 3)[0].to(device)
    feat, given = features(graph, 4).to(device), types(graph).to(device)
    own = dgl_flash.graph(graph.edges(), num_nodes=graph.num_nodes())
    torch.testing.assert_close(layer(own, feat, given), layer(graph, feat, given))


def test_nothing_of_the_graph_is_changed():
    graph = regular()
    GATED(4, 5, 2, 3)[0](graph, features(graph, 4), types(graph))
    assert not graph.ndata
    assert not graph.edata
