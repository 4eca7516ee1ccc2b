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

from tests.graphs import regular
from tests.nn.common import ours, randomise, theirs
from tests.nn.dense import adjacency
from tests.nn.feeds import (
    WIDTH,
    Inputs,
    by_type,
    close_nodes,
    degrees_of_both_kinds,
    dense,
    distances,
    eigenvalue,
    eigenvalues,
    first_features,
    ids_by_type,
    levels,
    nodes,
    nodes_and_pairs,
    of_all_types,
    of_nodes,
    outputs_of_layers,
    pairs,
    paths,
    per_edge,
    placed,
    points,
    positive,
    rows,
    spectrum,
    steps,
    triples,
    two_groups,
    two_types,
    two_typings,
    typed,
    walks,
)
from tests.nn.parts import cutoffs, mlp, narrowed, without_shift
from tests.nn.tutorial import of
from tests.numerics import pseudo_random


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
    keyed : bool
        Whether the inputs are passed as one dict, and the outputs come as one.
    """

    build: Callable[[Any], nn.Module]
    inputs: Callable[[Any], Inputs] = nodes
    first: Callable[[Any], Any] | None = lambda graph: graph
    two_sides: bool = False
    orders: int = 2
    rounds: int = 1
    keyed: bool = False

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
        return as_tuple(layer(*self.arguments(graph, inputs)))

    def arguments(self, graph: Any, inputs: Inputs) -> tuple[Any, ...]:
        """What ``forward`` takes."""
        first = () if self.first is None else (self.first(graph),)
        return (*first, inputs) if self.keyed else (*first, *inputs.values())

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


def as_tuple(out: Any) -> tuple[Tensor, ...]:
    """All outputs, in the order in which they come."""
    out = tuple(out.values()) if isinstance(out, dict) else out
    return out if isinstance(out, tuple) else (out,)


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


SCALERS = ["identity", "amplification", "attenuation"]
WEIGHTED = {"attention": True, "use_eta": True, "attn_bef": True}

# The name of the class, and which one of several.
LAYERS = {
    "AGNNConv": Layer(lambda lib: lib.AGNNConv(1.5), two_sides=True),
    "APPNPConv": Layer(lambda lib: lib.APPNPConv(3, 0.2), rounds=3),
    "AtomicConv": Layer(lambda lib: lib.AtomicConv(*cutoffs()), distances),
    "AvgPooling": Layer(lambda lib: lib.AvgPooling()),
    "BiasedMHA": Layer(
        lambda lib: without_shift(lib.BiasedMHA(6, 2, attn_drop=0.0)), dense, first=None, rounds=3
    ),
    "BiasedMHA mul": Layer(
        lambda lib: lib.BiasedMHA(6, 2, True, "mul", 0.0), dense, first=None, rounds=3
    ),
    "CFConv": Layer(
        lambda lib: lib.CFConv(WIDTH, 4, 6, 3),
        per_edge("edge_feats", 4),
        two_sides=True,
        rounds=4,
    ),
    "ChebConv": Layer(
        lambda lib: lib.ChebConv(WIDTH, 3, 3, activation=torch.tanh), eigenvalues, rounds=3
    ),
    "CuGraphGATConv": Layer(lambda lib: lib.CuGraphGATConv(WIDTH, 3, 2, residual=True)),
    "CuGraphRelGraphConv": Layer(lambda lib: lib.CuGraphRelGraphConv(WIDTH, 3, 3), typed),
    "CuGraphRelGraphConv basis": Layer(
        lambda lib: lib.CuGraphRelGraphConv(WIDTH, 3, 3, "basis", 2, apply_norm=True), typed
    ),
    "CuGraphSAGEConv max": Layer(lambda lib: lib.CuGraphSAGEConv(WIDTH, 3, "max")),
    "CuGraphSAGEConv mean": Layer(lambda lib: lib.CuGraphSAGEConv(WIDTH, 3)),
    "DGNConv": Layer(
        lambda lib: lib.DGNConv(
            WIDTH, 3, ["dir1-av", "dir2-dx", "mean"], SCALERS, 2.5, edge_feat_size=4
        ).eval(),
        levels,
        rounds=6,
    ),
    "DeepWalk": Layer(  # without the part at random
        lambda lib: lib.DeepWalk(regular(), 3, 4, 2, neg_weight=0, sparse=False),
        walks,
        first=None,
        rounds=2,
    ),
    "DegreeEncoder": Layer(lambda lib: lib.DegreeEncoder(4, 3), degrees_of_both_kinds, first=None),
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
    "EGTLayer": Layer(lambda lib: lib.EGTLayer(6, 8, 2, 1), nodes_and_pairs, first=None, rounds=6),
    "EdgeConv": Layer(lambda lib: lib.EdgeConv(WIDTH, 3), two_sides=True, rounds=2),
    "EdgeGATConv": Layer(
        lambda lib: lib.EdgeGATConv(WIDTH, 4, 3, 2), per_edge("edge_feat", 4), two_sides=True
    ),
    "EdgePredictor": Layer(
        lambda lib: lib.EdgePredictor("dot", WIDTH, 3, True), pairs, first=None, rounds=2
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
    "GraphormerLayer": Layer(
        lambda lib: without_shift(lib.GraphormerLayer(6, 5, 2, dropout=0.0, attn_dropout=0.0)),
        dense,
        first=None,
        rounds=6,
    ),
    "GroupRevRes": Layer(
        lambda lib: lib.GroupRevRes(lib.GraphConv(WIDTH, WIDTH)), two_groups, orders=1, rounds=2
    ),
    "HGTConv": Layer(lambda lib: lib.HGTConv(WIDTH, 3, 2, 2, 3, 0.0, True), two_typings, rounds=4),
    "HeteroEmbedding": Layer(
        lambda lib: lib.HeteroEmbedding({"a": 4, "b": 2}, 3), ids_by_type, first=None, keyed=True
    ),
    "HeteroGraphConv": Layer(
        lambda lib: lib.HeteroGraphConv({"_E": lib.SAGEConv(WIDTH, 3, "mean")}),
        of_all_types,
        first=lambda graph: graph,
        keyed=True,
    ),
    "HeteroLinear": Layer(
        lambda lib: lib.HeteroLinear({"a": WIDTH, "b": 2}, 3), by_type, first=None, keyed=True
    ),
    "JumpingKnowledge": Layer(
        lambda lib: lib.JumpingKnowledge("max"), outputs_of_layers, first=None
    ),
    "JumpingKnowledge lstm": Layer(
        lambda lib: without_shift(lib.JumpingKnowledge("lstm", 3, 3)),
        outputs_of_layers,
        first=None,
        orders=1,
        rounds=4,
    ),
    "LabelPropagation": Layer(
        lambda lib: lib.LabelPropagation(3, 0.5, clamp=False), orders=0, rounds=3
    ),
    "LapPosEncoder": Layer(
        lambda lib: narrowed(lib.LapPosEncoder("Transformer", 1, 4, 6, 2)).eval(),
        spectrum,
        first=None,
        orders=1,
        rounds=6,
    ),
    "MetaPath2Vec": Layer(
        lambda lib: lib.MetaPath2Vec(two_types(), ["to", "back"], 1, 3, 2, sparse=False),
        close_nodes,
        first=None,
        rounds=2,
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
    "PathEncoder": Layer(lambda lib: lib.PathEncoder(4, WIDTH, 2), paths, first=None),
    "RelGraphConv": Layer(lambda lib: lib.RelGraphConv(WIDTH, 3, 3), typed),
    "RelGraphConv basis": Layer(lambda lib: lib.RelGraphConv(WIDTH, 3, 3, "basis", 2), typed),
    "SAGEConv gcn": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "gcn"), two_sides=True),
    "SAGEConv lstm": Layer(
        lambda lib: lib.SAGEConv(WIDTH, 3, "lstm"), two_sides=True, orders=1, rounds=4
    ),
    "SAGEConv mean": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "mean"), two_sides=True),
    "SAGEConv pool": Layer(lambda lib: lib.SAGEConv(WIDTH, 3, "pool"), two_sides=True),
    "SGConv": Layer(lambda lib: lib.SGConv(WIDTH, 3, 2), rounds=2),
    "Sequential": Layer(
        lambda lib: lib.Sequential(lib.GraphConv(WIDTH, 4), lib.GraphConv(4, 3)), rounds=2
    ),
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
    "SpatialEncoder": Layer(lambda lib: lib.SpatialEncoder(3, 2), steps, first=None),
    "SpatialEncoder3d": Layer(
        lambda lib: lib.SpatialEncoder3d(4, 2, 3), placed, first=None, rounds=6
    ),
    "SumPooling": Layer(lambda lib: lib.SumPooling()),
    "TAGConv": Layer(lambda lib: lib.TAGConv(WIDTH, 3, 2), rounds=2),
    "TWIRLSConv": Layer(lambda lib: lib.TWIRLSConv(WIDTH, 3, 6, 4, **WEIGHTED), rounds=6),
    "TWIRLSConv cached": Layer(
        lambda lib: lib.TWIRLSConv(WIDTH, 3, 6, 4, num_mlp_before=0), rounds=5
    ),
    "TWIRLSUnfoldingAndAttention": Layer(
        lambda lib: lib.TWIRLSUnfoldingAndAttention(WIDTH, 0, 1, 4, 2), rounds=4
    ),
    "TransE": Layer(lambda lib: lib.TransE(3, WIDTH), triples, first=None, rounds=2),
    "TransR": Layer(lambda lib: lib.TransR(3, 4, WIDTH, p=2), triples, first=None, rounds=2),
    "TypedLinear": Layer(lambda lib: lib.TypedLinear(WIDTH, 3, 3), rows, first=None),
    "WeightAndSum": Layer(lambda lib: lib.WeightAndSum(WIDTH)),
    "WeightBasis": Layer(lambda lib: lib.WeightBasis((4, 2), 2, 3), lambda graph: {}, first=None),
}

# Without parameters, these take any width and dtype.
POOLINGS = {"AvgPooling", "MaxPooling", "SortPooling", "SumPooling"}
# These are fed no features.
UNFED = {
    "DeepWalk",
    "DegreeEncoder",
    "HeteroEmbedding",
    "MetaPath2Vec",
    "SpatialEncoder",
    "WeightBasis",
}


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
