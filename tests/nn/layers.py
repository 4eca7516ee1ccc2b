"""Every layer of ``dgl_flash.nn`` and how to call it: what the tests of all layers run over.

A class that is missing here fails ``test_layers.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.nn.common import draw, features, ours, randomise, theirs
from tests.nn.dense import adjacency
from tests.nn.tutorial import of
from tests.numerics import pseudo_random

WIDTH = 5  # of the features of nodes; results are 3 wide
Inputs = dict[str, Any]


def nodes(graph: Any) -> Inputs:
    return {"feat": features(graph, WIDTH)}


@dataclass(frozen=True)
class Layer:
    """How to build a layer in either library, and what to feed to it.

    Attributes
    ----------
    build : callable
        Takes the library.
    inputs : callable
        Takes a graph and makes the arguments of ``forward`` after the graph, features first.
    first : callable, optional
        Makes the first argument from the graph; None: there is no such argument.
    two_sides : bool
        Whether a pair of features can be passed.
    orders : int
        How often it can be differentiated.
    rounds : int
        About how many sums and products in a row round their results.
    """

    build: Callable[[Any], nn.Module]
    inputs: Callable[[Any], Inputs] = nodes
    first: Callable[[Any], Any] | None = lambda graph: graph
    two_sides: bool = False
    orders: int = 2
    rounds: int = 1

    def make(self, library: Any = ours, allow_zero_in_degree: bool = False) -> nn.Module:
        """Build from a fixed seed, with biases that are not 0."""
        torch.manual_seed(7)
        layer = self.build(library)
        randomise(layer)
        for part in layer.modules():
            if allow_zero_in_degree and hasattr(part, "set_allow_zero_in_degree"):
                part.set_allow_zero_in_degree(True)
            elif allow_zero_in_degree and hasattr(part, "_allow_zero_in_degree"):
                part._allow_zero_in_degree = True  # DotGatConv has the flag and no setter
        return layer

    def twins(self, **options: bool) -> tuple[nn.Module, nn.Module]:
        """Build in both libraries, with the same weights."""
        return self.make(ours, **options), self.make(theirs, **options)

    def call(self, layer: nn.Module, graph: Any, inputs: Inputs) -> tuple[Tensor, ...]:
        """Return all outputs as a tuple."""
        out = layer(*self.arguments(graph, inputs))
        return out if isinstance(out, tuple) else (out,)

    def arguments(self, graph: Any, inputs: Inputs) -> tuple[Any, ...]:
        """What ``forward`` takes."""
        first = () if self.first is None else (self.first(graph),)
        return (*first, *inputs.values())

    def run(
        self, layer: nn.Module, graph: Any, inputs: Inputs, device: Any, dtype: torch.dtype
    ) -> dict[str, Tensor]:
        """Outputs, and the gradients of all inputs and parameters, on a device and in a dtype."""
        layer = layer.to(device=device, dtype=dtype)
        layer.zero_grad(set_to_none=True)
        inputs = to(to(inputs, dtype), device, grad=True)
        outputs = self.call(layer, graph, inputs)
        results = {f"out{i}": out.detach().clone() for i, out in enumerate(outputs)}
        if self.orders > 0:
            torch.autograd.backward(outputs, [pseudo_random(out) for out in outputs])
        given = {f"input{i}": leaf for i, leaf in enumerate(leaves(inputs))}
        for name, value in (*given.items(), *layer.named_parameters()):
            if value.grad is not None:
                results[f"grad_{name}"] = value.grad.clone()
        return results


def to(inputs: Inputs, where: Any, grad: bool = False) -> Inputs:
    """Move tensors (to a dtype: those of floats), and make leaves of those of floats."""

    def move(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(move(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        if isinstance(where, torch.dtype) and not value.is_floating_point():
            return value
        value = value.detach().to(where, copy=True)
        return value.requires_grad_(grad and value.is_floating_point())

    return {name: move(value) for name, value in inputs.items()}


def leaves(inputs: Inputs) -> list[Tensor]:
    """All floating-point tensors among the inputs."""
    parts = [p for v in inputs.values() for p in (v if isinstance(v, tuple) else (v,))]
    return [part for part in parts if isinstance(part, Tensor) and part.is_floating_point()]


def with_leaves(inputs: Inputs, values: Sequence[Tensor]) -> Inputs:
    """Put other tensors in the place of :func:`leaves`."""
    given = iter(values)

    def replace(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(replace(part) for part in value)
        floating = isinstance(value, Tensor) and value.is_floating_point()
        return next(given) if floating else value

    return {name: replace(value) for name, value in inputs.items()}


def per_edge(name: str, *shape: int, of: Callable[[Any], Inputs] = nodes) -> Callable[..., Inputs]:
    """Features of the edges after those of the nodes."""
    return lambda graph: {**of(graph), name: draw(graph.num_edges(), *shape, seed=3)}


def typed(graph: Any) -> Inputs:
    return {**nodes(graph), "etypes": torch.arange(graph.num_edges()) % 3}


def two_typings(graph: Any) -> Inputs:
    x, ntype = draw(graph.num_src_nodes(), WIDTH), torch.arange(graph.num_src_nodes()) % 2
    return {"x": x, "ntype": ntype, "etype": torch.arange(graph.num_edges()) % 3}


def of_nodes(graph: Any) -> Inputs:
    return {"h": draw(graph.num_src_nodes(), 6)}


def distances(graph: Any) -> Inputs:
    return {**nodes(graph), "distances": 0.1 + draw(graph.num_edges(), 1, seed=3).abs()}


def positive(graph: Any) -> Inputs:
    return {"edge_weight": 0.5 + draw(graph.num_edges(), seed=3).abs()}


def rows(graph: Any) -> Inputs:
    count = graph.num_src_nodes()
    return {"x": draw(count, WIDTH), "x_type": torch.arange(count) % 3}


def two_groups(graph: Any) -> Inputs:
    return {"x": features(graph, 2 * WIDTH)}


def first_features(graph: Any) -> Inputs:
    return {**nodes(graph), "feat_0": draw(graph.num_src_nodes(), WIDTH, seed=4)}


def eigenvalue(graph: Any) -> Inputs:
    """Known, so that nothing has to be solved, which DGL's dense layer cannot do."""
    return {**nodes(graph), "lambda_max": 1.9}


