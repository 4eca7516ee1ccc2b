"""Graphs and models for the explainers, from either library."""

from __future__ import annotations

import inspect

import dgl
import torch
from torch import nn

from tests.nn.common import draw, ours, theirs

WIDTH, CLASSES, HIDDEN = 5, 3, 4


def plain_graph(idtype=torch.int64, num_nodes=14):
    """Edges with their reverses, in no order, and self-loops."""
    generator = torch.Generator().manual_seed(3)
    src, dst = torch.randint(num_nodes, (2, 24), generator=generator)
    pairs = torch.stack([torch.cat([src, dst]), torch.cat([dst, src])]).unique(dim=1)
    pairs = pairs[:, torch.randperm(pairs.shape[1], generator=generator)].to(idtype)
    graph = dgl.graph((pairs[0], pairs[1]), num_nodes=num_nodes)
    return dgl.add_self_loop(dgl.remove_self_loop(graph))


def typed_graph(idtype=torch.int64):
    """Two types of nodes, and reverses of every type of edges."""
    likes = (torch.tensor([0, 1, 1, 2, 3, 4, 4]), torch.tensor([0, 0, 1, 1, 2, 2, 3]))
    knows = (torch.tensor([0, 1, 2, 3]), torch.tensor([1, 0, 3, 2]))
    edges = {
        ("user", "likes", "item"): likes,
        ("item", "liked", "user"): likes[::-1],
        ("user", "knows", "user"): knows,
    }
    return dgl.heterograph(
        {key: (src.to(idtype), dst.to(idtype)) for key, (src, dst) in edges.items()}
    )


def typed_features(graph):
    return {
        ntype: draw(graph.num_nodes(ntype), WIDTH, seed=i) for i, ntype in enumerate(graph.ntypes)
    }


class Model(nn.Module):
    """Two layers and dropout, with every argument that an explainer passes."""

    def __init__(self, library, pooled):
        super().__init__()
        self.first = library.GraphConv(WIDTH, HIDDEN, allow_zero_in_degree=True)
        self.second = library.GraphConv(HIDDEN, CLASSES, allow_zero_in_degree=True)
        self.dropout = nn.Dropout(0.5)
        self.pool = library.AvgPooling() if pooled else None
        self.calls = []

    def forward(self, graph, feat, embed=False, edge_weight=None, eweight=None, shift=None):
        weight = edge_weight if eweight is None else eweight
        self.calls.append((embed, weight is not None, torch.is_tensor(shift) and shift.shape))
        hidden = self.first(graph, feat, edge_weight=weight).relu()
        if embed:
            return hidden
        if shift is not None:
            hidden = hidden + shift
        found = self.second(graph, self.dropout(hidden), edge_weight=weight)
        return found if self.pool is None else self.pool(graph, found)


class TypedModel(nn.Module):
    """One layer for each type of edges, twice."""

    def __init__(self, library, pooled, etypes):
        super().__init__()
        self.pooled = pooled
        self.convs = nn.ModuleList(
            nn.ModuleDict(
                {name: library.GraphConv(*sizes, norm="right") for _, name, _ in sorted(etypes)}
            )
            for sizes in ((WIDTH, HIDDEN), (HIDDEN, CLASSES))
        )

    def layer(self, which, graph, feat, weight):
        found = {}
        for etype in graph.canonical_etypes:
            src, name, dst = etype
            conv = self.convs[which][name]
            conv.set_allow_zero_in_degree(True)
            given = None if weight is None else weight[etype]
            out = conv(graph[etype], (feat[src], feat[dst]), edge_weight=given)
            found[dst] = found[dst] + out if dst in found else out
        return found

    def forward(self, graph, feat, embed=False, edge_weight=None, eweight=None):
        weight = edge_weight if eweight is None else eweight
        hidden = {k: h.relu() for k, h in self.layer(0, graph, feat, weight).items()}
        if embed:
            return hidden
        found = self.layer(1, graph, hidden, weight)
        if not self.pooled:
            return found
        return sum(part.mean(0, keepdim=True) for part in found.values() if len(part))


def models(build, *args):
    """The same model of our layers and of DGL's."""
    mine, other = (build(library, *args) for library in (ours, theirs))
    generator = torch.Generator().manual_seed(11)
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    other.load_state_dict(mine.state_dict())
    return mine, other


def same(found, expected, **tolerance):
    """Compare nested results, the order of dicts included."""
    assert type(found) is type(expected)
    if isinstance(found, dict):
        assert list(found) == list(expected)
        for key in found:
            same(found[key], expected[key], **tolerance)
    elif isinstance(found, (tuple, list)):
        assert len(found) == len(expected)
        for pair in zip(found, expected, strict=True):
            same(*pair, **tolerance)
    elif isinstance(found, dgl.DGLGraph):
        same_graph(found, expected)
    elif isinstance(found, torch.Tensor):
        torch.testing.assert_close(found.cpu(), expected.cpu(), **tolerance)
    else:
        assert found == expected


def same_graph(found, expected):
    assert found.ntypes == expected.ntypes
    assert found.canonical_etypes == expected.canonical_etypes
    assert (found.batch_size, found.idtype) == (expected.batch_size, expected.idtype)
    for ntype in found.ntypes:
        same(dict(found.nodes[ntype].data), dict(expected.nodes[ntype].data))
    for etype in found.canonical_etypes:
        same(found.edges(etype=etype), expected.edges(etype=etype))
        same(dict(found.edges[etype].data), dict(expected.edges[etype].data))


def assert_same_interface(name):
    """Signatures of DGL's constructor and methods, but for annotations."""

    def bare(function):
        parameters = inspect.signature(function).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    mine, other = getattr(ours, name), getattr(theirs, name)
    assert bare(mine) == bare(other)
    inherited = {*dir(nn.Module), "parameters"}  # ours takes torch's `recurse` too
    for method in [key for key in dir(other) if not key.startswith("_") and key not in inherited]:
        assert bare(getattr(mine, method)) == bare(getattr(other, method)), method
    for text in ("Parameters\n", "Notes\n", "Source", "https://", "**Fused path.**"):
        assert text in mine.__doc__


def state_of(model):
    """What an explainer has to leave as it was."""
    return (
        {key: value.clone() for key, value in model.state_dict().items()},
        [part.training for part in model.modules()],
        [parameter.grad for parameter in model.parameters()],
    )
