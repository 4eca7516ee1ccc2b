"""Signatures, checkpoints, seeds and descriptions are DGL's."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import nn

from tests.nn.common import ours, theirs, twins

CLASSES = (
    "AGNNConv",
    "APPNPConv",
    "AtomicConv",
    "AvgPooling",
    "BiasedMHA",
    "CFConv",
    "ChebConv",
    "DGNConv",
    "DegreeEncoder",
    "DenseChebConv",
    "DenseGraphConv",
    "DenseSAGEConv",
    "DotGatConv",
    "EGATConv",
    "EGNNConv",
    "EGTLayer",
    "EdgeConv",
    "EdgeGATConv",
    "EdgePredictor",
    "EdgeWeightNorm",
    "GATConv",
    "GATv2Conv",
    "GCN2Conv",
    "GINConv",
    "GINEConv",
    "GMMConv",
    "GatedGCNConv",
    "GatedGraphConv",
    "GlobalAttentionPooling",
    "GraphConv",
    "GraphormerLayer",
    "GroupRevRes",
    "HGTConv",
    "HeteroEmbedding",
    "HeteroLinear",
    "JumpingKnowledge",
    "LabelPropagation",
    "LapPosEncoder",
    "MaxPooling",
    "NNConv",
    "PNAConv",
    "PathEncoder",
    "RelGraphConv",
    "SAGEConv",
    "SGConv",
    "Sequential",
    "Set2Set",
    "SetTransformerDecoder",
    "SetTransformerEncoder",
    "SortPooling",
    "SpatialEncoder",
    "SpatialEncoder3d",
    "SumPooling",
    "TAGConv",
    "TWIRLSConv",
    "TWIRLSUnfoldingAndAttention",
    "TransE",
    "TransR",
    "TypedLinear",
    "WeightAndSum",
    "WeightBasis",
)
every_class = pytest.mark.parametrize("name", CLASSES)

VARIANTS = [
    ("EdgeWeightNorm", (), {}),
    ("EdgeWeightNorm", ("right", 0.1), {}),
    ("GraphConv", (4, 3), {}),
    ("GraphConv", (3, 4), {"norm": "left"}),
    ("GraphConv", (4, 3), {"weight": False}),
    ("GraphConv", (4, 3), {"bias": False}),
    ("GraphConv", (4, 3), {"weight": False, "bias": False}),
    ("GraphConv", (4, 3, "none", True, True, torch.relu, True), {}),
    ("GraphConv", (4, 3), {"activation": nn.PReLU()}),
    ("GATv2Conv", (4, 3, 2), {}),
    ("GATv2Conv", ((4, 5), 3, 2), {}),
    ("GATv2Conv", (4, 3, 2), {"bias": False}),
    ("GATv2Conv", (4, 3, 2), {"residual": True}),
    ("GATv2Conv", (4, 3, 2), {"residual": True, "bias": False}),
    ("GATv2Conv", (6, 3, 2), {"residual": True}),
    ("GATv2Conv", ((4, 6), 3, 2), {"residual": True}),
    ("GATv2Conv", (4, 3, 2), {"share_weights": True}),
    ("GATv2Conv", ((4, 4), 3, 2), {"share_weights": True}),
    ("GATv2Conv", (4, 3, 2), {"share_weights": True, "residual": True, "bias": False}),
    ("GATv2Conv", (4, 3, 2, 0.1, 0.2, 0.3, True, torch.relu, True, False, False), {}),
    ("GATv2Conv", (4, 3, 2), {"activation": nn.PReLU()}),
    ("GATConv", (4, 3, 2), {}),
    ("GATConv", ((4, 5), 3, 2), {}),
    ("GATConv", (4, 3, 2), {"bias": False}),
    ("GATConv", (4, 3, 2), {"residual": True}),
    ("GATConv", (4, 3, 2), {"residual": True, "bias": False}),
    ("GATConv", (6, 3, 2), {"residual": True}),
    ("GATConv", (6, 3, 2), {"residual": True, "bias": False}),
    ("GATConv", ((4, 6), 3, 2), {"residual": True}),
    ("GATConv", ((6, 4), 3, 2), {"residual": True}),
    ("GATConv", (4, 3, 2, 0.1, 0.2, 0.3, True, torch.relu, True, False), {}),
    ("GATConv", (4, 3, 2), {"activation": nn.PReLU()}),
    ("EdgeGATConv", (4, 5, 3, 2), {}),
    ("EdgeGATConv", ((4, 6), 5, 3, 2), {}),
    ("EdgeGATConv", (6, 5, 3, 2), {"bias": False}),
    ("EdgeGATConv", (4, 5, 3, 2), {"residual": False}),
    ("EdgeGATConv", (4, 5, 3, 2, 0.1, 0.2, 0.3, False, torch.relu, True, False), {}),
    ("EdgeGATConv", (4, 5, 3, 2), {"activation": nn.PReLU()}),
    ("DotGatConv", (4, 3, 2), {}),
    ("DotGatConv", ((4, 5), 3, 2, True), {}),
    ("AGNNConv", (), {}),
    ("AGNNConv", (2.5, True, True), {}),
    ("AGNNConv", (0.5,), {"learn_beta": False}),
    ("EGATConv", (4, 5, 3, 6, 2), {}),
    ("EGATConv", ((4, 7), 5, 3, 6, 2, True), {}),
    ("AtomicConv", (torch.ones(3), torch.ones(3), torch.ones(3)), {}),
    ("AtomicConv", (torch.ones(3), torch.ones(3), torch.ones(3), torch.ones(2)), {}),
    ("CFConv", (4, 3, 5, 2), {}),
    ("ChebConv", (4, 3, 2), {}),
    ("ChebConv", (4, 3, 2, None, False), {}),
    ("ChebConv", (4, 3, 2), {"activation": nn.PReLU()}),
    ("GCN2Conv", (4, 2), {}),
    ("GCN2Conv", (4, 2, 0.3, 0.5, False, True, False, torch.relu), {}),
    ("GCN2Conv", (4, 2), {"project_initial_features": False, "activation": nn.PReLU()}),
    ("GatedGCNConv", (4, 3, 5), {}),
    ("GatedGCNConv", (4, 4, 4, 0.1, False, True, nn.PReLU()), {}),
    ("GatedGCNConv", (4, 4, 4), {"residual": False, "activation": None}),
    ("GatedGraphConv", (4, 5, 2, 3), {}),
    ("GatedGraphConv", (4, 5, 2, 1, False), {}),
    ("GMMConv", (4, 3, 2, 5), {}),
    ("GMMConv", ((4, 6), 3, 2, 5, "mean", True, False, True), {}),
    ("GMMConv", (3, 3, 2, 5), {"residual": True}),
    ("NNConv", (4, 3, torch.relu), {}),
    ("NNConv", ((4, 6), 3, nn.Linear(5, 12), "sum", True, False), {}),
    ("NNConv", (3, 3, nn.Linear(5, 9), "max"), {"residual": True}),
    ("DenseGraphConv", (4, 3), {}),
    ("DenseGraphConv", (3, 4, "right", False, torch.relu), {}),
    ("DenseGraphConv", (4, 3), {"activation": nn.PReLU()}),
    ("DenseSAGEConv", (4, 3), {}),
    ("DenseSAGEConv", (4, 3, 0.5, False, nn.LayerNorm(3), torch.relu), {}),
    ("DenseSAGEConv", (4, 3), {"activation": nn.PReLU()}),
    ("DenseChebConv", (4, 3, 2), {}),
    ("DenseChebConv", (4, 3, 1, False), {}),
    ("EdgeConv", (4, 3), {}),
    ("EdgeConv", (4, 3, True, True), {}),
    ("EGNNConv", (4, 5, 3), {}),
    ("EGNNConv", (4, 5, 3, 2), {}),
    ("PNAConv", (4, 3, ["mean"], ["identity"], 2.5), {}),
    ("PNAConv", (6, 6, ["max", "std"], ["identity", "attenuation"], 2.5, 0.1, 3, 2, False), {}),
    ("PNAConv", (6, 6, ["sum"], ["amplification"], 1), {"num_towers": 2}),
    ("DGNConv", (4, 3, ["mean"], ["identity"], 2.5), {}),
    ("DGNConv", (6, 6, ["dir1-av", "dir3-dx"], ["identity"], 2.5, 0.1, 3, 2, False), {}),
    ("GroupRevRes", (nn.Linear(4, 4),), {}),
    ("GroupRevRes", (nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)), 3), {}),
    ("HGTConv", (4, 3, 2, 3, 5), {}),
    ("HGTConv", (6, 3, 2, 3, 5, 0.5, True), {}),
    ("HGTConv", (4, 3, 1, 1, 1), {"dropout": 0.0, "use_norm": True}),
    ("TWIRLSConv", (4, 3, 5, 2), {}),
    ("TWIRLSConv", (4, 3, 5, 3, 2, 3, "batch", False, 0.3, 2, True, 0.1, 1, 2, True, True), {}),
    ("TWIRLSConv", (4, 3, 5, 2, 0, 2, "layer"), {"attn_dropout": 0.1}),
    ("TWIRLSConv", (4, 3, 5, 2, 0, 0), {"dropout": 0.1, "inp_dropout": 0.2}),
    ("TWIRLSConv", (4, 3, 5, 0, 3, 0), {}),
    ("TWIRLSUnfoldingAndAttention", (4, 0, 2, 3), {}),
    ("TWIRLSUnfoldingAndAttention", (4, 1, 2, 3, 1, 0.1, 2, 0.5, True, True, 0.1, False), {}),
    ("SAGEConv", (4, 3, "mean"), {}),
    ("SAGEConv", ((4, 6), 3, "mean", 0.5, False, nn.LayerNorm(3), torch.relu), {}),
    ("SAGEConv", (4, 3, "gcn"), {}),
    ("SAGEConv", (4, 3, "gcn"), {"bias": False, "activation": nn.PReLU()}),
    ("SAGEConv", (4, 3, "pool"), {}),
    ("SAGEConv", ((4, 6), 3, "pool"), {"bias": False, "norm": nn.LayerNorm(3)}),
    ("SAGEConv", (4, 3, "lstm"), {}),
    ("SAGEConv", ((4, 6), 3, "lstm"), {"bias": False}),
    ("GINConv", (), {}),
    ("GINConv", (nn.Linear(4, 3), "max", 0.5, True, nn.PReLU()), {}),
    ("GINConv", (torch.relu, "mean"), {"init_eps": 2}),
    ("GINEConv", (), {}),
    ("GINEConv", (nn.Linear(4, 3), 0.5, True), {}),
    ("SGConv", (4, 3), {}),
    ("SGConv", (4, 3, 2, True, False, nn.LayerNorm(4), True), {}),
    ("APPNPConv", (3, 0.1), {}),
    ("APPNPConv", (3, 0.1, 0.5), {}),
    ("TAGConv", (4, 3), {}),
    ("TAGConv", (4, 3, 3, False, nn.PReLU()), {}),
    ("LabelPropagation", (3, 0.5), {}),
    ("LabelPropagation", (3, 0.5, "row", False, True, True), {}),
    ("RelGraphConv", (4, 3, 5), {}),
    ("RelGraphConv", (4, 6, 5, "basis"), {}),
    ("RelGraphConv", (4, 6, 5, "bdd", 2, False, torch.relu, False, 0.1, True), {}),
    ("RelGraphConv", (4, 6, 5), {"activation": nn.PReLU(), "layer_norm": True}),
    ("TypedLinear", (4, 6, 5), {}),
    ("TypedLinear", (4, 6, 5, "basis", 3), {}),
    ("TypedLinear", (4, 6, 5, "bdd", 2), {}),
    ("JumpingKnowledge", (), {}),
    ("JumpingKnowledge", ("max", 4, 3), {}),
    ("JumpingKnowledge", ("lstm",), {"in_feats": 5, "num_layers": 3}),
    ("Sequential", (nn.Linear(4, 3), nn.PReLU()), {}),
    ("WeightBasis", ((4, 5), 2, 6), {}),
    ("WeightBasis", ([4], 3, 6), {}),
    ("EdgePredictor", ("dot",), {}),
    ("EdgePredictor", ("cos", 4), {"bias": True}),
    ("EdgePredictor", ("dot", 4, 3, True), {}),
    ("EdgePredictor", ("ele", 4, 3), {}),
    ("EdgePredictor", ("cat", 4, 3), {"bias": True}),
    ("TransE", (3, 4), {}),
    ("TransR", (3, 2, 4), {}),
    ("TransR", (3, 2, 4, 2), {}),
    ("HeteroLinear", ({"a": 4, ("a", "to", "b"): 5}, 3), {}),
    ("HeteroLinear", ({"a": 4, "b": 5}, 3, False), {}),
    ("HeteroEmbedding", ({"a": 4, ("a", "to", "b"): 5}, 3), {}),
    ("BiasedMHA", (6, 2), {}),
    ("BiasedMHA", (6, 3, False, "mul", 0.3), {}),
    ("DegreeEncoder", (4, 3), {}),
    ("DegreeEncoder", (4, 3, "in"), {}),
    ("EGTLayer", (6, 4, 2, 1), {}),
    ("EGTLayer", (6, 4, 2, 0, 0.1, 0.2, nn.PReLU(), False), {}),
    ("EGTLayer", (6, 4, 3, 2), {"activation": nn.PReLU()}),
    ("GraphormerLayer", (6, 5, 2), {}),
    ("GraphormerLayer", (6, 5, 2, "mul", True, 0.2, 0.3, nn.PReLU()), {}),
    ("LapPosEncoder", ("Transformer", 2, 4, 6, 2, True, 1), {}),
    ("LapPosEncoder", ("DeepSet", 0, 4, 6), {}),
    ("LapPosEncoder", ("DeepSet", 1, 4, 6), {"num_post_layer": 2}),
    ("LapPosEncoder", ("DeepSet", 2, 4, 6), {"num_post_layer": 3}),
    ("LapPosEncoder", ("DeepSet", 4, 4, 6), {"batch_norm": True}),
    ("PathEncoder", (4, 3), {}),
    ("PathEncoder", (4, 3, 2), {}),
    ("SpatialEncoder", (4,), {}),
    ("SpatialEncoder", (4, 3), {}),
    ("SpatialEncoder3d", (4,), {}),
    ("SpatialEncoder3d", (4, 3, 5), {}),
    ("SumPooling", (), {}),
    ("AvgPooling", (), {}),
    ("MaxPooling", (), {}),
    ("SortPooling", (3,), {}),
    ("WeightAndSum", (4,), {}),
    ("GlobalAttentionPooling", (nn.Linear(4, 1),), {}),
    ("GlobalAttentionPooling", (nn.Linear(4, 1), nn.Linear(4, 3)), {}),
    ("GlobalAttentionPooling", (nn.Linear(4, 1), torch.relu), {}),
    ("Set2Set", (4, 3, 1), {}),
    ("Set2Set", (4, 1, 2), {}),
    ("SetTransformerEncoder", (4, 2, 3, 5), {}),
    ("SetTransformerEncoder", (4, 2, 3, 5, 2, "isab", 3, 0.1, 0.2), {}),
    ("SetTransformerEncoder", (4, 2, 3, 5), {"n_layers": 0}),
    ("SetTransformerDecoder", (4, 2, 3, 5, 2, 3), {}),
    ("SetTransformerDecoder", (4, 2, 3, 5, 0, 3, 0.1), {"dropouta": 0.2}),
]
every_variant = pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    # Numbered: the text of a function holds its address, which differs between test processes.
    [pytest.param(*variant, id=f"{variant[0]}-{i}") for i, variant in enumerate(VARIANTS)],
)


def parameters(function):
    found = inspect.signature(function).parameters.values()
    # Modules know no equality.
    defaults = [repr(p.default) if isinstance(p.default, nn.Module) else p.default for p in found]
    return [(p.name, default, p.kind) for p, default in zip(found, defaults, strict=True)]


@every_class
@pytest.mark.parametrize(
    "method", ["__init__", "forward", "reset_parameters", "set_allow_zero_in_degree", "extra_repr"]
)
def test_signatures(name, method):
    expected = getattr(getattr(theirs, name), method, None)
    found = getattr(getattr(ours, name), method, None)
    assert (found is None) == (expected is None)
    if found is not None:
        assert parameters(found) == parameters(expected)


@every_class
def test_public_methods(name):
    def methods(cls):
        return {key for key in vars(cls) if not key.startswith("_")}

    assert methods(getattr(ours, name)) == methods(getattr(theirs, name))


@every_variant
def test_state_dict_loads_both_ways(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    assert list(mine.state_dict()) == list(other.state_dict())
    for key, value in other.state_dict().items():
        assert (mine.state_dict()[key].shape, mine.state_dict()[key].dtype) == (
            value.shape,
            value.dtype,
        )
    for source, target in ((mine, other), (other, mine)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.add_(1)
        target.load_state_dict(source.state_dict(), strict=True)
        for key, value in source.state_dict().items():
            assert torch.equal(target.state_dict()[key], value)


@every_variant
def test_same_seed_same_weights(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    for (key, found), (_, expected) in zip(
        mine.named_parameters(), other.named_parameters(), strict=True
    ):
        assert torch.equal(found, expected), key
    # And the generator is left where DGL leaves it, for the layers that follow.
    states = []
    for library in (ours, theirs):
        torch.manual_seed(7)
        getattr(library, name)(*args, **kwargs)
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


@every_variant
def test_reset_parameters_draws_the_same(name, args, kwargs):
    values = []
    for layer in twins(name, *args, **kwargs):
        if not hasattr(layer, "reset_parameters"):
            return
        torch.manual_seed(3)
        layer.reset_parameters()
        values.append(list(layer.parameters()))
    for found, expected in zip(*values, strict=True):
        assert torch.equal(found, expected)


@every_variant
def test_repr(name, args, kwargs):
    mine, other = twins(name, *args, **kwargs)
    assert repr(mine) == repr(other)


@every_variant
def test_attributes(name, args, kwargs):
    """People read `conv._out_feats`; DGL's own code reads `_allow_zero_in_degree`."""
    mine, other = twins(name, *args, **kwargs)
    for key, value in vars(other).items():
        if isinstance(value, (int, float, str)) or value is None:
            assert getattr(mine, key) == value, key
    for kind in ("_parameters", "_buffers", "_modules"):
        assert list(getattr(mine, kind)) == list(getattr(other, kind)), kind