def eigenvalues(graph: Any) -> Inputs:
    return {**nodes(graph), "lambda_max": [1.9]}


def points(graph: Any) -> Inputs:
    """Features and coordinates of the nodes."""
    count = graph.num_src_nodes()
    return {"node_feat": draw(count, WIDTH), "coord_feat": draw(count, 3, seed=4)}


def levels(graph: Any) -> Inputs:
    """Features of nodes and edges, and eigenvectors."""
    count = graph.num_src_nodes()
    edge_feat = draw(graph.num_edges(), 4, seed=3)
    return {
        "node_feat": draw(count, WIDTH),
        "edge_feat": edge_feat,
        "eig_vec": draw(count, 2, seed=4),
    }


def without_shift(layer: nn.Module) -> nn.Module:
    """Keys' bias moves all scores of a node alike: its gradient is what rounding leaves of 0."""
    for name, parameter in layer.named_parameters():
        parameter.requires_grad_(not name.endswith("k_proj.bias"))
    return layer


def mlp(inputs: int = WIDTH, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, outputs), nn.Tanh())


def cutoffs() -> list[Tensor]:
    return [torch.tensor([2.0, 3.0, 4.0]), torch.tensor([0.0, 0.5, 1.0]), torch.ones(3)]


SCALERS = ["identity", "amplification", "attenuation"]
WEIGHTED = {"attention": True, "use_eta": True, "attn_bef": True}

