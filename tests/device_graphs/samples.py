"""Graphs with features, and what DGL's documented interface is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import dgl.function as fn
import torch
from torch import Tensor


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def homogeneous(idtype: torch.dtype = torch.int64) -> dgl.DGLGraph:
    src = torch.tensor([0, 1, 2, 2, 4, 4, 0, 3], dtype=idtype)
    dst = torch.tensor([1, 2, 0, 1, 0, 1, 3, 3], dtype=idtype)
    graph = dgl.graph((src, dst), num_nodes=6)
    graph.ndata["h"], graph.ndata["k"] = draw(6, 3), draw(6, 2, 3, seed=1)
    graph.edata["w"], graph.edata["x"] = draw(8, 1, seed=2), draw(8, 3, seed=3)
    return graph


def short_ids() -> dgl.DGLGraph:
    return homogeneous(torch.int32)


def typed() -> dgl.DGLGraph:
    ends = {
        ("user", "follows", "user"): ([0, 1, 3, 3], [1, 2, 0, 2]),
        ("user", "rates", "item"): ([0, 1, 1, 2], [4, 0, 4, 2]),
        ("item", "pleases", "user"): ([0, 4, 2], [0, 0, 3]),
    }
    graph = dgl.heterograph(ends, {"user": 4, "item": 5})
    graph.ndata["h"] = {"user": draw(4, 3), "item": draw(5, 3, seed=1)}
    graph.edata["w"] = {key: draw(len(uv[0]), 1, seed=2) for key, uv in ends.items()}
    return graph


def a_block() -> dgl.DGLGraph:
    graph = homogeneous()
    block = dgl.to_block(dgl.in_subgraph(graph, [0, 1]), [0, 1])
    block.srcdata["h"] = graph.ndata["h"][block.srcdata[dgl.NID]]
    return block


def a_batch() -> dgl.DGLGraph:
    return dgl.batch([homogeneous(), dgl.reverse(homogeneous(), copy_edata=True), homogeneous()])


def ids(graph: Any, *values: int) -> Tensor:
    return torch.tensor(values, dtype=graph.idtype, device=graph.device)


def update_all(message: Any, reduce: Any, frame: str = "dstdata") -> Callable[[Any], Any]:
    def call(graph: Any) -> Any:
        with graph.local_scope():
            graph.update_all(message, reduce)
            return getattr(graph, frame)["o"]

    return call


def apply_edges(function: Any) -> Callable[[Any], Any]:
    def call(graph: Any) -> Any:
        with graph.local_scope():
            graph.apply_edges(function)
            return graph.edata["o"]

    return call


def by_hand(edges: Any) -> dict[str, Tensor]:
    return {"m": edges.src["h"] * edges.data["w"] - edges.dst["h"]}


def largest(nodes: Any) -> dict[str, Tensor]:
    return {"o": nodes.mailbox["m"].max(1)[0] + nodes.data["h"]}


def mutated(graph: Any) -> Any:
    graph.add_nodes(2)
    graph.add_edges(ids(graph, 0, 7), ids(graph, 6, 1))
    graph.remove_edges(ids(graph, 1, 2))
    graph.remove_nodes(ids(graph, 3))
    return graph


def multi(graph: Any) -> Any:
    with graph.local_scope():
        graph.multi_update_all(
            {
                "follows": (fn.copy_u("h", "m"), fn.sum("m", "o")),
                "rates": (fn.u_mul_e("h", "w", "m"), fn.mean("m", "o")),
                "pleases": (fn.copy_u("h", "m"), fn.mean("m", "o")),
            },
            "sum",
        )
        return graph.ndata["o"]


def in_place(graph: Any) -> Any:
    graph.nodes[ids(graph, 0, 2)].data["h"] = torch.ones(2, 3, device=graph.device)
    graph.edges[ids(graph, 1)].data["w"] = torch.ones(1, 1, device=graph.device)
    return graph.ndata["h"], graph.edata["w"], graph.nodes[ids(graph, 1)].data["h"]


def pulled(graph: Any) -> Any:
    graph.pull(ids(graph, 0, 1), fn.copy_u("h", "m"), fn.sum("m", "h"))
    graph.push(ids(graph, 4), fn.copy_u("h", "m"), fn.sum("m", "h"))
    graph.send_and_recv(ids(graph, 0, 3), fn.copy_u("h", "m"), fn.sum("m", "h"))
    return graph.ndata["h"]


# What -> (builder of the graph, what is asked of it).
CALLS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {}


def _add(builders: list[Callable[[], Any]], calls: dict[str, Callable[[Any], Any]]) -> None:
    for builder in builders:
        CALLS.update(
            {f"{builder.__name__}-{name}": (builder, call) for name, call in calls.items()}
        )


_add(
    [homogeneous, short_ids],
    {
        "edges": lambda g: (g.edges("all"), g.edges(order="srcdst"), g.nodes(), g.all_edges()),
        "degrees": lambda g: (g.in_degrees(), g.out_degrees(ids(g, 2, 0)), g.in_degrees(1)),
        "has": lambda g: (g.has_nodes(ids(g, 0, 9)), g.has_edges_between(ids(g, 0), ids(g, 1))),
        "edge ids": lambda g: (
            g.edge_ids(ids(g, 0, 2), ids(g, 1, 0)),
            g.find_edges(ids(g, 3)),
            g.edge_ids(0, 1),
        ),
        "neighbours": lambda g: (g.predecessors(1), g.successors(2), g.in_edges(ids(g, 1))),
        "out edges": lambda g: g.out_edges(ids(g, 4), form="all"),
        "adjacency": lambda g: (g.adj_tensors("csr"), g.adj_tensors("coo"), g.adj_tensors("csc")),
        "scipy": lambda g: torch.from_numpy(g.adj_external(scipy_fmt="coo").toarray()),
        "incidence": lambda g: g.inc("in").to_dense(),
        "subgraphs": lambda g: (
            g.subgraph(ids(g, 0, 1, 2)),
            g.edge_subgraph(ids(g, 0, 5)),
            dgl.node_subgraph(g, ids(g, 4, 0)),
        ),
        "in and out subgraph": lambda g: (
            dgl.in_subgraph(g, ids(g, 1)),
            dgl.out_subgraph(g, ids(g, 4)),
            dgl.khop_in_subgraph(g, ids(g, 1), k=2)[0],
        ),
        "mask": lambda g: g.subgraph(torch.tensor([True] * 4 + [False] * 2, device=g.device)),
        "reverse": lambda g: dgl.reverse(g, copy_ndata=True, copy_edata=True),
        "self loops": lambda g: (dgl.add_self_loop(g), dgl.remove_self_loop(g)),
        "block": lambda g: dgl.to_block(g, ids(g, 0, 1, 2, 3)),
        "mutation": mutated,
        "formats": lambda g: g.formats(["csc"]).in_degrees(),
        "casts": lambda g: (g.int().edges(), g.long().edges()),
        "batching": lambda g: dgl.batch([g, g]),
        "unbatching": lambda g: dgl.unbatch(dgl.batch([g, g]))[1],
        "features": in_place,
        "filters": lambda g: (
            g.filter_nodes(lambda nodes: nodes.data["h"][:, 0] > 0),
            g.filter_edges(lambda edges: edges.data["w"][:, 0] > 0),
        ),
        "apply nodes": lambda g: (
            g.apply_nodes(lambda nodes: {"h": nodes.data["h"] * 2}),
            g.ndata["h"],
        ),
        "copy_u sum": update_all(fn.copy_u("h", "m"), fn.sum("m", "o")),
        "copy_u mean": update_all(fn.copy_u("h", "m"), fn.mean("m", "o")),
        "copy_u max": update_all(fn.copy_u("h", "m"), fn.max("m", "o")),
        "copy_e min": update_all(fn.copy_e("x", "m"), fn.min("m", "o")),
        "u_mul_e sum": update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o")),
        "u_add_v sum": update_all(fn.u_add_v("h", "h", "m"), fn.sum("m", "o")),
        "e_sub_u max": update_all(fn.e_sub_u("x", "h", "m"), fn.max("m", "o")),
        "u_dot_v sum": update_all(fn.u_dot_v("k", "k", "m"), fn.sum("m", "o")),
        "message by hand": update_all(by_hand, fn.sum("m", "o")),
        "all by hand": update_all(by_hand, largest),
        "reduction by hand": update_all(fn.u_mul_e("h", "w", "m"), largest),
        "edges dot": apply_edges(fn.u_dot_v("h", "h", "o")),
        "edges div": apply_edges(fn.u_div_e("h", "x", "o")),
        "edges copy": apply_edges(fn.copy_u("k", "o")),
        "edges by hand": apply_edges(lambda edges: {"o": edges.src["h"] + edges.dst["h"]}),
        "some edges": lambda g: (
            g.apply_edges(fn.u_sub_v("h", "h", "x"), edges=ids(g, 0, 2)),
            g.edata["x"],
        ),
        "pull, push, send": pulled,
        "propagation": lambda g: (
            g.prop_nodes([ids(g, 1), ids(g, 2)], fn.copy_u("h", "m"), fn.sum("m", "h")),
            g.ndata["h"],
        ),
        "softmax": lambda g: (
            dgl.ops.edge_softmax(g, g.edata["w"]),
            dgl.ops.edge_softmax(g, g.edata["x"], norm_by="src"),
        ),
        "ops": lambda g: (
            dgl.ops.copy_e_min(dgl.add_self_loop(g), torch.ones(14, 2, device=g.device)),
            dgl.ops.u_mul_e_sum(g, g.ndata["h"], g.edata["w"]),
            dgl.ops.gspmm(g, "add", "mean", g.ndata["h"], g.edata["x"]),
            dgl.ops.gsddmm(g, "dot", g.ndata["h"], g.ndata["h"]),
            dgl.ops.e_mul_v(g, g.edata["w"], g.ndata["h"]),
        ),
        # What is drawn is another matter than where it ends up.
        "walks": lambda g: (
            dgl.sampling.random_walk(g, ids(g, 0, 1), length=3)[1],
            dgl.sampling.random_walk(g, ids(g, 5), length=2, restart_prob=0.1)[0],
        ),
        "labour": lambda g: dgl.sampling.sample_labors(g, ids(g, 0), 9)[0].edata[dgl.EID].sort()[0],
        "to_homogeneous": dgl.to_homogeneous,
        "line graph": lambda g: dgl.line_graph(g).edges(),
        "compact": dgl.compact_graphs,
        # In the order of the day.
        "all neighbours": lambda g: (
            dgl.sampling.sample_neighbors(g, ids(g, 0, 1), -1).edata[dgl.EID].sort()[0]
        ),
    },
)
_add(
    [typed],
    {
        "edges": lambda g: [g.edges(etype=etype) for etype in g.etypes],
        "slice": lambda g: (g["follows"], g["rates"].in_degrees(), g["user", :, "item"]),
        "multi_update_all": multi,
        "one type": lambda g: (
            g.update_all(fn.copy_u("h", "m"), fn.max("m", "o"), etype="rates"),
            g.nodes["item"].data["o"],
        ),
        "all types": lambda g: (
            g.update_all(fn.copy_u("h", "m"), fn.sum("m", "o")),
            dict(g.ndata["o"]),
            g.apply_edges(fn.u_dot_v("h", "h", "o")),
            dict(g.edata["o"]),
        ),
        "slice with messages": lambda g: (
            g["follows"].update_all(fn.u_mul_e("h", "w", "m"), fn.sum("m", "o")),
            g.nodes["user"].data["o"],
        ),
        "apply_edges": lambda g: (
            g.apply_edges(fn.u_add_v("h", "h", "o"), etype="pleases"),
            g.edges["pleases"].data["o"],
        ),
        "softmax": lambda g: dgl.ops.edge_softmax(g, g.edata["w"]),
        "to_homogeneous": lambda g: dgl.to_homogeneous(g, ndata=["h"], edata=["w"]),
        "metapath": lambda g: dgl.metapath_reachable_graph(g.cpu(), ["rates", "pleases"]).edges(),
        "block": lambda g: dgl.to_block(g, {"user": ids(g, 0, 1, 2, 3), "item": ids(g, 0, 2, 4)}),
        "subgraph": lambda g: g.subgraph({"user": ids(g, 0, 3), "item": ids(g, 2, 4)}),
        "batch": lambda g: dgl.unbatch(dgl.batch([g, g]))[0],
        "all neighbours": lambda g: [
            dgl.sampling.sample_neighbors(g, {"user": ids(g, 0, 2)}, 9).num_edges(etype)
            for etype in g.etypes
        ],
        "edge type subgraph": lambda g: dgl.edge_type_subgraph(g, ["follows", "rates"]),
    },
)
_add(
    [a_block],
    {
        "edges": lambda g: (g.edges(), g.srcnodes(), g.dstnodes(), g.in_degrees()),
        "update_all": update_all(fn.copy_u("h", "m"), fn.mean("m", "o")),
        "frames": lambda g: (g.srcdata["h"], g.dstdata[dgl.NID], g.edata[dgl.EID]),
        "to graph": lambda g: dgl.block_to_graph(g).edges(),
    },
)
_add(
    [a_batch],
    {
        "sizes": lambda g: (g.batch_num_nodes(), g.batch_num_edges()),
        "read-out": lambda g: [
            getattr(dgl, f"{op}_nodes")(g, "h") for op in ("sum", "mean", "max", "softmax")
        ],
        "weighted": lambda g: (dgl.sum_edges(g, "x", "w"), dgl.readout_nodes(g, "h", op="min")),
        "broadcast": lambda g: dgl.broadcast_nodes(g, dgl.mean_nodes(g, "h")),
        "top k": lambda g: dgl.topk_nodes(g, "h", 2, sortby=0),
        "segments": lambda g: dgl.ops.segment_reduce(g.batch_num_nodes(), g.ndata["h"], "max"),
        "slices": lambda g: dgl.slice_batch(g, 1),
    },
)
