"""GATv2Convs of several relations in one launch give the results of single calls."""

from __future__ import annotations

from dgl_flash.nn import GATv2Conv, GraphConv, HeteroGraphConv, jointly, projections
from dgl_flash.ops import dispatch, gatv2_joint

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.numerics import assert_accurate

RELATIONS = {
    ("user", "follows", "user"): ([0, 1, 3, 3, 2], [1, 2, 0, 2, 2]),
    ("user", "rates", "item"): ([0, 1, 1, 2, 3, 0], [4, 0, 4, 2, 2, 2]),
    ("item", "pleases", "user"): ([0, 5, 2], [0, 0, 3]),
    ("tag", "marks", "item"): ([], []),
    ("user", "blocks", "user"): ([2, 2, 2], [2, 0, 1]),
}
COUNTS = {"user": 4, "item": 300, "tag": 2}
NAMES = [name for _, name, _ in RELATIONS]


@pytest.fixture(autouse=True)
def together_on_the_cpu(monkeypatch):
    """As on a GPU, where the kernels pay for it."""
    monkeypatch.setattr(jointly, "kernels_run", lambda device: True)


def a_graph():
    return dgl.heterograph(RELATIONS, COUNTS)


def layers_and_features(device, dtype=torch.float32, width=8, **options):
    torch.manual_seed(0)
    layers = {name: GATv2Conv(5, width, 2, **options).to(device, dtype) for name in NAMES}
    for layer in layers.values():
        for parameter in layer.parameters():
            nn.init.normal_(parameter, std=0.4)
    rows = {
        kind: torch.randn(count, 5).to(device, dtype).requires_grad_()
        for kind, count in COUNTS.items()
    }
    return layers, rows


def run(layer, graph, rows, *args):
    out = layer(graph, rows, *args)
    given = [*rows.values(), *layer.parameters()]
    total = sum(part.sin().sum() for part in out.values())
    grads = torch.autograd.grad(total, given, allow_unused=True)
    zeros = [torch.zeros_like(x) if g is None else g for x, g in zip(given, grads, strict=True)]
    return [*out.values(), *zeros]


def both_ways(monkeypatch, layer, graph, rows, *args):
    """Together, one by one, and so in float64."""
    taken = []
    real = jointly.gatv2_joint
    with monkeypatch.context() as patch:
        patch.setattr(jointly, "gatv2_joint", lambda *a: taken.append(1) or real(*a))
        found = run(layer, graph, rows, *args)
    with monkeypatch.context() as patch:
        patch.setattr(jointly, "_joint_of", lambda *a: None)
        usual = run(layer, graph, rows, *args)
        wide = {kind: value.detach().double().requires_grad_() for kind, value in rows.items()}
        exact = run(layer.double(), graph, wide, *args)
    return found, usual, exact, len(taken)


@pytest.mark.parametrize("aggregate", ["sum", "mean", "max", "stack"])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"share_weights": True}, {"residual": True}, {"activation": torch.tanh}],
    ids=lambda options: "-".join(options) or "plain",
)
def test_results_are_those_of_single_calls(options, aggregate, device, monkeypatch):
    layers, rows = layers_and_features(device, **options)
    layer = HeteroGraphConv(layers, aggregate)
    found, usual, exact, taken = both_ways(monkeypatch, layer, a_graph(), rows)
    assert taken == 1
    for mine, other, truth in zip(found, usual, exact, strict=True):
        assert_accurate(mine, other, truth, ulps=16)


@pytest.mark.parametrize("width", [7, 8])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_other_dtypes(dtype, width, device, monkeypatch):
    layers, rows = layers_and_features(device, dtype, width)
    found, usual, exact, taken = both_ways(monkeypatch, HeteroGraphConv(layers), a_graph(), rows)
    assert taken == 1
    for mine, other, truth in zip(found, usual, exact, strict=True):
        assert_accurate(mine, other, truth, ulps=1e4 if dtype == torch.float64 else 8)


