"""Layers, linear maps and embeddings for each type of a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.across import AddUp, get_aggregate_fn
from dgl_flash.nn.common import expand_as_pair
from dgl_flash.nn.jointly import Call, Stack, attend_jointly
from dgl_flash.nn.missing import attribute_of
from dgl_flash.structure.relation_slices import relation_slices

__all__ = ["HeteroEmbedding", "HeteroGraphConv", "HeteroLinear"]

__getattr__ = attribute_of(__name__)

EdgeType = str | tuple[str, str, str]


class HeteroGraphConv(nn.Module):
    r"""A layer for each relation of a heterograph, as ``dgl.nn.HeteroGraphConv``.

    .. math::
        y^{(t)} = \mathrm{aggregate}_{r = (s, \cdot, t)}\; f_r(g_r, (x^{(s)}, x^{(t)}))

    over the relations :math:`r` that end in nodes of type :math:`t`, with the layer :math:`f_r` and
    the edges :math:`g_r` of each. A relation without edges is computed too, as in DGL; one whose
    sources have no features is left out.

    Parameters
    ----------
    mods : dict of nn.Module
        The layers, of this package, of DGL or one's own: the first argument is a DGLGraph of one
        relation, the second a pair of features. Keys are names of types of edges, or triples, which
        are looked up first. Layers with ``set_allow_zero_in_degree`` have nodes without in-edges
        allowed.
    aggregate : {"sum", "max", "min", "mean", "stack"} or callable
        How results for one type of nodes become one, in the order of the graph's relations;
        ``"stack"`` puts them into a second dimension. A callable takes the list of tensors and the
        type. Default ``"sum"``.

    Attributes
    ----------
    mods : nn.ModuleDict
        The layers, by the key as text.
    mod_dict : dict
        The layers as they were given; calls look them up here.
    agg_fn : callable
        What reduces the results.

    Raises
    ------
    DGLError
        If there is no such aggregator.

    Notes
    -----
    Source: M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling,
    "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018,
    https://arxiv.org/abs/1703.06103, which adds up over relations.

    **Fused path.** That of each layer, relation by relation. The relations are taken out of the
    graph at the first call and kept with it until it changes, together with the compressed edges,
    transposes and degrees that layers read; features of nodes and edges are always those that the
    graph has now. Sums and means are added up in one tensor (two from 33 relations on), so that
    results need not be kept for it; the other aggregators stack them. On a GPU, the layers of one
    type of destinations take one kernel a pass, and one product a type of sources, where all are a
    :class:`GATv2Conv` of the same heads. Layers that drop features or attention are called one by
    one, and so are those that meet a row of more than 4,096 edges, or a wide graph in inference.
    For thousands of relations of one width, :class:`RelGraphConv` on ``dgl.to_homogeneous(g)`` is
    one kernel for all.

    Examples
    --------
    >>> import dgl_flash, dgl, torch
    >>> from dgl_flash.nn import GraphConv, HeteroGraphConv, SAGEConv
    >>> g = dgl.heterograph({
    ...     ("user", "follows", "user"): ([0, 1], [1, 2]),
    ...     ("user", "plays", "game"): ([0, 2], [1, 0]),
    ...     ("store", "sells", "game"): ([0, 0], [0, 1]),
    ... })
    >>> layer = HeteroGraphConv({
    ...     "follows": GraphConv(5, 4),
    ...     "plays": GraphConv(5, 4),
    ...     "sells": SAGEConv((3, 6), 4, "mean"),
    ... })
    >>> feat = {"user": torch.randn(3, 5), "store": torch.randn(1, 3), "game": torch.randn(2, 6)}
    >>> {ntype: tuple(out.shape) for ntype, out in layer(g, feat).items()}
    {'game': (2, 4), 'user': (3, 4)}
    """

    def __init__(
        self,
        mods: Mapping[EdgeType, nn.Module],
        aggregate: str | Callable[[list[Tensor], str], Any] = "sum",
    ) -> None:
        super().__init__()
        self.mod_dict = mods
        self.mods = nn.ModuleDict({str(key): module for key, module in mods.items()})
        for module in self.mods.values():
            allow: Any = getattr(module, "set_allow_zero_in_degree", None)
            if callable(allow):
                allow(True)
        self.agg_fn = get_aggregate_fn(aggregate) if isinstance(aggregate, str) else aggregate

    def _get_module(self, etype: EdgeType) -> Any:
        if etype in self.mod_dict and self.mod_dict[etype] is not None:
            return self.mod_dict[etype]
        if isinstance(etype, tuple):
            return self.mod_dict[etype[1]]
        raise KeyError(f"Cannot find module with edge type {etype}")

    def forward(
        self, g: Any, inputs: Any, mod_args: Any = None, mod_kwargs: Any = None
    ) -> dict[str, Any]:
        r"""Call the layers, and aggregate what they give to each type of nodes.

        Parameters
        ----------
        g : DGLGraph or DGLBlock
            The graph, on any device.
        inputs : dict of Tensor, or pair of dict of Tensor
            (N_t, \*) for the types of nodes that have features; with a pair, those of sources and
            of destinations, and a relation is left out for want of either. On a block, the
            destinations are the first sources.
        mod_args : dict of tuple, optional
            More positional arguments of layers, by the name of the type of edges.
        mod_kwargs : dict of dict, optional
            Keyword arguments of layers, likewise.

        Returns
        -------
        dict of Tensor
            By type of destinations, in the order of the graph; only types that a layer has been
            called for.

        Raises
        ------
        TypeError
            If ``g`` is no graph of DGL, or ``inputs`` is a tensor.
        KeyError
            If there is no layer for a relation, or one needs features of destinations that are not
            there.
        RuntimeError
            If results for one type differ in shape.
        """
        relations = relation_slices(g, op=type(self).__name__)
        src_inputs, dst_inputs = self._sides(g, inputs)
        may_lack = g.is_block or isinstance(inputs, tuple)
        mod_args, mod_kwargs = mod_args or {}, mod_kwargs or {}
        calls: list[Call] = []
        for etype_id, (relation, part) in enumerate(relations):
            stype, etype, dtype = relation
            if stype not in src_inputs or (may_lack and dtype not in dst_inputs):
                continue
            module = self._get_module(relation)
            pair = src_inputs[stype], dst_inputs[dtype]
            more, named = mod_args.get(etype, ()), mod_kwargs.get(etype, {})
            calls.append(Call(etype_id, relation, part, module, pair, more, named))
        together = attend_jointly(g, calls)
        outputs: dict[str, Any] = {ntype: together.get(ntype) for ntype in g.dsttypes}
        for call in calls:
            ntype = call.relation[2]
            if ntype in together:
                continue
            if outputs[ntype] is None:
                outputs[ntype] = self.agg_fn.start() if isinstance(self.agg_fn, AddUp) else []
            result = call.module(call.part, call.pair, *call.more, **call.named)
            outputs[ntype].append(result)
        return {
            ntype: self._aggregate(found, ntype)
            for ntype, found in outputs.items()
            if found is not None
        }

    def _aggregate(self, found: Any, ntype: str) -> Any:
        if not isinstance(found, Stack):
            return self.agg_fn(found, ntype)
        if isinstance(self.agg_fn, AddUp):
            return self.agg_fn.of_stack(found.padded)[: found.num_dst]
        return self.agg_fn(found.unbind(), ntype)

    def _sides(self, g: Any, inputs: Any) -> tuple[Any, Any]:
        """Features of sources and of destinations, by type."""
        for side in inputs if isinstance(inputs, tuple) else (inputs,):
            if isinstance(side, Tensor):
                raise TypeError(
                    f"{type(self).__name__}: expected `inputs` to be a dict of tensors by type of "
                    "node, or a pair of dicts, got a tensor; pass {ntype: feat}"
                )
        src_inputs, dst_inputs = expand_as_pair(inputs, g)
        return src_inputs, dst_inputs


class HeteroLinear(nn.Module):
    r"""A linear map for each type, with the interface of ``dgl.nn.HeteroLinear``.

    .. math::
        y^{(t)} = x^{(t)} W_t^\top + b_t

    Parameters
    ----------
    in_size : dict of int
        Input width of each type. Keys are types of nodes, or triples that name a relation.
    out_size : int
        Output width.
    bias : bool
        Learn a bias. Default True.

    Attributes
    ----------
    linears : nn.ModuleDict
        The maps, by the key as text.

    Notes
    -----
    Source: M. Schlichtkrull, T. N. Kipf, P. Bloem, R. van den Berg, I. Titov, M. Welling,
    "Modeling Relational Data with Graph Convolutional Networks", ESWC 2018,
    https://arxiv.org/abs/1703.06103, whose inputs have a map for each type.

    **Fused path.** There is none: types differ in width, and each is one product of cuBLAS. Types
    of one width whose rows lie in one tensor are faster in :class:`TypedLinear`.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import HeteroLinear
    >>> layer = HeteroLinear({"user": 1, ("user", "follows", "user"): 2}, 3)
    >>> out = layer({"user": torch.randn(4, 1), ("user", "follows", "user"): torch.randn(5, 2)})
    >>> {key: tuple(value.shape) for key, value in out.items()}
    {'user': (4, 3), ('user', 'follows', 'user'): (5, 3)}
    """

    def __init__(self, in_size: dict[Hashable, int], out_size: int, bias: bool = True) -> None:
        super().__init__()
        self.linears = nn.ModuleDict(
            {str(key): nn.Linear(width, out_size, bias=bias) for key, width in in_size.items()}
        )

    def forward(self, feat: dict[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        r"""Transform the rows of each type.

        Parameters
        ----------
        feat : dict of Tensor
            (\*, in_size[key]), for all types or some.

        Returns
        -------
        dict of Tensor
            (\*, out_size), with the keys of ``feat``.

        Raises
        ------
        KeyError
            If there is no map for a type.
        RuntimeError
            If widths or dtypes do not fit.
        """
        return {key: self.linears[str(key)](value) for key, value in feat.items()}


class HeteroEmbedding(nn.Module):
    r"""An embedding for each type, with the interface of ``dgl.nn.HeteroEmbedding``.

    .. math::
        y^{(t)}_i = E_t[\mathrm{id}_i]

    Parameters
    ----------
    num_embeddings : dict of int
        Number of rows of each type. Keys are types of nodes, or triples that name a relation.
    embedding_dim : int
        Width of the rows.

    Attributes
    ----------
    embeds : nn.ModuleDict
        The embeddings, by the key as text.
    raw_keys : dict
        From the text to the key.

    Notes
    -----
    Source: M. Wang et al., "Deep Graph Library: A Graph-Centric, Highly-Performant Package for
    Graph Neural Networks", 2019, https://arxiv.org/abs/1909.01315.

    **Fused path.** There is none: each type is one look-up of torch.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import HeteroEmbedding
    >>> layer = HeteroEmbedding({"user": 2, "item": 3}, 4)
    >>> layer({"item": torch.tensor([0, 2])})["item"].shape
    torch.Size([2, 4])
    >>> layer.weight["user"].shape
    torch.Size([2, 4])
    """

    def __init__(self, num_embeddings: dict[Hashable, int], embedding_dim: int) -> None:
        super().__init__()
        self.embeds = nn.ModuleDict()
        self.raw_keys: dict[str, Hashable] = {}
        for key, count in num_embeddings.items():
            self.embeds[str(key)] = nn.Embedding(count, embedding_dim)
            self.raw_keys[str(key)] = key

    @property
    def weight(self) -> dict[Hashable, Tensor]:
        """The rows of all types, by the key that was given."""
        parts: Any = self.embeds.items()
        return {self.raw_keys[text]: part.weight for text, part in parts}

    def reset_parameters(self) -> None:
        """Draw all rows after Glorot, although they start as those of ``torch.nn.Embedding``."""
        for weight in self.weight.values():
            nn.init.xavier_uniform_(weight)

    def forward(self, input_ids: dict[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        r"""Look rows up.

        Parameters
        ----------
        input_ids : dict of Tensor
            (\*), int32 or int64, for all types or some.

        Returns
        -------
        dict of Tensor
            (\*, embedding_dim), with the keys of ``input_ids``.

        Raises
        ------
        KeyError
            If there is no embedding for a type.
        IndexError
            If an id is out of range.
        RuntimeError
            If ids are no integers.
        """
        return {key: self.embeds[str(key)](ids) for key, ids in input_ids.items()}
