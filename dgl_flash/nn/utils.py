"""Modules that are no convolutions, under the file name they have in DGL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from dgl_flash import ops
from dgl_flash.nn.common import degree_scale, read_graph, require_one_node_set
from dgl_flash.nn.missing import attribute_of

__all__ = ["LabelPropagation"]

__getattr__ = attribute_of(__name__)


class LabelPropagation(nn.Module):
    r"""Label propagation, with the interface of ``dgl.nn.LabelPropagation``.

    .. math::
        Y^{(t+1)} = \alpha \hat A Y^{(t)} + (1 - \alpha) Y^{(0)}

    where :math:`Y^{(0)}` has the given labels, and 0 for the nodes that are masked out.

    Parameters
    ----------
    k : int
        Number of steps.
    alpha : float
        :math:`\alpha` in [0, 1].
    norm_type : {"sym", "row"}
        :math:`\hat A = D_{in}^{-1/2} A D_{out}^{-1/2}` (default) or :math:`D_{in}^{-1} A`. A degree
        of 0 counts as 1.
    clamp : bool
        Clip to [0, 1] after each step. Default True.
    normalize : bool
        Divide each row by the sum of its absolute values after each step. Default False.
    reset : bool
        Put the given labels back after each step. Default False.

    Notes
    -----
    Source: X. Zhu, Z. Ghahramani, "Learning from Labeled and Unlabeled Data with Label
    Propagation", technical report CMU-CALD-02-107, 2002,
    https://mlg.eng.cam.ac.uk/zoubin/papers/CMU-CALD-02-107.pdf.

    **Fused path.** The sum over the neighbours is one CUDA kernel a step (``dgl_flash.ops.spmm``)
    with :math:`\alpha` and both normalisations in it; no tensor of the size of the edges is made.
    On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import LabelPropagation
    >>> graph = dgl_flash.graph(([0, 1, 2, 3], [1, 2, 3, 0]))
    >>> propagate = LabelPropagation(k=5, alpha=0.5, clamp=False, normalize=True)
    >>> labels, known = torch.tensor([0, 1, 2, 0]), torch.tensor([True, True, True, False])
    >>> propagate(graph, labels, known).shape
    torch.Size([4, 3])
    """

    def __init__(
        self,
        k: int,
        alpha: float,
        norm_type: str = "sym",
        clamp: bool = True,
        normalize: bool = False,
        reset: bool = False,
    ) -> None:
        super().__init__()
        self.k = k
        self.alpha = alpha
        self.norm_type = norm_type
        self.clamp = clamp
        self.normalize = normalize
        self.reset = reset

    def forward(self, g: Any, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Propagate labels.

        Parameters
        ----------
        g : DGLGraph or dgl_flash.Graph
            A homogeneous graph; it may stay on the CPU while the labels are on a GPU.
        labels : Tensor
            (N,) or (N, 1), int64: classes. Or (N, C): one-hot classes, or C labels each; of any
            dtype, it becomes float32.
        mask : Tensor, optional
            (N,), bool: the nodes whose labels are given. Default: all.

        Returns
        -------
        Tensor
            (N, C), float32.

        Raises
        ------
        ValueError
            If ``norm_type`` is unknown, or the labels do not fit the graph.
        IndexError
            If the mask does not fit the labels.
        RuntimeError
            If classes are negative or no int64.
        DGLError
            If the graph has two sets of nodes.
        TypeError
            If ``g`` is no graph.
        """
        struct = read_graph(self, g, labels)
        if labels.dim() > 1 and labels.shape[1] > 1:
            labels = labels.to(torch.float32)
        else:
            labels = functional.one_hot(labels.view(-1)).to(torch.float32)
        start = labels
        if mask is not None:
            start = torch.zeros_like(labels)
            start[mask] = labels[mask]
        if self.norm_type not in ("sym", "row"):
            raise ValueError(f"Expect norm_type to be 'sym' or 'row', got {self.norm_type}")
        require_one_node_set(self, g)
        symmetric = self.norm_type == "sym"
        src_scale = degree_scale(struct, "src", -0.5, labels) if symmetric else None
        dst_scale = degree_scale(struct, "dst", -0.5 if symmetric else -1, labels)
        dst_scale = self.alpha * dst_scale
        kept = (1 - self.alpha) * start
        found = start
        for _ in range(self.k):
            found = kept + ops.spmm(struct, found, src_scale=src_scale, dst_scale=dst_scale)
            if self.clamp:
                found = found.clamp_(0.0, 1.0)
            if self.normalize:
                found = functional.normalize(found, p=1)
            if self.reset:
                found[mask] = labels[mask]
        return found
