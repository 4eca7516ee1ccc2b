"""The blocks of a set transformer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgl_flash.errors import dgl_warning
from dgl_flash.nn.glob.set_attention import Lengths, sets_of


def _feed_forward(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(dropout), nn.Linear(d_ff, d_model)
    )


def _warn_about_one(name: str) -> None:
    dgl_warning(
        f"if {name} is set to 1, the parameters corresponding to query and key projections would "
        "not get updated during training.",
        stacklevel=3,
    )


class MultiHeadAttention(nn.Module):
    r"""Attention of sets to sets, as ``dgl.nn.pytorch.glob.MultiHeadAttention``.

    .. math::
        \hat x &= \mathrm{LN}\left( x + W_o \big\Vert_h
            \mathrm{softmax}\left( \frac{W_q^h x \, (W_k^h y)^\top}{\sqrt{d}} \right) W_v^h y
        \right) \\
        x' &= \mathrm{LN}(\hat x + W_2 \, \mathrm{ReLU}(W_1 \hat x))

    for each set :math:`x` and its memory :math:`y`, without which attention is 0.

    Parameters
    ----------
    d_model : int
        Width of the rows.
    num_heads : int
        Heads.
    d_head : int
        :math:`d`, width of each head.
    d_ff : int
        Width between :math:`W_1` and :math:`W_2`.
    dropouth : float
        Dropout between them. Default 0.
    dropouta : float
        Held as ``dropa`` and not applied, as in DGL. Default 0.

    Attributes
    ----------
    proj_q, proj_k, proj_v, proj_o : Linear
        :math:`W_q, W_k, W_v, W_o`, without biases.
    ffn : Sequential
        :math:`W_1`, ReLU, dropout and :math:`W_2`, with biases.
    droph, dropa : Dropout
        Held and not applied, as in DGL.
    norm_in, norm_inter : LayerNorm
        The norms.

    Notes
    -----
    **Fused path.** That of :class:`SetTransformerEncoder`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_head = d_head
        self.d_ff = d_ff
        self.proj_q = nn.Linear(d_model, num_heads * d_head, bias=False)
        self.proj_k = nn.Linear(d_model, num_heads * d_head, bias=False)
        self.proj_v = nn.Linear(d_model, num_heads * d_head, bias=False)
        self.proj_o = nn.Linear(num_heads * d_head, d_model, bias=False)
        self.ffn = _feed_forward(d_model, d_ff, dropouth)
        self.droph = nn.Dropout(dropouth)
        self.dropa = nn.Dropout(dropouta)
        self.norm_in = nn.LayerNorm(d_model)
        self.norm_inter = nn.LayerNorm(d_model)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all matrices from Glorot's uniform distribution."""
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, x: Tensor, mem: Tensor, lengths_x: Lengths, lengths_mem: Lengths) -> Tensor:
        """Let the rows of each set attend to its memory.

        Parameters
        ----------
        x : Tensor
            (N, d_model), set after set.
        mem : Tensor
            (N_mem, d_model), memory after memory.
        lengths_x, lengths_mem : sequence of int or Tensor
            (S,), rows of each set, and of its memory.

        Returns
        -------
        Tensor
            (N, d_model)

        Raises
        ------
        ValueError
            If lengths do not fit the rows, or each other.
        RuntimeError
            If rows have another dtype or width than the module.
        """
        pairing = sets_of(lengths_x, x.device).pairing(sets_of(lengths_mem, x.device))
        heads = (self.num_heads, self.d_head)
        q = self.proj_q(x).unflatten(-1, heads) * self.d_head**-0.5
        k, v = self.proj_k(mem).unflatten(-1, heads), self.proj_v(mem).unflatten(-1, heads)
        x = self.norm_in(x + self.proj_o(pairing.attend(q, k, v).flatten(1)))
        return self.norm_inter(x + self.ffn(x))


