"""TransR, which brings entities into the space of the relation first."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import computes_as


class TransR(nn.Module):
    r"""Score triples in spaces of the relations, with the interface of ``dgl.nn.TransR``.

    .. math::
        s(h, r, t) = -\| h M_r + r - t M_r \|_p = -\| (h - t) M_r + r \|_p

    Parameters
    ----------
    num_rels : int
        R, number of relations.
    rfeats : int
        Width of the relations.
    nfeats : int
        Width of the entities.
    p : int or float
        Order of the norm, 1 by default.

    Attributes
    ----------
    rel_emb : nn.Embedding
        (R, rfeats), the relations.
    rel_project : nn.Embedding
        (R, nfeats * rfeats), the matrices of the relations, row by row.

    Notes
    -----
    Source: Y. Lin, Z. Liu, M. Sun, Y. Liu, X. Zhu, "Learning Entity and Relation Embeddings for
    Knowledge Graph Completion", AAAI 2015, https://ojs.aaai.org/index.php/AAAI/article/view/9491.

    Head and tail have one matrix, so their difference is multiplied once; where both are far from
    0 and close to each other it also loses less to rounding.

    **Fused path.** With more triples than relations the triples are grouped by relation: on CUDA
    one batched product serves all, see ``dgl_flash.ops.gather_mm``, on the CPU there is a product a
    relation. No matrix is copied for each triple; in DGL those copies are a tensor of shape
    (E, nfeats, rfeats), and so are their gradients. With at most R triples the copies are no larger
    than ``rel_project`` and are made. They also are where ``rel_project`` has hooks, is replaced,
    or does more than look rows up, as with ``max_norm``: it is called for each triple then.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import TransR
    >>> scorer = TransR(num_rels=3, rfeats=2, nfeats=4)
    >>> scorer(torch.randn(5, 4), torch.randn(5, 4), torch.tensor([0, 2, 1, 1, 0])).shape
    torch.Size([5])
    """

    def __init__(self, num_rels: int, rfeats: int, nfeats: int, p: float = 1) -> None:
        super().__init__()
        self.rel_emb = nn.Embedding(num_rels, rfeats)
        self.rel_project = nn.Embedding(num_rels, nfeats * rfeats)
        self.rfeats = rfeats
        self.nfeats = nfeats
        self.p = p

    def reset_parameters(self) -> None:
        """Draw relations and matrices as ``torch.nn.Embedding`` does."""
        self.rel_emb.reset_parameters()
        self.rel_project.reset_parameters()

    def _project(self, gap: Tensor, rels: Tensor) -> Tensor:
        """Multiply each row by the matrix of its relation."""
        shape = (-1, self.nfeats, self.rfeats)
        table = self.rel_project
        # Up to R copies of matrices are no more than the parameter holds, and one product is
        # faster than grouping what hardly forms groups.
        if not _is_table(table) or rels.numel() <= table.num_embeddings:
            matrices = table(rels).reshape(shape)
            return (gap.unsqueeze(1) @ matrices).squeeze(1)
        if gap.shape[0] == 1:
            gap = gap.expand(rels.numel(), -1)
        return ops.gather_mm(gap, table.weight.reshape(shape), idx_b=rels.flatten())

    def forward(self, h_head: Tensor, h_tail: Tensor, rels: Tensor) -> Tensor:
        """Score triples.

        Parameters
        ----------
        h_head, h_tail : Tensor
            (E, nfeats), the entities. One row, (1, nfeats), stands for all triples.
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
            If shapes do not fit, entities and module differ in dtype, or relations are no integers.
        ValueError, TypeError
            Where triples are grouped, in place of the RuntimeError about entities that do not fit
            the relations, or the module in dtype.
        TypeError
            If an argument is no tensor.
        """
        h_rel = self.rel_emb(rels)
        projected = self._project(h_head - h_tail, rels)
        distance: Tensor = torch.norm(projected + h_rel, p=self.p, dim=-1)
        return -distance


def _is_table(embedding: nn.Embedding) -> bool:
    """Whether a call does nothing but look rows up, forward and backward."""
    return computes_as(embedding, nn.Embedding) and not (
        embedding.max_norm is not None
        or embedding.padding_idx is not None
        or embedding.scale_grad_by_freq
        or embedding.sparse
    )