def test_blocks(device, monkeypatch):
    """Destinations are the first rows of their type. Rows are long: short ones cancel."""
    torch.manual_seed(1)
    counts = {"user": 30, "item": 40}
    graph = dgl.heterograph(
        {
            key: tuple(torch.randint(0, counts[kind], (400,)) for kind in (key[0], key[2]))
            for key in RELATIONS
            if "tag" not in key
        },
        counts,
    )
    kept = {kind: torch.randperm(count)[:12] for kind, count in counts.items()}
    block = dgl.to_block(dgl.in_subgraph(graph, kept), kept)
    layers, rows = layers_and_features(device)
    del layers["marks"], rows["tag"]
    rows = {
        kind: torch.randn(block.num_src_nodes(kind), 5, device=device, requires_grad=True)
        for kind in rows
    }
    found, usual, exact, taken = both_ways(monkeypatch, HeteroGraphConv(layers), block, rows)
    assert taken == 1
    assert [len(out) for out in found[:2]] == [12, 12]
    for mine, other, truth in zip(found, usual, exact, strict=True):
        assert_accurate(mine, other, truth, ulps=16)


def test_a_type_with_another_layer_is_called_one_by_one(device, monkeypatch):
    layers, rows = layers_and_features(device)
    layers["blocks"] = GraphConv(5, 16).to(device)
    graph, taken = a_graph(), []
    real = jointly.gatv2_joint
    monkeypatch.setattr(jointly, "gatv2_joint", lambda *a: taken.append(a[0]) or real(*a))
    with pytest.raises(RuntimeError, match="size"):  # of (N, 2, 8) and (N, 16)
        HeteroGraphConv(layers)(graph, rows)
    found = HeteroGraphConv(layers, lambda parts, name: parts)(graph, rows)
    assert [len(one.parts) for one in taken] == [2, 2]  # those that end in items
    assert sorted(len(part.shape) for part in found["user"]) == [2, 3, 3]
    assert found["item"][0].shape == (300, 2, 8)


def dropping(layers):
    layers["follows"].attn_drop.p = 0.5


def hooked(layers):
    layers["follows"].register_forward_hook(lambda *given: None)


def hooked_inside(layers):
    layers["follows"].fc_src.register_forward_hook(lambda *given: None)


def pruned(layers):
    prune.l1_unstructured(layers["follows"].fc_dst, "weight", amount=0.5)


@pytest.mark.parametrize("change", [dropping, hooked, hooked_inside, pruned])
def test_what_a_call_does_more_is_done(change, device, monkeypatch):
    layers, rows = layers_and_features(device)
    change(layers)
    seen = []
    real = jointly.gatv2_joint
    monkeypatch.setattr(jointly, "gatv2_joint", lambda *a: seen.append(a[0]) or real(*a))
    out = HeteroGraphConv(layers)(a_graph(), rows)
    assert set(out) == {"user", "item"}
    (taken,) = seen
    assert len(taken.parts) == 2  # those that end in items


def test_arguments_of_layers(device):
    layers, rows = layers_and_features(device)
    found = HeteroGraphConv(layers, "stack")(
        a_graph(), rows, mod_kwargs={"follows": {"get_attention": False}}
    )
    expected = HeteroGraphConv(layers, "stack")(a_graph(), rows)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_a_wrong_number_of_rows_is_told_by_the_layer(device):
    layers, rows = layers_and_features(device)
    rows["user"] = rows["user"][:3]
    with pytest.raises(dgl.DGLError, match="Got 3 and 4 instead"):
        HeteroGraphConv(layers)(a_graph(), rows)


def test_structures_are_kept_with_the_graph(device, monkeypatch):
    layers, rows = layers_and_features(device)
    made = []
    real = jointly.Joint
    monkeypatch.setattr(jointly, "Joint", lambda *a: made.append(1) or real(*a))
    graph = a_graph()
    for _ in range(3):
        HeteroGraphConv(layers)(graph, rows)
    assert len(made) == 1
    graph.add_edges([0], [1], etype="follows")
    before = HeteroGraphConv(layers)(graph, rows)["user"]
    assert len(made) == 2
    monkeypatch.setattr(jointly, "_joint_of", lambda *a: None)
    torch.testing.assert_close(HeteroGraphConv(layers)(graph, rows)["user"], before)


def test_long_rows_and_much_memory_are_left_to_single_calls(device, monkeypatch):
    layers, rows = layers_and_features(device)
    monkeypatch.setattr(jointly, "gatv2_joint", None)  # not to be called
    with monkeypatch.context() as patch:
        patch.setattr(gatv2_joint, "LONGEST_ROW", 2)
        HeteroGraphConv(layers)(a_graph(), rows)
    monkeypatch.setattr(jointly, "MOST_NUMBERS", {True: 0, False: 0})
    HeteroGraphConv(layers)(a_graph(), rows)


