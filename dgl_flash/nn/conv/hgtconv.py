"""HGTConv, the layer of the heterogeneous graph transformer."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as, expand_as_pair, read_graph
from dgl_flash.nn.linear import TypedLinear
from dgl_flash.ops.relational_attention import relational_attention
from dgl_flash.structure import GraphStructure


class HGTConv(nn.Module):
    r"""Heterogeneous graph transformer convolution, with the interface of ``dgl.nn.HGTConv``.

    The types of nodes :math:`\tau` and of edges :math:`\phi` are tensors beside a homogeneous
    graph, as ``dgl.to_homogeneous`` makes them. For an edge :math:`e = (u \to v)`, in each of
    :math:`H` heads,

    .. math::
        k_u = x_u K_{\tau(u)}, \quad q_v = x_v Q_{\tau(v)}, \quad m_u = x_u V_{\tau(u)}

        \alpha_e = \mathrm{softmax}_{e \in \mathrm{in}(v)} \left(
            \frac{\mu_{\phi(e)}}{\sqrt{D}} \, \langle k_u A_{\phi(e)}, \, q_v \rangle \right),
        \qquad
        z_v = \sum_{e \in \mathrm{in}(v)} \alpha_e \, m_u M_{\phi(e)}

    and, with the heads side by side and a gate :math:`g_v = \mathrm{sigmoid}(s_{\tau(v)})`,

    .. math::
        x'_v = g_v \, \mathrm{dropout}(z_v W_{\tau(v)}) + (1 - g_v) \, x_v

    Parameters
    ----------
    in_size : int
        Input width.
    head_size : int
        Output width of one head, :math:`D`.
    num_heads : int
        Number of heads, :math:`H`; the output is :math:`H D` wide.
    num_ntypes : int
        Number of types of nodes, T.
    num_etypes : int
        Number of types of edges, R.
    dropout : float
        Rate of the dropout before the gate. Default 0.2.
    use_norm : bool
        Normalise the result. Default False.

    Attributes
    ----------
    linear_k, linear_q, linear_v, linear_a : TypedLinear
        :math:`K, Q, V, W`.
    relation_pri : ParameterList
        :math:`\mu`, for each head (R,).
    relation_att, relation_msg : ModuleList
        :math:`A` and :math:`M`, for each head a TypedLinear.
    skip : Parameter
        :math:`s`, (T,).
    residual_w : Parameter
        (in_size, H * D), by which :math:`x_v` is multiplied in the last line; only if the widths
        differ.
    norm : LayerNorm
        With ``use_norm=True`` only.

    Notes
    -----
    Source: Z. Hu, Y. Dong, K. Wang, Y. Sun, "Heterogeneous Graph Transformer", WWW 2020,
    https://arxiv.org/abs/2003.01332. As in DGL, and unlike in the paper, :math:`\mu` depends on the
    relation alone and no activation stands before :math:`W`.

    **Fused path.** Key and message of an edge depend on its source and its relation only: they are
    made once for each such pair that the graph has, by batched products over all relations and
    heads, with :math:`\mu / \sqrt{D}` inside the matrices. Scores, softmax and sum then run in the
    CUDA kernel of ``dgl_flash.ops.dot_attention``, over edges that lead from pairs to nodes. No
    tensor has a row an edge, where those of DGL all have; there are min(E, N R) pairs at most. They
    stay with the graph and with the tensor ``etype``: pass the same tensor again rather than a
    fresh copy. A GPU is waited for when the two are seen for the first time, never after.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import HGTConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = HGTConv(8, 5, num_heads=2, num_ntypes=2, num_etypes=3)
    >>> ntype, etype = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 2, 1])
    >>> conv(graph, torch.randn(4, 8), ntype, etype).shape
    torch.Size([4, 10])
    """

    def __init__(
        self,
        in_size: int,
        head_size: int,
        num_heads: int,
        num_ntypes: int,
        num_etypes: int,
        dropout: float = 0.2,
        use_norm: bool = False,
    ) -> None:
        super().__init__()
        self.in_size = in_size
        self.head_size = head_size
        self.num_heads = num_heads
        self.sqrt_d = math.sqrt(head_size)
        self.use_norm = use_norm
        self.presorted = False  # what the last call said, for `message`
        width = num_heads * head_size
        self.linear_k = TypedLinear(in_size, width, num_ntypes)
        self.linear_q = TypedLinear(in_size, width, num_ntypes)
        self.linear_v = TypedLinear(in_size, width, num_ntypes)
        self.linear_a = TypedLinear(width, width, num_ntypes)
        self.relation_pri = nn.ParameterList(
            [nn.Parameter(torch.ones(num_etypes)) for _ in range(num_heads)]
        )
        self.relation_att, self.relation_msg = (
            nn.ModuleList(TypedLinear(head_size, head_size, num_etypes) for _ in range(num_heads))
            for _ in range(2)
        )
        self.skip = nn.Parameter(torch.ones(num_ntypes))
        self.drop = nn.Dropout(dropout)
        if use_norm:
            self.norm = nn.LayerNorm(width)
        if in_size != width:
            self.residual_w = nn.Parameter(torch.empty(in_size, width))
            nn.init.xavier_uniform_(self.residual_w)

    def forward(
        self, g: Any, x: Tensor, ntype: Tensor, etype: Tensor, *, presorted: bool = False
    ) -> Tensor:
        """Attend over the in-edges of every node.

        Parameters
        ----------
        g : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU. On a block the first
            rows are the destinations.
        x : Tensor
            (N, in_size)
        ntype : Tensor
            (N,), int32 or int64, type of each node, values in [0, T).
        etype : Tensor
            (E,), int32 or int64, type of each edge, values in [0, R).
        presorted : bool
            Promise that ``ntype`` ascends, which saves sorts. Edges may have any order.

        Returns
        -------
        Tensor
            (N_dst, H * D)

        Raises
        ------
        TypeError
            If ``g`` is no graph, ``x`` no tensor or its dtype not that of the module, or types are
            no integers.
        ValueError
            If features or types do not fit the graph.
        IndexError
            If a type is out of range.
        DGLError
            If there is not one type an edge.
        """
        self.presorted = presorted
        struct = read_graph(self, g, x)
        if isinstance(x, tuple):
            raise TypeError("HGTConv: expected `x` to be one tensor, got a tuple")
        if ntype.shape != x.shape[:1]:
            raise ValueError(
                f"HGTConv: expected `ntype` of shape (N,) = ({x.shape[0]},), one type a row of "
                f"`x`, got {tuple(ntype.shape)}"
            )
        ntype = ntype.to(x.device)
        (_, x_dst), (_, dst_type) = (expand_as_pair(part, g) for part in (x, ntype))
        k, v = (
            linear(x, ntype, presorted).unflatten(1, (self.num_heads, self.head_size))
            for linear in (self.linear_k, self.linear_v)
        )
        q = self.linear_q(x_dst, dst_type, presorted).unflatten(1, k.shape[1:])
        parts = (*self.relation_att, *self.relation_msg)
        if all(computes_as(part, TypedLinear) for part in parts):
            h = self._attend(struct, q, k, v, etype)
        else:
            h = self._attend_by_call(struct, q, k, v, etype.to(x.device))
        h = self.drop(self.linear_a(h.flatten(1), dst_type, presorted))
        # Indexing would add up the gradients of a type one by one.
        gate = F.embedding(dst_type, self.skip.unsqueeze(1)).sigmoid()
        kept = x_dst if x_dst.shape == h.shape else x_dst @ self.residual_w
        h = h * gate + kept * (1 - gate)
        return self.norm(h) if self.use_norm else h

    def _attend(
        self, struct: GraphStructure, q: Tensor, k: Tensor, v: Tensor, etype: Tensor
    ) -> Tensor:
        att, msg = _matrices(self.relation_att), _matrices(self.relation_msg)
        factor = torch.stack(list(self.relation_pri), 1) / self.sqrt_d  # (R, H)
        att = att * factor[:, :, None, None]
        return relational_attention(struct, q, k, v, att, msg, etype, scale=1.0)

    def _attend_by_call(
        self, struct: GraphStructure, q: Tensor, k: Tensor, v: Tensor, etype: Tensor
    ) -> Tensor:
        """Call the matrices of the relations, on all edges."""
        ends = ops.copy_u(struct, k), ops.copy_v(struct, q), ops.copy_u(struct, v)
        scores, messages = self._of_edges(*ends, etype)
        attention = ops.edge_softmax(struct, scores)
        return ops.copy_e_sum(struct, messages * attention.unsqueeze(-1))

    def _of_edges(self, k: Tensor, q: Tensor, v: Tensor, etype: Tensor) -> tuple[Tensor, Tensor]:
        """Scores (E, H) and messages (E, H, D) from what the ends of each edge have, (E, H, D)."""
        scores, messages = [], []
        for head, (att, msg) in enumerate(zip(self.relation_att, self.relation_msg, strict=True)):
            keys = att(k[:, head], etype, self.presorted)
            factor = self.relation_pri[head][etype] / self.sqrt_d
            scores.append((keys * q[:, head]).sum(-1) * factor)
            messages.append(msg(v[:, head], etype, self.presorted))
        return torch.stack(scores, 1), torch.stack(messages, 1)

    def message(self, edges: Any) -> dict[str, Tensor]:
        """Message function for ``apply_edges``, as DGL's layer has it; not used by ``forward``.

        Parameters
        ----------
        edges : EdgeBatch
            With ``"k"`` and ``"v"`` at the sources, ``"q"`` at the destinations, (N, H, D) each,
            and ``"etype"`` on the edges.

        Returns
        -------
        dict of Tensor
            Scores ``"a"``, (E, H), and messages ``"m"``, (E, H, D).
        """
        ends = edges.src["k"], edges.dst["q"], edges.src["v"]
        scores, messages = self._of_edges(*ends, edges.data["etype"])
        return {"a": scores, "m": messages}


def _matrices(parts: Iterable[Any]) -> Tensor:
    """Matrices of all relations from those of each head: (R, H, D, D)."""
    return torch.stack([part.get_weight() for part in parts], 1)
