"""Linear maps and embeddings for each type of a heterogeneous graph."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.missing import attribute_of

__all__ = ["HeteroEmbedding", "HeteroLinear"]

__getattr__ = attribute_of(__name__)


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
