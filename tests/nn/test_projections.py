"""Linear maps of several layers as one product: the same results, and only where that is safe."""

from __future__ import annotations

from dgl_flash.nn import GATv2Conv, HeteroGraphConv, projections
from dgl_flash.nn.projections import Projected, project_pairs

# isort: split
import dgl
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.nn.common import raised

RELATIONS = {
    ("user", "follows", "user"): ([0, 1, 3, 3, 2], [1, 2, 0, 2, 2]),
    ("user", "rates", "item"): ([0, 1, 1, 2, 3, 0], [4, 0, 4, 2, 2, 2]),
    ("item", "pleases", "user"): ([0, 5, 2], [0, 0, 3]),
}
COUNTS = {"user": 4, "item": 6}


class Products(TorchDispatchMode):
    """The names of the matrix products that are made."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if "mm" in func.__name__:
            self.names.append(func.__name__.split(".")[0])
        return func(*args, **kwargs or {})


def layers_and_features(device, dtype=torch.float64, **options):
    torch.manual_seed(0)
    layers = {name: GATv2Conv(5, 3, 2, **options) for _, name, _ in RELATIONS}
    for layer in layers.values():
        layer.to(device, dtype)
        for parameter in layer.parameters():
            nn.init.normal_(parameter)
    rows = {
        kind: torch.randn(count, 5).to(device, dtype).requires_grad_()
        for kind, count in COUNTS.items()
    }
    return layers, rows


def calls_of(layers, rows):
    return [(layers[name], (rows[src], rows[dst])) for src, name, dst in RELATIONS]


def run(layers, rows):
    out = HeteroGraphConv(layers)(dgl.heterograph(RELATIONS, COUNTS), rows)
    weights = [parameter for layer in layers.values() for parameter in layer.parameters()]
    grads = torch.autograd.grad(
        sum(part.sin().sum() for part in out.values()), [*rows.values(), *dict.fromkeys(weights)]
    )
    return [*out.values(), *grads]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"share_weights": True},
        {"residual": True},
    ],
    ids=str,
)
def test_results_are_those_of_single_products(options, device, monkeypatch):
    layers, rows = layers_and_features(device, **options)
    pairs = project_pairs(calls_of(layers, rows))
    assert all(isinstance(pair, Projected) for pair in pairs)
    found = run(layers, rows)
    monkeypatch.setattr(projections, "MOST_NUMBERS", 0)
    assert not any(isinstance(pair, Projected) for pair in project_pairs(calls_of(layers, rows)))
    torch.testing.assert_close(found, run(layers, rows))


def test_pairs_stay_pairs_of_the_features(device):
    layers, rows = layers_and_features(device)
    for (layer, pair), found in zip(
        calls_of(layers, rows), project_pairs(calls_of(layers, rows)), strict=True
    ):
        assert isinstance(found, tuple) and found[0] is pair[0] and found[1] is pair[1]
        for linear, value, result in zip(
            (layer.fc_src, layer.fc_dst), pair, found.projections, strict=True
        ):
            torch.testing.assert_close(result, linear(value))
            assert result.is_contiguous()


@pytest.mark.parametrize("bias", [True, False])
def test_one_product_for_each_type(bias, device):
    layers, rows = layers_and_features(device, bias=bias)
    with Products() as products:
        project_pairs(calls_of(layers, rows))
    assert products.names == ["baddbmm" if bias else "bmm"] * 2


def test_layers_of_other_widths_are_apart(device):
    layers, rows = layers_and_features(device)
    layers["rates"] = GATv2Conv(5, 7, 2, bias=False).to(device, torch.float64)
    pairs = project_pairs(calls_of(layers, rows))
    assert [pair.projections[0].shape[1] for pair in pairs] == [6, 14, 6]
    assert [pair.projections[1].shape[1] for pair in pairs] == [6, 14, 6]


class Doubled(GATv2Conv):
    def forward(self, graph, feat, get_attention=False):
        return super().forward(graph, (2 * feat[0], feat[1]), get_attention)


class Twice(nn.Linear):
    def forward(self, rows):
        return 2 * super().forward(rows)


def _do_nothing(*_):
    return None


def spoil(layer, how):
    if how == "dropout":
        layer.feat_drop.p = 0.5
    elif how == "another dropout":
        layer.feat_drop = nn.AlphaDropout(0.0)
    elif how == "hook of the layer":
        layer.register_forward_pre_hook(_do_nothing)
    elif how == "hook of a map":
        layer.fc_dst.register_forward_hook(_do_nothing)
    elif how == "another map":
        layer.fc_src = Twice(5, 6).to(layer.attn)
    else:
        layer.__class__ = Doubled


@pytest.mark.parametrize(
    "how",
    ["dropout", "another dropout", "hook of the layer", "hook of a map", "another map", "subclass"],
)
def test_what_a_layer_does_otherwise_it_does_itself(how, device, monkeypatch):
    layers, rows = layers_and_features(device)
    spoil(layers["rates"], how)
    pairs = project_pairs(calls_of(layers, rows))
    assert [isinstance(pair, Projected) for pair in pairs] == [True, False, True]
    torch.manual_seed(1)
    found = run(layers, rows)
    monkeypatch.setattr(projections, "MOST_NUMBERS", 0)
    torch.manual_seed(1)
    torch.testing.assert_close(found, run(layers, rows))


def test_dropout_that_is_off_does_not_matter(device):
    layers, rows = layers_and_features(device, feat_drop=0.5)
    layers["rates"].eval()
    pairs = project_pairs(calls_of(layers, rows))
    assert [isinstance(pair, Projected) for pair in pairs] == [False, True, False]


def test_modules_of_others_are_left_alone(device):
    layers, rows = layers_and_features(device)

    class Wrapper(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            return super().__getattr__(name) if name == "inner" else getattr(self.inner, name)

    calls = calls_of(layers, rows)
    calls[0] = Wrapper(calls[0][0]), calls[0][1]
    calls[1] = (lambda graph, pair: pair[0]), calls[1][1]
    pairs = project_pairs(calls)
    assert [isinstance(pair, Projected) for pair in pairs] == [False, False, True]


@pytest.mark.parametrize(
    "spoilt",
    [
        lambda feat: feat.float(),
        lambda feat: feat[:, :4],
        lambda feat: feat.detach().tolist(),
        lambda feat: feat[:3],
    ],
    ids=["dtype", "width", "no tensor", "rows"],
)
def test_errors_are_those_of_the_layer(spoilt, device, monkeypatch):
    layers, rows = layers_and_features(device)
    rows["item"] = spoilt(rows["item"])
    graph = dgl.heterograph(RELATIONS, COUNTS)
    error = raised(lambda: HeteroGraphConv(layers)(graph, rows))
    monkeypatch.setattr(projections, "MOST_NUMBERS", 0)
    wanted = raised(lambda: HeteroGraphConv(layers)(graph, rows))
    assert error is not None and (type(error), str(error)) == (type(wanted), str(wanted))


def test_three_dimensions_are_projected_by_the_layer(device):
    layers, rows = layers_and_features(device)
    wide = {kind: feat.reshape(-1, 1, 5) for kind, feat in rows.items()}
    assert not any(isinstance(pair, Projected) for pair in project_pairs(calls_of(layers, wide)))


def test_autocast_casts_as_in_single_products(device, monkeypatch):
    layers, rows = layers_and_features(device, torch.float32)
    with torch.autocast(device.type, torch.bfloat16):
        found = [
            part for pair in project_pairs(calls_of(layers, rows)) for part in pair.projections
        ]
        wanted = [
            linear(part)
            for layer, pair in calls_of(layers, rows)
            for linear, part in zip((layer.fc_src, layer.fc_dst), pair, strict=True)
        ]
    torch.testing.assert_close(found, wanted)
