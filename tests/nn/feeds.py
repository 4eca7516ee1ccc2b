"""What the tests of all layers feed to them, made from a graph: the features first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import torch

from tests.nn.common import draw, features

WIDTH = 5  # of the features of nodes; results are 3 wide
Inputs = dict[str, Any]


def nodes(graph: Any) -> Inputs:
    return {"feat": features(graph, WIDTH)}


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


def pairs(graph: Any) -> Inputs:
    """One row for each end of each edge."""
    count = graph.num_edges()
    return {"h_src": draw(count, WIDTH), "h_dst": draw(count, WIDTH, seed=3)}


def triples(graph: Any) -> Inputs:
    return {**pairs(graph), "rels": torch.arange(graph.num_edges()) % 3}


def outputs_of_layers(graph: Any) -> Inputs:
    return {"feat_list": tuple(draw(graph.num_src_nodes(), 3, seed=seed) for seed in range(3))}


def two_types() -> dgl.DGLGraph:
    """Every node has edges to the other type, so that walks do not end."""
    there, back = torch.arange(6) % 4, torch.arange(6)
    return dgl.heterograph({("a", "to", "b"): (back, there), ("b", "back", "a"): (there, back)})


def walks(graph: Any) -> Inputs:
    return {"batch_walk": torch.arange(12).view(3, 4) * 3 % 10}


def close_nodes(graph: Any) -> Inputs:
    """Of the ten nodes of ``two_types``."""
    ids = torch.arange(24) * 7 % 10
    return {"pos_u": ids[:8], "pos_v": ids[8:16], "neg_v": ids[8:].view(8, 2)}


def by_type(graph: Any) -> Inputs:
    return {"a": draw(graph.num_src_nodes(), WIDTH), "b": draw(4, 2)}


def of_all_types(graph: Any) -> Inputs:
    """By the name of the type, as a homogeneous graph has it."""
    return {"_N": draw(graph.num_src_nodes(), WIDTH)}


def ids_by_type(graph: Any) -> Inputs:
    return {"a": torch.arange(graph.num_src_nodes()) % 4, "b": torch.tensor([1, 1, 0])}


def two_groups(graph: Any) -> Inputs:
    return {"x": features(graph, 2 * WIDTH)}


def dense(graph: Any) -> Inputs:
    """Nodes of three graphs, and something for each pair of them."""
    count = graph.num_src_nodes()
    return {"nfeat": draw(3, count, 6), "attn_bias": draw(3, count, count, 2, seed=3)}


def nodes_and_pairs(graph: Any) -> Inputs:
    count = graph.num_src_nodes()
    return {"nfeat": draw(3, count, 6), "efeat": draw(3, count, count, 8, seed=3)}


def degrees_of_both_kinds(graph: Any) -> Inputs:
    return {"degrees": torch.stack([graph.in_degrees(), graph.out_degrees()])[:, None]}


def steps(graph: Any) -> Inputs:
    """Made-up lengths of paths."""
    count = graph.num_src_nodes()
    return {"dist": torch.arange(3 * count * count).view(3, count, count) % 6}


def paths(graph: Any) -> Inputs:
    return {**steps(graph), "path_data": draw(*steps(graph)["dist"].shape, 4, WIDTH)}


def placed(graph: Any) -> Inputs:
    count = graph.num_src_nodes()
    kinds = torch.arange(3 * count).view(3, count) % 4 - 1
    return {"coord": draw(3, count, 3), "node_type": kinds}


def spectrum(graph: Any) -> Inputs:
    count = graph.num_src_nodes()
    return {"eigvals": draw(count, 4).abs(), "eigvecs": draw(count, 4, seed=3)}


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
