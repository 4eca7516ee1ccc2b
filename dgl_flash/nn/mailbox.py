"""Message and reduce functions of a user, called as DGL's ``update_all`` calls them.

The layers that DGL has written with such functions compute without them; whoever overrides one of
them in a subclass, or replaces a part by another module, still has it called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from dgl_flash import ops
from dgl_flash.structure import GraphStructure

Columns = Mapping[str, Tensor]


@dataclass
class EdgeBatch:
    """What a message function receives.

    Attributes
    ----------
    src, dst, data : mapping of str to Tensor
        Features of the sources, the destinations and the edges, one row an edge.
    """

    src: Columns
    dst: Columns
    data: Columns


@dataclass
class NodeBatch:
    """What a reduce function receives: nodes of one in-degree.

    Attributes
    ----------
    data : mapping of str to Tensor
        Features of the nodes, (B, ...).
    mailbox : mapping of str to Tensor
        Messages of their in-edges in the order of the edge ids, (B, degree, ...).
    """

    data: Columns
    mailbox: Columns


def edge_batch(struct: GraphStructure, nodes: Columns, edges: Columns) -> EdgeBatch:
    """Spell out the ends of all edges.

    Parameters
    ----------
    struct : GraphStructure
        A graph of one set of nodes.
    nodes, edges : mapping of str to Tensor
        Features, (N, ...) and (E, ...).

    Returns
    -------
    EdgeBatch
        All edges in the order of their ids.
    """
    src = {name: ops.copy_u(struct, rows) for name, rows in nodes.items()}
    dst = {name: ops.copy_v(struct, rows) for name, rows in nodes.items()}
    return EdgeBatch(src, dst, edges)


def reduce_mailboxes(
    struct: GraphStructure, nodes: Columns, messages: Columns, reduce: Callable[[NodeBatch], Tensor]
) -> Tensor | None:
    """Hand the messages to a reduce function, all nodes of one in-degree at a time.

    Parameters
    ----------
    struct : GraphStructure
        The graph.
    nodes, messages : mapping of str to Tensor
        (N_dst, ...) and (E, ...)
    reduce : callable
        From a batch of B nodes to a tensor (B, ...).

    Returns
    -------
    Tensor or None
        (N_dst, ...), 0 without in-edges; None if there is no edge.
    """
    _, dst = struct.edges()
    order = dst.argsort(stable=True)
    degrees = struct.in_degrees().long()
    starts = degrees.cumsum(0) - degrees
    ids, parts = [], []
    for degree in degrees.unique().tolist():
        if degree == 0:
            continue
        batch = (degrees == degree).nonzero().squeeze(1)
        steps = torch.arange(degree, device=dst.device)
        eids = order[starts[batch].unsqueeze(1) + steps]
        data = {name: rows[batch] for name, rows in nodes.items()}
        mailbox = {name: rows[eids] for name, rows in messages.items()}
        ids.append(batch)
        parts.append(reduce(NodeBatch(data, mailbox)))
    if not parts:
        return None
    found = torch.cat(parts)
    shape = struct.num_dst, *found.shape[1:]
    return found.new_zeros(shape).index_copy(0, torch.cat(ids), found)