def test_shared_weights_are_one_linear_with_two_names():
    layer = ours.GATv2Conv(4, 3, 2, share_weights=True)
    assert layer.fc_src is layer.fc_dst
    assert {"fc_src.weight", "fc_dst.weight"} <= set(layer.state_dict())


PAPERS = {
    "AGNNConv": "1803.03735",
    "AtomicConv": "1703.10603",
    "BiasedMHA": "2106.05234",
    "CFConv": "1706.08566",
    "ChebConv": "1606.09375",
    "DotGatConv": "1710.10903",
    "DGNConv": "2010.02863",
    "DegreeEncoder": "2106.05234",
    "EGATConv": "2101.07671",
    "EGNNConv": "2102.09844",
    "EGTLayer": "2108.03348",
    "EdgeConv": "1801.07829",
    "EdgeGATConv": "2301.03512",
    "GATConv": "1710.10903",
    "GATv2Conv": "2105.14491",
    "GCN2Conv": "2007.02133",
    "GMMConv": "1611.08402",
    "GatedGCNConv": "2003.00982",
    "GatedGraphConv": "1511.05493",
    "GlobalAttentionPooling": "1511.05493",
    "GraphConv": "1609.02907",
    "GraphormerLayer": "2106.05234",
    "HGTConv": "2003.01332",
    "JumpingKnowledge": "1806.03536",
    "LapPosEncoder": "2205.12454",
    "NNConv": "1704.01212",
    "PathEncoder": "2106.05234",
    "Set2Set": "1511.06391",
    "SetTransformerDecoder": "1810.00825",
    "SetTransformerEncoder": "1810.00825",
    "SpatialEncoder": "2106.05234",
    "SpatialEncoder3d": "2210.01765",
    "PNAConv": "2004.05718",
}


def test_docstrings_name_the_paper():
    for name, paper in PAPERS.items():
        text = getattr(ours, name).__doc__
        assert paper in text
        assert "Fused path" in text
