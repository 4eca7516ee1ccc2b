"""LapPosEncoder: learned positions of nodes, from eigenvectors of the Laplacian."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn


class LapPosEncoder(nn.Module):
    r"""Encoding of Laplacian positions, with the interface of ``dgl.nn.LapPosEncoder``.

    .. math::
        z_v = \mathrm{MLP} \Big( \sum_{i=1}^{k} f \big( W (\phi_{vi} \, \Vert \, \lambda_{vi})
            \big) \Big)

    for the components :math:`\phi` of :math:`k` eigenvectors at a node and their eigenvalues
    :math:`\lambda`, of which those that are NaN are left out. :math:`f` is a transformer, in which
    the eigenvectors of a node attend to each other, or takes each one by itself.

    Parameters
    ----------
    model_type : {"Transformer", "DeepSet"}
        What :math:`f` is.
    num_layer : int
        Its layers, :math:`W` being the first of a DeepSet.
    k : int
        Number of eigenvectors.
    dim : int
        Width of the result.
    n_head : int
        Heads of the transformer. Default 1.
    batch_norm : bool
        Whether the k pairs are normalised over the nodes first. Default False.
    num_post_layer : int
        Layers of the MLP; 0: there is none. Default 0.

    Attributes
    ----------
    linear : Linear
        :math:`W`, from 2 to ``dim``, or to ``2 * dim`` in a DeepSet of more than one layer.
    pe_encoder : TransformerEncoder or Sequential
        :math:`f`.
    raw_norm : BatchNorm1d or None
        The norm.
    post_mlp : Sequential or None
        The MLP.

    Raises
    ------
    ValueError
        If there is no such ``model_type``.

    Notes
    -----
    Source: L. Rampášek, M. Galkin, V. P. Dwivedi, A. T. Luu, G. Wolf, D. Beaini, "Recipe for a
    General, Powerful, Scalable Graph Transformer", NeurIPS 2022, https://arxiv.org/abs/2205.12454.

    Where DGL is wrong: a DeepSet can be trained; DGL overwrites what its backward needs. The module
    works in other dtypes than float32, and converts eigenvalues and eigenvectors to its own. No
    warning comes from an odd ``n_head``, such as the default.

    **Fused path.** There is none of this package. Without gradients and after ``eval()``, torch
    runs each layer of the transformer in its fused one.

    Examples
    --------
    >>> import torch
    >>> from dgl_flash.nn import LapPosEncoder
    >>> eigvals = torch.tensor([0.7, 1.4, float("nan")]).expand(5, 3)
    >>> eigvecs = eigvals * torch.randn(5, 3)
    >>> LapPosEncoder("DeepSet", num_layer=2, k=3, dim=16)(eigvals, eigvecs).shape
    torch.Size([5, 16])
    """

    def __init__(
        self,
        model_type: str,
        num_layer: int,
        k: int,
        dim: int,
        n_head: int = 1,
        batch_norm: bool = False,
        num_post_layer: int = 0,
    ) -> None:
        super().__init__()
        self.model_type = model_type
        self.linear = nn.Linear(2, dim)
        self.pe_encoder: nn.Module
        if model_type == "Transformer":
            layer = nn.TransformerEncoderLayer(d_model=dim, nhead=n_head, batch_first=True)
            # Nested tensors warn, need an even number of heads, and compute the same.
            self.pe_encoder = nn.TransformerEncoder(layer, num_layer, enable_nested_tensor=False)
        elif model_type == "DeepSet":
            if num_layer == 1:
                self.pe_encoder = nn.Sequential(nn.ReLU())
            else:
                # The first draw is in vain, as in DGL: the same seed gives the same weights.
                self.linear = nn.Linear(2, 2 * dim)
                widths = [2 * dim] * max(num_layer - 1, 1) + [dim]
                self.pe_encoder = nn.Sequential(nn.ReLU(), *_layers(widths))
        else:
            raise ValueError(
                f"model_type '{model_type}' is not allowed, must be 'Transformer' or 'DeepSet'."
            )
        self.raw_norm = nn.BatchNorm1d(k) if batch_norm else None
        self.post_mlp = None
        if num_post_layer > 0:
            widths = [dim, *[2 * dim] * (num_post_layer - 1), dim]
            self.post_mlp = nn.Sequential(*_layers(widths))

    def forward(self, eigvals: Tensor, eigvecs: Tensor) -> Tensor:
        r"""Encode the positions of all nodes.

        Parameters
        ----------
        eigvals : Tensor
            :math:`\lambda`, (N, k), as ``dgl.LapPE`` gives it, padded with NaN.
        eigvecs : Tensor
            :math:`\phi`, (N, k), padded with NaN.

        Returns
        -------
        Tensor
            (N, dim)

        Raises
        ------
        TypeError
            If an argument is no tensor.
        RuntimeError
            If their shapes differ.
        ValueError
            If k is another than that of ``batch_norm``.
        """
        pairs = torch.stack((eigvecs, eigvals), dim=2).to(next(self.parameters()).dtype)
        is_missing = pairs.isnan()
        pairs = pairs.masked_fill(is_missing, 0)
        padding = is_missing[:, :, 1]
        if self.raw_norm is not None:
            pairs = self.raw_norm(pairs)
        found = self.linear(pairs)
        if self.model_type == "Transformer":
            # Not every kernel of torch gives numbers to rows that see nothing; none is used below.
            hidden = padding & ~padding.all(dim=1, keepdim=True)
            found = self.pe_encoder(found, src_key_padding_mask=hidden)
        else:
            found = self.pe_encoder(found)
        found = found.masked_fill(padding.unsqueeze(-1), 0).sum(dim=1)
        return found if self.post_mlp is None else self.post_mlp(found)


def _layers(widths: list[int]) -> list[nn.Module]:
    """Linear maps from each width to the next, with a ReLU after each."""
    layers: list[nn.Module] = []
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return layers