class SetAttentionBlock(nn.Module):
    """Attention of each set to itself, as ``dgl.nn.pytorch.glob.SetAttentionBlock``.

    Parameters
    ----------
    d_model, num_heads, d_head, d_ff, dropouth, dropouta
        As in :class:`MultiHeadAttention`.

    Attributes
    ----------
    mha : MultiHeadAttention
        The attention.

    Notes
    -----
    **Fused path.** That of :class:`SetTransformerEncoder`.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.mha = MultiHeadAttention(d_model, num_heads, d_head, d_ff, dropouth, dropouta)

    def forward(self, feat: Tensor, lengths: Lengths) -> Tensor:
        """Attend within each set.

        Parameters
        ----------
        feat : Tensor
            (N, d_model)
        lengths : sequence of int or Tensor
            (S,), rows of each set.

        Returns
        -------
        Tensor
            (N, d_model)
        """
        sets = sets_of(lengths, feat.device)
        return self.mha(feat, feat, sets, sets)


class InducedSetAttentionBlock(nn.Module):
    """Attention by way of a few learned rows, as ``dgl.nn.pytorch.glob.InducedSetAttentionBlock``.

    The learned rows attend to each set, which attends to what they have found.

    Parameters
    ----------
    m : int
        Number of learned rows.
    d_model, num_heads, d_head, d_ff, dropouth, dropouta
        As in :class:`MultiHeadAttention`.

    Attributes
    ----------
    inducing_points : Parameter
        (m, d_model)
    mha : ModuleList
        The two attentions.

    Notes
    -----
    **Fused path.** That of :class:`SetTransformerEncoder`.
    """

    def __init__(
        self,
        m: int,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.m = m
        if m == 1:
            _warn_about_one("m")
        self.d_model = d_model
        self.inducing_points = nn.Parameter(torch.empty(m, d_model))
        self.mha = nn.ModuleList(
            MultiHeadAttention(d_model, num_heads, d_head, d_ff, dropouth, dropouta)
            for _ in range(2)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the learned rows from Glorot's uniform distribution."""
        nn.init.xavier_uniform_(self.inducing_points)

    def forward(self, feat: Tensor, lengths: Lengths) -> Tensor:
        """Attend within each set, by way of the learned rows.

        Parameters
        ----------
        feat : Tensor
            (N, d_model)
        lengths : sequence of int or Tensor
            (S,), rows of each set.

        Returns
        -------
        Tensor
            (N, d_model)
        """
        sets = sets_of(lengths, feat.device)
        points = sets.alike(self.m)
        query = self.inducing_points.repeat(len(sets), 1)
        memory = self.mha[0](query, feat, points, sets)
        return self.mha[1](feat, memory, sets, points)

    def extra_repr(self) -> str:
        """Name the shape of the learned rows."""
        return f"InducedVector: {tuple(self.inducing_points.shape)}"


class PMALayer(nn.Module):
    """Pooling by attention of a few learned rows, as ``dgl.nn.pytorch.glob.PMALayer``.

    Parameters
    ----------
    k : int
        Number of learned rows.
    d_model, num_heads, d_head, d_ff, dropouth, dropouta
        As in :class:`MultiHeadAttention`.

    Attributes
    ----------
    seed_vectors : Parameter
        (k, d_model)
    mha : MultiHeadAttention
        The attention.
    ffn : Sequential
        What the rows pass before: Linear, ReLU, dropout, Linear.

    Notes
    -----
    **Fused path.** That of :class:`SetTransformerEncoder`.
    """

    def __init__(
        self,
        k: int,
        d_model: int,
        num_heads: int,
        d_head: int,
        d_ff: int,
        dropouth: float = 0.0,
        dropouta: float = 0.0,
    ) -> None:
        super().__init__()
        self.k = k
        if k == 1:
            _warn_about_one("k")
        self.d_model = d_model
        self.seed_vectors = nn.Parameter(torch.empty(k, d_model))
        self.mha = MultiHeadAttention(d_model, num_heads, d_head, d_ff, dropouth, dropouta)
        self.ffn = _feed_forward(d_model, d_ff, dropouth)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the learned rows from Glorot's uniform distribution."""
        nn.init.xavier_uniform_(self.seed_vectors)

    def forward(self, feat: Tensor, lengths: Lengths) -> Tensor:
        """Let the learned rows attend to each set.

        Parameters
        ----------
        feat : Tensor
            (N, d_model)
        lengths : sequence of int or Tensor
            (S,), rows of each set.

        Returns
        -------
        Tensor
            (S * k, d_model)
        """
        sets = sets_of(lengths, feat.device)
        query = self.seed_vectors.repeat(len(sets), 1)
        return self.mha(query, self.ffn(feat), sets.alike(self.k), sets)

    def extra_repr(self) -> str:
        """Name the shape of the learned rows."""
        return f"SeedVector: {tuple(self.seed_vectors.shape)}"
