"""Random walks on DGL's graphs, and products of pairs of nodes: skip-grams without features."""

from __future__ import annotations

import importlib
import random
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.structure import graph as make_graph
from dgl_flash.structure.dgl_reader import is_dgl_graph
from dgl_flash.structure.traced import is_tracing, outside_trace


def reset(node_embed: nn.Embedding, context_embed: nn.Embedding) -> None:
    """Draw the embeddings of nodes from U(-1 / D, 1 / D), and set those of contexts to 0.

    Parameters
    ----------
    node_embed, context_embed : nn.Embedding
        (N, D)
    """
    bound = 1.0 / node_embed.embedding_dim
    nn.init.uniform_(node_embed.weight, -bound, bound)
    nn.init.zeros_(context_embed.weight)


def flattened(counts: Tensor) -> Tensor:
    """Probabilities that go with counts to the power of 3/4.

    Parameters
    ----------
    counts : Tensor
        (N,), how often each node occurs.

    Returns
    -------
    Tensor
        (N,), float32.
    """
    weights = counts.float().pow(0.75)
    return weights / weights.sum()


def dots(rows: Tensor, src: Tensor, contexts: Tensor, dst: Tensor) -> Tensor:
    """Products of ``rows[src]`` and ``contexts[dst]``, neither of which is made.

    Parameters
    ----------
    rows, contexts : Tensor
        (N_src, D) and (N_dst, D)
    src, dst : Tensor
        (P,), the pairs.

    Returns
    -------
    Tensor
        (P,)
    """
    if is_tracing():  # the pairs are another graph each time
        outside: Tensor = _outside(rows, src, contexts, dst)
        return outside
    pairs = make_graph((src, dst), num_src_nodes=len(rows), num_dst_nodes=len(contexts))
    found: Tensor = ops.u_dot_v(pairs, rows, contexts)
    return found.flatten()


_outside = outside_trace(dots)


def require_dgl(layer: nn.Module, graph: Any) -> None:
    """Refuse graphs that ``dgl.sampling`` cannot walk on.

    Parameters
    ----------
    layer : nn.Module
        Who asks; the error starts with its class.
    graph : DGLGraph
        The graph.

    Raises
    ------
    TypeError
        If it is not DGL's.
    """
    if not is_dgl_graph(graph):
        raise TypeError(
            f"{type(layer).__name__}: expected a DGLGraph, which dgl.sampling walks on, got "
            f"{type(graph).__name__}; pass dgl.graph((src, dst)) or dgl.heterograph(...)"
        )


def walk(layer: nn.Module, graph: Any, nodes: Any, **how: Any) -> Tensor:
    """Walk on DGL's graph, from nodes that may lie on a GPU while the graph does not.

    Parameters
    ----------
    layer : nn.Module
        Who asks.
    graph : DGLGraph
        The graph.
    nodes : Tensor or list
        (B,), where to start.
    **how
        ``length`` or ``metapath`` of ``dgl.sampling.random_walk``.

    Returns
    -------
    Tensor
        (B, steps + 1), ids; -1 after a node without out-edges.
    """
    require_dgl(layer, graph)
    if isinstance(nodes, Tensor) and graph.device.type == "cpu" and not graph.is_pinned():
        nodes = nodes.cpu()
    traces: Tensor = importlib.import_module("dgl.sampling").random_walk(graph, nodes, **how)[0]
    return traces


def walk_in_order(layer: nn.Module, graph: Any, ntype: str, **how: Any) -> Tensor:
    """Walk from each node of a type, drawing what one walk after the other would draw.

    Parameters
    ----------
    layer : nn.Module
        Who asks.
    graph : DGLGraph
        The graph.
    ntype : str
        Type of the nodes to start from.
    **how
        As in :func:`walk`.

    Returns
    -------
    Tensor
        (N, steps + 1)
    """
    utils = importlib.import_module("dgl.utils")
    nodes = torch.arange(graph.num_nodes(ntype), dtype=graph.idtype, device=graph.device)
    threads = utils.get_num_threads()
    utils.set_num_threads(1)  # each thread has a generator of its own
    try:
        return walk(layer, graph, nodes, **how)
    finally:
        utils.set_num_threads(threads)


def choose(prob: Tensor, count: int) -> Tensor:
    """Draw ids with given probabilities, from DGL's generator.

    Parameters
    ----------
    prob : Tensor
        (N,)
    count : int
        How many.

    Returns
    -------
    Tensor
        (count,), int64, on the CPU.
    """
    drawn: Tensor = importlib.import_module("dgl.random").choice(
        len(prob), size=count, prob=prob.cpu()
    )
    return drawn


def shuffled(num_places: int, repeats: int, count: int) -> Tensor:
    """Draw places from Python's generator, each at most ``repeats`` times.

    Parameters
    ----------
    num_places : int
        How many places there are.
    repeats : int
        How often each is in the urn.
    count : int
        How many are drawn.

    Returns
    -------
    Tensor
        (count,), int64, on the CPU.
    """
    places = list(range(num_places)) * repeats
    random.shuffle(places)
    return torch.tensor(places[:count], dtype=torch.int64)


def windows(length: int, reach: int) -> Tensor:
    """Pairs of places in a walk that ``MetaPath2Vec`` takes for close, which are DGL's.

    Parameters
    ----------
    length : int
        Places in a walk.
    reach : int
        The size of the window.

    Returns
    -------
    Tensor
        (P, 2), int64: a place, and that of its context.
    """
    pairs = [
        (i, j)
        for i in range(length)
        for rank, j in enumerate(range(max(i - reach, 0), min(i + reach, length)))
        if rank != i
    ]
    return torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2)
