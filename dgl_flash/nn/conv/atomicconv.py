"""AtomicConv: sums of radial filters over the neighbours of each atom type."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.common import read_graph, require_rows


def _own(values: Tensor) -> nn.Parameter:
    """A copy: training must not change what the caller passed, nor two layers share it."""
    return nn.Parameter(values.detach().clone().reshape(-1, 1, 1))


class RadialPooling(nn.Module):
    r"""Radial filters of distances, with the interface of DGL's.

    .. math::
        e^k(r) = \exp \big( -\gamma_k (r - r_k)^2 \big) \cdot
            \tfrac{1}{2} \big( \cos (\pi r / c_k) + 1 \big) \, [r \le c_k]

    Parameters
    ----------
    interaction_cutoffs, rbf_kernel_means, rbf_kernel_scaling : Tensor
        (K,), the initial :math:`c`, :math:`r` and :math:`\gamma`, which are learned. They are
        copied.

    Attributes
    ----------
    interaction_cutoffs, rbf_kernel_means, rbf_kernel_scaling : Parameter
        (K, 1, 1)
    """

    def __init__(
        self, interaction_cutoffs: Tensor, rbf_kernel_means: Tensor, rbf_kernel_scaling: Tensor
    ) -> None:
        super().__init__()
        self.interaction_cutoffs = _own(interaction_cutoffs)
        self.rbf_kernel_means = _own(rbf_kernel_means)
        self.rbf_kernel_scaling = _own(rbf_kernel_scaling)

    def forward(self, distances: Tensor) -> Tensor:
        """Filter the distances.

        Parameters
        ----------
        distances : Tensor
            (E, 1)

        Returns
        -------
        Tensor
            (K, E, 1)
        """
        radial = torch.exp(-self.rbf_kernel_scaling * (distances - self.rbf_kernel_means) ** 2)
        cosine = 0.5 * (torch.cos(math.pi * distances / self.interaction_cutoffs) + 1)
        within = distances <= self.interaction_cutoffs
        return radial * torch.where(within, cosine, torch.zeros_like(cosine))


class AtomicConv(nn.Module):
    r"""Atomic convolution, with the interface of ``dgl.nn.AtomicConv``.

    .. math::
        h'_{v,t,k} = \sum_{e=(u \to v)} [z_u = t] \; e^k(r_e)

    with :math:`z_u` the atomic number of a source, :math:`r_e` the distance along an edge and
    :math:`e^k` the filters of :class:`RadialPooling`. Without ``features_to_use`` the features
    themselves take the place of :math:`[z_u = t]`. Distance and cut-off are multiplied, as in the
    authors' code; in the paper the cut-off stands in the exponent.

    Parameters
    ----------
    interaction_cutoffs, rbf_kernel_means, rbf_kernel_scaling : Tensor
        (K,), see :class:`RadialPooling`.
    features_to_use : Tensor, optional
        (T,), the atomic numbers to tell apart. Not learned, but in the ``state_dict``.

    Notes
    -----
    Source: J. Gomes, B. Ramsundar, E. N. Feinberg, V. S. Pande, "Atomic Convolutional Networks for
    Predicting Protein-Ligand Binding Affinity", 2017, https://arxiv.org/abs/1703.10603.

    **Fused path.** Products and sum run in one CUDA kernel (``dgl_flash.ops.u_mul_e_sum``), so that
    no tensor of shape (E, T, K) exists. The filters (E, K) and what autograd keeps of them are in
    plain torch. On the CPU all is, without such a tensor either.

    DGL keeps the passed tensors themselves as parameters, so that two layers made from the same
    tensors are trained as one; here they are copied. Features of integers are an error; DGL cuts
    the filters down to integers for them. Graphs without edges, blocks and bipartite graphs, on
    which DGL fails, work.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import AtomicConv
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> conv = AtomicConv(torch.ones(3) * 2, torch.ones(3), torch.ones(3), torch.tensor([1.0, 6.0]))
    >>> conv(graph, torch.tensor([[1.0], [6.0], [6.0], [1.0]]), torch.rand(4, 1)).shape
    torch.Size([4, 6])
    """

    features_to_use: nn.Parameter | None

    def __init__(
        self,
        interaction_cutoffs: Tensor,
        rbf_kernel_means: Tensor,
        rbf_kernel_scaling: Tensor,
        features_to_use: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.radial_pooling = RadialPooling(
            interaction_cutoffs=interaction_cutoffs,
            rbf_kernel_means=rbf_kernel_means,
            rbf_kernel_scaling=rbf_kernel_scaling,
        )
        self.num_channels = 1 if features_to_use is None else len(features_to_use)
        if features_to_use is None:
            self.features_to_use = None
        else:
            kept = features_to_use.detach().clone()
            self.features_to_use = nn.Parameter(kept, requires_grad=False)

    def forward(self, graph: Any, feat: Tensor, distances: Tensor) -> Tensor:
        r"""Sum the filtered distances over the neighbours of each type.

        Parameters
        ----------
        graph : DGLGraph, DGLBlock or dgl_flash.Graph
            The graph; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N_src, 1), atomic numbers; (N_src, T) without ``features_to_use``.
        distances : Tensor
            (E, 1)

        Returns
        -------
        Tensor
            (N_dst, T * K), the filters of a type side by side.

        Raises
        ------
        DGLError
            If node features or distances do not fit the graph.
        TypeError
            If ``graph`` is no graph, or the features are integers.
        """
        struct = read_graph(self, graph, feat)
        require_rows(distances, struct.num_edges, "edges")
        filters = self.radial_pooling(distances).to(feat).transpose(0, 1).squeeze(-1)  # (E, K)
        if self.features_to_use is not None:
            feat = (feat == self.features_to_use).to(feat)
        # The filters come first, as heads: so each of them is one weight for all types of a row.
        summed = ops.u_mul_e_sum(struct, feat.unsqueeze(1), filters.unsqueeze(-1))
        return summed.transpose(1, 2).flatten(1)