def test_types_without_nodes(device, monkeypatch):
    counts = {"user": 4, "item": 0, "tag": 0}
    edges = {key: ([], []) if "item" in key else ends for key, ends in RELATIONS.items()}
    graph = dgl.heterograph(edges, counts)
    layers, rows = layers_and_features(device)
    rows = {kind: rows[kind][:count].detach().requires_grad_() for kind, count in counts.items()}
    nobody = dgl.heterograph({key: ([], []) for key in RELATIONS}, dict.fromkeys(counts, 0))
    none = {kind: value[:0] for kind, value in rows.items()}
    assert [len(part) for part in HeteroGraphConv(layers)(nobody, none).values()] == [0, 0]
    found, usual, exact, taken = both_ways(monkeypatch, HeteroGraphConv(layers), graph, rows)
    assert taken == 1
    for mine, other, truth in zip(found, usual, exact, strict=True):
        assert_accurate(mine, other, truth, ulps=16)


@pytest.mark.parametrize("bias", [True, False])
def test_projections_and_their_gradients(bias, device):
    sets, given = [], []
    for rows, maps in ((256, 2), (9 * 1024, 1)):
        feat = torch.randn(rows, 3, dtype=torch.float64, device=device, requires_grad=True)
        linears = [nn.Linear(3, 4, bias, device, torch.float64) for _ in range(maps)]
        sets.append(projections.Maps(feat, linears))
        given += [feat, *[p for one in linears for p in one.parameters()]]
    expected = torch.cat([one(feat) for feat, linears in sets for one in linears])
    found = projections.project(sets)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    wanted = torch.autograd.grad(expected.sin(), given, grad, create_graph=True)
    mine = torch.autograd.grad(found.sin(), given, grad, create_graph=True)
    for one, other in zip(mine, wanted, strict=True):
        torch.testing.assert_close(one, other)
    second = [torch.autograd.grad(sum(g.sin().sum() for g in x), given) for x in (mine, wanted)]
    for one, other in zip(*second, strict=True):
        torch.testing.assert_close(one, other)


def test_second_order(device):
    layers, rows = layers_and_features(device, torch.float64)
    layer, graph = HeteroGraphConv(layers), a_graph()
    given = [rows["user"], layers["follows"].attn]

    def second(calls):
        out = layer(graph, rows)["user"].sin().sum()
        grads = torch.autograd.grad(out, given, create_graph=True)
        return torch.autograd.grad(sum(g.cos().sum() for g in grads), given)

    found = second(layer)
    for call in layers.values():
        call.register_forward_hook(lambda *given: None)
    for mine, other in zip(found, second(layer), strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.gpu
def test_one_launch_a_pass():
    layers, rows = layers_and_features("cuda")
    layer, graph = HeteroGraphConv(layers), a_graph()
    with dispatch.record() as choices:
        first = run(layer, graph, rows)
    assert [choice.kernels for choice in choices if choice.op == "gatv2"] == [("gatv2_forward",)]
    for mine, other in zip(first, run(layer, graph, rows), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.gpu
def test_a_larger_graph():
    """Several blocks a relation, whose sizes differ; rows of all lengths."""
    generator = torch.Generator().manual_seed(0)

    def ends(kind, count, skew):
        return (torch.rand(count, generator=generator) ** skew * sizes[kind]).long()

    sizes = {"a": 900, "b": 3000, "c": 70}
    graph = dgl.heterograph(
        {
            (src, f"{src}{dst}{nth}", dst): (ends(src, 4000, 2), ends(dst, 4000, 3))
            for nth, (src, dst) in enumerate([*["ab"] * 3, "ba", "ca", "cb", "aa"])
        },
        sizes,
    )
    torch.manual_seed(0)
    layers = {name: GATv2Conv(16, 16, 4).to("cuda") for name in graph.etypes}
    rows = {
        kind: torch.randn(size, 16, device="cuda").requires_grad_() for kind, size in sizes.items()
    }
    layer = HeteroGraphConv(layers, "mean")
    with pytest.MonkeyPatch.context() as patch:
        found, usual, exact, taken = both_ways(patch, layer, graph, rows)
    assert taken == 1
    for mine, other, truth in zip(found, usual, exact, strict=True):
        assert_accurate(mine, other, truth, ulps=32)