# The name of the class, and which one of several.
LAYERS = {
    "AGNNConv": Layer(lambda lib: lib.AGNNConv(1.5), two_sides=True),
    "APPNPConv": Layer(lambda lib: lib.APPNPConv(3, 0.2), rounds=3),
    "AtomicConv": Layer(lambda lib: lib.AtomicConv(*cutoffs()), distances),
    "AvgPooling": Layer(lambda lib: lib.AvgPooling()),
    "CFConv": Layer(
        lambda lib: lib.CFConv(WIDTH, 4, 6, 3),
        per_edge("edge_feats", 4),
        two_sides=True,
        rounds=4,
    ),
    "ChebConv": Layer(
        lambda lib: lib.ChebConv(WIDTH, 3, 3, activation=torch.tanh), eigenvalues, rounds=3
    ),
    "DGNConv": Layer(
        lambda lib: lib.DGNConv(
            WIDTH, 3, ["dir1-av", "dir2-dx", "mean"], SCALERS, 2.5, edge_feat_size=4
        ).eval(),
        levels,
        rounds=6,
    ),
    "DenseChebConv": Layer(
        lambda lib: lib.DenseChebConv(WIDTH, 3, 3), eigenvalue, first=adjacency, rounds=3
    ),
    "DenseGraphConv": Layer(lambda lib: lib.DenseGraphConv(WIDTH, 3), first=adjacency),
    "DenseSAGEConv": Layer(lambda lib: lib.DenseSAGEConv(WIDTH, 3), first=adjacency),
    "DotGatConv": Layer(lambda lib: lib.DotGatConv(WIDTH, 3, 2)),
    "EGATConv": Layer(lambda lib: lib.EGATConv(WIDTH, 4, 3, 6, 2), per_edge("efeats", 4)),
    "EGNNConv": Layer(
        lambda lib: lib.EGNNConv(WIDTH, 6, 3, 4), per_edge("edge_feat", 4, of=points), rounds=6
    ),
    "EdgeConv": Layer(lambda lib: lib.EdgeConv(WIDTH, 3), two_sides=True, rounds=2),
    "EdgeGATConv": Layer(
        lambda lib: lib.EdgeGATConv(WIDTH, 4, 3, 2), per_edge("edge_feat", 4), two_sides=True
    ),
    "EdgeWeightNorm": Layer(lambda lib: lib.EdgeWeightNorm(), positive),
    "GATConv": Layer(lambda lib: lib.GATConv(WIDTH, 3, 2, residual=True), two_sides=True),
    "GATv2Conv": Layer(lambda lib: lib.GATv2Conv(WIDTH, 3, 2, residual=True), two_sides=True),
    "GATv2Conv shared": Layer(lambda lib: lib.GATv2Conv(WIDTH, 3, 2, share_weights=True)),
    "GCN2Conv": Layer(lambda lib: lib.GCN2Conv(WIDTH, 2), first_features),
    "GINConv": Layer(lambda lib: lib.GINConv(mlp(), learn_eps=True), two_sides=True),
    "GINConv max": Layer(lambda lib: lib.GINConv(mlp(), "max"), two_sides=True),
    "GINEConv": Layer(
        lambda lib: lib.GINEConv(mlp(), 0.1, True), per_edge("edge_feat", WIDTH), two_sides=True
    ),
    "GMMConv": Layer(
        lambda lib: lib.GMMConv(WIDTH, 3, 2, 4), per_edge("pseudo", 2), two_sides=True
    ),
    "GTLayer": Layer(
        lambda lib: without_shift(of(lib, "GTLayer")(6, 2).eval()), of_nodes, rounds=6
    ),
    "GatedGCNConv": Layer(
        lambda lib: lib.GatedGCNConv(WIDTH, 4, 3, batch_norm=False, activation=torch.tanh),
        per_edge("edge_feat", 4),
    ),
    "GatedGraphConv": Layer(lambda lib: lib.GatedGraphConv(WIDTH, 6, 2, 3), typed, rounds=4),
    "GlobalAttentionPooling": Layer(
        lambda lib: lib.GlobalAttentionPooling(mlp(outputs=1), mlp()), rounds=2
    ),
    "GraphConv narrowing": Layer(lambda lib: lib.GraphConv(WIDTH, 3), two_sides=True),
    "GraphConv widening": Layer(lambda lib: lib.GraphConv(WIDTH, 7, norm="right"), two_sides=True),
    "GroupRevRes": Layer(
        lambda lib: lib.GroupRevRes(lib.GraphConv(WIDTH, WIDTH)), two_groups, orders=1, rounds=2
    ),
    "HGTConv": Layer(lambda lib: lib.HGTConv(WIDTH, 3, 2, 2, 3, 0.0, True), two_typings, rounds=4),
    "LabelPropagation": Layer(
        lambda lib: lib.LabelPropagation(3, 0.5, clamp=False), orders=0, rounds=3
    ),
    "MaxPooling": Layer(lambda lib: lib.MaxPooling()),
    "NNConv": Layer(
        lambda lib: lib.NNConv(WIDTH, 3, nn.Linear(4, 3 * WIDTH)),
        per_edge("efeat", 4),
        two_sides=True,
    ),
    "PNAConv": Layer(
        lambda lib: lib.PNAConv(WIDTH, 3, ["mean", "max", "std"], SCALERS, 2.5).eval(),
        nodes,
        rounds=6,
    ),
    "RelGraphConv": Layer(lambda lib: lib.RelGraphConv(WIDTH, 3, 3), typed),
    "RelGraphConv basis": Layer(lambda lib: lib.RelGraphConv(WIDTH, 3, 3, "basis", 2), typed),
    "SAGEConv gcn": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "gcn"), two_sides=True),
    "SAGEConv lstm": Layer(
        lambda lib: lib.SAGEConv(WIDTH, 3, "lstm"), two_sides=True, orders=1, rounds=4
    ),
    "SAGEConv mean": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "mean"), two_sides=True),
    "SAGEConv pool": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "pool"), two_sides=True),
    "SGConv": Layer(lambda lib: lib.SGConv(WIDTH, 3, 2), rounds=2),
    "Set2Set": Layer(lambda lib: lib.Set2Set(WIDTH, 2, 1), orders=1, rounds=4),
    "SetTransformerDecoder": Layer(
        lambda lib: lib.SetTransformerDecoder(WIDTH, 2, 3, 6, 1, 2), rounds=6
    ),
    "SetTransformerEncoder": Layer(lambda lib: lib.SetTransformerEncoder(WIDTH, 2, 3, 6), rounds=6),
    "SetTransformerEncoder isab": Layer(
        lambda lib: lib.SetTransformerEncoder(WIDTH, 2, 3, 6, 1, "isab", 2), rounds=6
    ),
    "SortPooling": Layer(lambda lib: lib.SortPooling(3)),
    "SparseMHA": Layer(lambda lib: without_shift(of(lib, "SparseMHA")(6, 2)), of_nodes, rounds=3),
    "SumPooling": Layer(lambda lib: lib.SumPooling()),
    "TAGConv": Layer(lambda lib: lib.TAGConv(WIDTH, 3, 2), rounds=2),
    "TWIRLSConv": Layer(lambda lib: lib.TWIRLSConv(WIDTH, 3, 6, 4, **WEIGHTED), rounds=6),
    "TWIRLSConv cached": Layer(
        lambda lib: lib.TWIRLSConv(WIDTH, 3, 6, 4, num_mlp_before=0), rounds=5
    ),
    "TWIRLSUnfoldingAndAttention": Layer(
        lambda lib: lib.TWIRLSUnfoldingAndAttention(WIDTH, 0, 1, 4, 2), rounds=4
    ),
    "TypedLinear": Layer(lambda lib: lib.TypedLinear(WIDTH, 3, 3), rows, first=None),
    "WeightAndSum": Layer(lambda lib: lib.WeightAndSum(WIDTH)),
}

# Without parameters, these take any width and dtype.
POOLINGS = {"AvgPooling", "MaxPooling", "SortPooling", "SumPooling"}


def having(**wanted: Any) -> list[str]:
    """Names of the layers with some attributes, as ``having(two_sides=True)``."""
    return [
        name
        for name, layer in sorted(LAYERS.items())
        if all(getattr(layer, key) == value for key, value in wanted.items())
    ]


every_layer = pytest.mark.parametrize("name", having())
on_graphs = pytest.mark.parametrize("name", having(first=Layer.first))
with_two_sides = pytest.mark.parametrize("name", having(two_sides=True))
