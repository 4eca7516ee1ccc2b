"""DeepWalk and metapath2vec: embeddings of nodes from random walks, without features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from dgl_flash.nn import skipgrams
from dgl_flash.nn.missing import attribute_of

__all__ = ["DeepWalk", "MetaPath2Vec"]

__getattr__ = attribute_of(__name__)


class DeepWalk(nn.Module):
    r"""Embed the nodes of a graph, with the interface of ``dgl.nn.DeepWalk``.

    Nodes that are close to each other in a random walk should have similar embeddings, others not:

    .. math::
        L = \operatorname{mean}_{(i, j)} -\log \sigma(x_i^\top c_j) \; + \; \lambda k \,
            \operatorname{mean}_{(j, n)} -\log \sigma(-x_j^\top c_n)

    over pairs :math:`i \ne j` of places in a walk that are at most ``window_size`` apart, and for
    each pair :math:`k` nodes :math:`n` at random. Products are cut to :math:`[-6, 6]`.

    Parameters
    ----------
    g : DGLGraph
        The graph, which is kept for its walks. It may stay on the CPU while the module moves.
    emb_dim : int
        D, width of the embeddings. Default 128.
    walk_length : int
        Number of nodes in a walk. Default 40.
    window_size : int
        How far apart a pair may be. Default 5.
    neg_weight : float
        :math:`\lambda`. Default 1.
    negative_size : int
        :math:`k`. Default 5.
    fast_neg : bool
        Take the random nodes from the walks of the batch, with the generator of Python's
        ``random``; otherwise from all nodes, with probabilities
        :math:`\propto d^{3/4}` by their out-degree :math:`d` and DGL's generator. Default True.
    sparse : bool
        Make sparse gradients, for ``torch.optim.SparseAdam``. Default True.

    Attributes
    ----------
    node_embed : nn.Embedding
        (N, D), :math:`x`: the result.
    context_embed : nn.Embedding
        (N, D), :math:`c`; zero at first.

    Raises
    ------
    AssertionError
        If a walk is not longer than the window.

    Notes
    -----
    Source: B. Perozzi, R. Al-Rfou, S. Skiena, "DeepWalk: Online Learning of Social
    Representations", KDD 2014, https://arxiv.org/abs/1403.6652. As in DGL negative samples stand
    in the place of the paper's hierarchical softmax: T. Mikolov, I. Sutskever, K. Chen,
    G. Corrado, J. Dean, NIPS 2013, https://arxiv.org/abs/1310.4546.

    Generators are drawn from as by DGL, so that equal seeds (``random.seed``, ``dgl.seed``,
    ``torch.manual_seed``) give equal weights, walks and losses. The walks themselves are DGL's.

    **Fused path.** All products of a batch are one call of ``dgl_flash.ops.u_dot_v``, on the graph
    whose edges are the pairs: one CUDA kernel forward and two backward, and no tensor of pairs x D,
    of which DGL makes four. The CPU takes chunks of pairs.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import DeepWalk
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> model = DeepWalk(graph, emb_dim=8, walk_length=3, window_size=2)
    >>> model(torch.tensor([[0, 1, 2], [3, 0, 1]])).shape
    torch.Size([])
    """

    def __init__(
        self,
        g: Any,
        emb_dim: int = 128,
        walk_length: int = 40,
        window_size: int = 5,
        neg_weight: float = 1,
        negative_size: int = 5,
        fast_neg: bool = True,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        shortest = window_size + 1
        if walk_length < shortest:
            raise AssertionError(
                f"Expect walk_length >= window_size + 1, got {walk_length} and {shortest}"
            )
        self.g = g
        self.emb_dim = emb_dim
        self.window_size = window_size
        self.walk_length = walk_length
        self.neg_weight = neg_weight
        self.negative_size = negative_size
        self.fast_neg = fast_neg
        self.node_embed = nn.Embedding(g.num_nodes(), emb_dim, sparse=sparse)
        self.context_embed = nn.Embedding(g.num_nodes(), emb_dim, sparse=sparse)
        self.reset_parameters()
        if not fast_neg:
            self.neg_prob = skipgrams.flattened(g.out_degrees())
        places = torch.arange(walk_length)
        gaps = (places.unsqueeze(1) - places).abs()
        # By the second place, then by the first.
        pairs = ((gaps > 0) & (gaps <= window_size)).nonzero()
        self.idx_list_src, self.idx_list_dst = pairs[:, 1].clone(), pairs[:, 0].clone()

    def reset_parameters(self) -> None:
        """Draw the embeddings from U(-1 / D, 1 / D), and set those of the contexts to 0."""
        skipgrams.reset(self.node_embed, self.context_embed)

    def sample(self, indices: Tensor | Iterable[Any]) -> Tensor:
        """Walk from some nodes, as the ``collate_fn`` of a data loader does.

        Parameters
        ----------
        indices : Tensor or list
            (B,), where to start.

        Returns
        -------
        Tensor
            (B, walk_length), node ids; -1 after a node without out-edges.

        Raises
        ------
        TypeError
            If the graph is not DGL's.
        DGLError
            If the graph has several types, or the ids are not of its dtype.
        """
        return skipgrams.walk(self, self.g, indices, length=self.walk_length - 1)

    def forward(self, batch_walk: Tensor) -> Tensor:
        """Loss of some walks.

        Parameters
        ----------
        batch_walk : Tensor
            (B, walk_length), node ids, on any device.

        Returns
        -------
        Tensor
            A number.

        Raises
        ------
        ValueError
            If the walks have another length.
        IndexError
            If a walk has ended early, so that there are ids of -1. Walks on a GPU are not checked.
        """
        if batch_walk.dim() != 2 or batch_walk.shape[1] != self.walk_length:
            raise ValueError(
                f"DeepWalk: expected `batch_walk` of shape (B, {self.walk_length}), got "
                f"{tuple(batch_walk.shape)}; pass what `sample` returns"
            )
        if batch_walk.device.type == "cpu" and bool((batch_walk < 0).any()):
            raise IndexError(
                "DeepWalk: expected `batch_walk` of node ids, got -1, where a walk ended at a node "
                "without out-edges; pass DeepWalk a graph with dgl.add_self_loop(g)"
            )
        device = self.node_embed.weight.device
        walks = batch_walk.to(device)
        rows = self.node_embed(walks).flatten(0, 1)
        contexts = self.context_embed(walks).flatten(0, 1)
        first = torch.arange(0, walks.numel(), self.walk_length, device=device).unsqueeze(1)
        src, dst = (
            (first + places.to(device)).flatten()
            for places in (self.idx_list_src, self.idx_list_dst)
        )
        neg_src = dst.repeat_interleave(self.negative_size)
        if self.fast_neg:
            repeats = 2 * self.window_size * self.negative_size
            neg_dst = skipgrams.shuffled(walks.numel(), repeats, len(neg_src)).to(device)
            src, dst = torch.cat([src, neg_src]), torch.cat([dst, neg_dst])
            scores = skipgrams.dots(rows, src, contexts, dst).clamp(-6, 6)
            pos, neg = scores.tensor_split([len(scores) - len(neg_src)])
        else:
            pos = skipgrams.dots(rows, src, contexts, dst).clamp(-6, 6)
            drawn = skipgrams.choose(self.neg_prob, len(neg_src)).to(device)
            ids, neg_dst = drawn.unique(return_inverse=True)
            neg = skipgrams.dots(rows, neg_src, self.context_embed(ids), neg_dst).clamp(-6, 6)
        scale = self.negative_size * self.neg_weight
        return -logsigmoid(pos).mean() - logsigmoid(-neg).mean() * scale


class MetaPath2Vec(nn.Module):
    r"""Embed nodes of several types, with the interface of ``dgl.nn.MetaPath2Vec``.

    Nodes that are close to each other in a random walk along given types of edges are similar:

    .. math::
        L = \operatorname{mean}_{(u, v)} \Big( -\log \sigma(x_u^\top c_v)
            - \sum_n \log \sigma(-x_u^\top c_n) \Big)

    over pairs of close nodes, and for each pair ``negative_size`` nodes :math:`n` at random.
    Products are cut to :math:`[-10, 10]`.

    Parameters
    ----------
    g : DGLGraph
        The graph, which is kept for its walks. It may stay on the CPU while the module moves.
    metapath : list of str
        Edge types, one a step.
    window_size : int
        How far apart a pair may be, see Notes.
    emb_dim : int
        D, width of the embeddings. Default 128.
    negative_size : int
        Number of random nodes for each pair. Default 5.
    sparse : bool
        Make sparse gradients, for ``torch.optim.SparseAdam``. Default True.

    Attributes
    ----------
    node_embed : nn.Embedding
        (N, D), :math:`x`, the result: nodes of all types, one type after the other in the order of
        ``g.ntypes``.
    context_embed : nn.Embedding
        (N, D), :math:`c`; zero at first.
    local_to_global_nid : dict of list
        For each type of node the rows of its nodes.
    node_metapath : list of str
        Type of node at each place of a walk.
    neg_prob : Tensor
        (N,), :math:`\propto f^{3/4}`, where in a walk from each node of the first type :math:`f`
        walks came by. Contexts at random are drawn from it.

    Raises
    ------
    AssertionError
        If the window is larger than a walk.
    DGLError
        If an edge type is unknown, or its name has several meanings.

    Notes
    -----
    Source: Y. Dong, N. V. Chawla, A. Swami, "metapath2vec: Scalable Representation Learning for
    Heterogeneous Networks", KDD 2017, https://doi.org/10.1145/3097983.3098036.

    Pairs are DGL's, not quite the paper's. With w = ``window_size`` the contexts of place i are the
    places from max(i - w, 0) to i + w - 1, without the one that is i-th in this range. So up to
    place w a node is no context of itself and the window is one shorter to the right; from there on
    a node is a context of itself, and if there is an (i-th of the range), another one is left out.

    Generators are drawn from as by DGL, so that equal seeds (``dgl.seed``, ``torch.manual_seed``)
    give equal weights and samples. The constructor walks in one call and without a progress bar.

    Where DGL is wrong: it takes the -1 after the end of a walk for the last node of the type there,
    in samples and in ``neg_prob``; here such places have no pairs. It fails with one type of nodes,
    with ``negative_size=1`` and with one pair; here those work.

    **Fused path.** All products of a batch are one call of ``dgl_flash.ops.u_dot_v``, on the graph
    whose edges are the pairs, with one row for each node that occurs: one CUDA kernel forward and
    two backward, and no tensor of pairs x D. The CPU takes chunks of pairs.

    Examples
    --------
    >>> import torch, dgl_flash, dgl
    >>> from dgl_flash.nn import MetaPath2Vec
    >>> edges = torch.tensor([0, 1, 2]), torch.tensor([1, 0, 1])
    >>> graph = dgl.heterograph({("a", "to", "b"): edges, ("b", "from", "a"): edges[::-1]})
    >>> model = MetaPath2Vec(graph, ["to", "from"], window_size=1, emb_dim=8)
    >>> model(*model.sample(torch.tensor([0, 2]))).shape
    torch.Size([])
    """

    def __init__(
        self,
        g: Any,
        metapath: list[Any],
        window_size: int,
        emb_dim: int = 128,
        negative_size: int = 5,
        sparse: bool = True,
    ) -> None:
        super().__init__()
        if len(metapath) + 1 < window_size:
            raise AssertionError(
                f"Expect len(metapath) >= window_size - 1, got {metapath} and {window_size}"
            )
        skipgrams.require_dgl(self, g)
        self.hg = g
        self.emb_dim = emb_dim
        self.metapath = metapath
        self.window_size = window_size
        self.negative_size = negative_size
        steps = [g.to_canonical_etype(etype) for etype in metapath]
        self.node_metapath = [steps[0][0], *(dst for _, _, dst in steps)]
        self.local_to_global_nid: dict[str, list[int]] = {}
        num_nodes = 0
        for ntype in g.ntypes:
            end = num_nodes + g.num_nodes(ntype)
            self.local_to_global_nid[ntype] = list(range(num_nodes, end))
            num_nodes = end
        self.neg_prob = skipgrams.flattened(self._count(num_nodes))
        self.node_embed = nn.Embedding(num_nodes, emb_dim, sparse=sparse)
        self.context_embed = nn.Embedding(num_nodes, emb_dim, sparse=sparse)
        self.reset_parameters()

    def _global(self, traces: Tensor) -> Tensor:
        """Rows of the nodes of walks, (B, len(metapath) + 1) on the CPU; -1 stays."""
        firsts = [next(iter(self.local_to_global_nid[t]), 0) for t in self.node_metapath]
        traces = traces.cpu().long()
        return torch.where(traces < 0, traces, traces + torch.tensor(firsts))

    def _count(self, num_nodes: int) -> Tensor:
        """How many walks come by a node, with a walk from each node of the first type."""
        walks = skipgrams.walk_in_order(
            self, self.hg, self.node_metapath[0], metapath=self.metapath
        )
        walks = self._global(walks).sort(dim=1).values
        counts = walks >= 0
        counts[:, 1:] &= walks[:, 1:] != walks[:, :-1]
        return walks[counts].bincount(minlength=num_nodes)

    def reset_parameters(self) -> None:
        """Draw the embeddings from U(-1 / D, 1 / D), and set those of the contexts to 0."""
        skipgrams.reset(self.node_embed, self.context_embed)

    def sample(self, indices: Tensor | Iterable[Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Walk from some nodes, and pair the nodes of each walk.

        Parameters
        ----------
        indices : Tensor or list
            (B,), ids among the nodes of the first type.

        Returns
        -------
        tuple of Tensor
            Nodes (P,), their contexts (P,) and contexts at random (P, negative_size), as rows of
            the embeddings, on the CPU.

        Raises
        ------
        DGLError
            If the ids are not of the graph's dtype, or out of range.
        """
        walks = self._global(skipgrams.walk(self, self.hg, indices, metapath=self.metapath))
        ends = walks[:, skipgrams.windows(walks.shape[1], self.window_size)].flatten(0, 1)
        pos_u, pos_v = ends[(ends >= 0).all(dim=1)].unbind(dim=1)
        neg_v = skipgrams.choose(self.neg_prob, len(pos_u) * self.negative_size)
        return pos_u, pos_v, neg_v.reshape(len(pos_u), self.negative_size)

    def forward(self, pos_u: Tensor, pos_v: Tensor, neg_v: Tensor) -> Tensor:
        """Loss of some pairs.

        Parameters
        ----------
        pos_u, pos_v : Tensor
            (P,), nodes and their contexts, on any device.
        neg_v : Tensor
            (P, K), contexts at random.

        Returns
        -------
        Tensor
            A number.

        Raises
        ------
        IndexError
            If a node is out of range.
        ValueError
            If there is not one context, or not one row of contexts at random, a node.
        """
        if pos_u.shape != pos_v.shape or neg_v.dim() != 2 or len(neg_v) != len(pos_u):
            shapes = ", ".join(str(tuple(ids.shape)) for ids in (pos_u, pos_v, neg_v))
            raise ValueError(
                f"MetaPath2Vec: expected `pos_u`, `pos_v` and `neg_v` of shapes (P,), (P,) and "
                f"(P, K), got {shapes}; pass what `sample` returns"
            )
        device = self.node_embed.weight.device
        nodes, src = pos_u.to(device).unique(return_inverse=True)
        given = torch.cat([pos_v.to(device), neg_v.to(device).flatten()])
        contexts, dst = given.unique(return_inverse=True)
        src = torch.cat([src, src.repeat_interleave(neg_v.shape[1])])
        scores = skipgrams.dots(self.node_embed(nodes), src, self.context_embed(contexts), dst)
        pos, neg = scores.clamp(-10, 10).tensor_split([len(pos_u)])
        neg = neg.reshape(neg_v.shape)
        return -(logsigmoid(pos) + logsigmoid(-neg).sum(dim=1)).mean()
