"""TransE, which reads a relation as a shift."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TransE(nn.Module):
    r"""Score triples by a shift, with the interface of ``dgl.nn.TransE``.

    .. math::
        s(h, r, t) = -\| h + r - t \|_p

    Parameters
    ----------
    num_rels : int
        R, number of relations.
    feats : int
        D, width of entities and relations.
    p : int or float
        Order of the norm, 1 by default.

    Attributes
    ----------
    rel_emb : nn.Embedding
        (R, D), the relations.

    Notes
    -----
    Source: A. Bordes, N. Usunier, A. Garcia-Duran, J. Weston, O. Yakhnenko, "Translating
    Embeddings for Modeling Multi-relational Data", NeurIPS 2013,
    https://papers.nips.cc/paper/2013/hash/1cecc7a77928ca8133fa24680a88d2f9-Abstract.html.

    **Fused path.** There is none: rows come gathered, and plain torch makes three tensors of shape
    (E, D), the relations of the triples among them. No relation has a matrix.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import TransE
    >>> scorer = TransE(num_rels=3, feats=4)
    >>> scorer(torch.randn(5, 4), torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])).shape
    torch.Size([5])
    """

    def __init__(self, num_rels: int, feats: int, p: float = 1) -> None:
        super().__init__()
        self.rel_emb = nn.Embedding(num_rels, feats)
        self.p = p

    def reset_parameters(self) -> None:
        """Draw the relations as ``torch.nn.Embedding`` does."""
        self.rel_emb.reset_parameters()

    def forward(self, h_head: Tensor, h_tail: Tensor, rels: Tensor) -> Tensor:
        """Score triples.

        Parameters
        ----------
        h_head, h_tail : Tensor
            (E, D), the entities. One row, (1, D), stands for all triples.
        rels : Tensor
            (E,), int32 or int64, values in [0, R). One relation, (1,), stands for all triples.

        Returns
        -------
        Tensor
            (E,), at most 0: the closer, the more likely.

        Raises
        ------
        IndexError
            If a relation is out of range.
        RuntimeError
            If shapes do not fit, or relations are no integers.
        TypeError
            If an argument is no tensor.
        """
        distance: Tensor = torch.norm(h_head + self.rel_emb(rels) - h_tail, p=self.p, dim=-1)
        return -distance
