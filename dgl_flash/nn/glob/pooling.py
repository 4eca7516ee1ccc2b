"""Sum, mean and maximum over the nodes of each graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from dgl_flash.nn.glob.common import read_members, reduce_members


class SumPooling(nn.Module):
    r"""Sum over the nodes of each graph, with the interface of ``dgl.nn.SumPooling``.

    .. math::
        r_i = \sum_{v \in G_i} h_v

    Notes
    -----
    Source: K. Xu, W. Hu, J. Leskovec, S. Jegelka, "How Powerful are Graph Neural Networks?", ICLR
    2019, https://arxiv.org/abs/1810.00826.

    The graph is only read: features are never written into it, not even for a moment.

    **Fused path.** One CUDA kernel (``dgl_flash.ops.gspmm``) reads each row once and shares the
    rows of a large graph among blocks; two runs do not differ in a bit. The host waits for nothing
    if the graph is on the CPU.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import SumPooling
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> SumPooling()(graph, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    tensor([[ 9., 12.]])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        r"""Add up the rows of each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*)

        Returns
        -------
        Tensor
            (B, \*), zero for a graph without nodes.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor of floats.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        """
        return reduce_members(read_members(self, graph, feat), "sum", feat)


class AvgPooling(nn.Module):
    r"""Mean over the nodes of each graph, with the interface of ``dgl.nn.AvgPooling``.

    .. math::
        r_i = \frac{1}{|G_i|} \sum_{v \in G_i} h_v

    Notes
    -----
    Source: K. Xu, W. Hu, J. Leskovec, S. Jegelka, "How Powerful are Graph Neural Networks?", ICLR
    2019, https://arxiv.org/abs/1810.00826.

    Where DGL is wrong: its mean is NaN if no graph of the batch has a node; here it is 0.

    **Fused path.** That of :class:`SumPooling`, the division included.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import AvgPooling
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> AvgPooling()(graph, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    tensor([[3., 4.]])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        r"""Average the rows of each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*)

        Returns
        -------
        Tensor
            (B, \*), zero for a graph without nodes.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor of floats.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        """
        return reduce_members(read_members(self, graph, feat), "mean", feat)


class MaxPooling(nn.Module):
    r"""Maximum over the nodes of each graph, with the interface of ``dgl.nn.MaxPooling``.

    .. math::
        r_i = \max_{v \in G_i} h_v

    for each feature by itself.

    Notes
    -----
    Source: K. Xu, W. Hu, J. Leskovec, S. Jegelka, "How Powerful are Graph Neural Networks?", ICLR
    2019, https://arxiv.org/abs/1810.00826.

    The first of several equal maxima gets the gradient. An infinite maximum is replaced by 0, as
    in DGL.

    **Fused path.** One CUDA kernel (``dgl_flash.ops.gspmm``), which saves for each number of the
    result which row it came from, in as few bytes as the largest graph allows; the gradient is
    another. On the CPU plain torch computes the same.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import MaxPooling
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> MaxPooling()(graph, torch.tensor([[1.0, 6.0], [3.0, 4.0], [5.0, 2.0]]))
    tensor([[5., 6.]])
    """

    def __init__(self) -> None:
        super().__init__()

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        r"""Take the largest value of each feature in each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, \*)

        Returns
        -------
        Tensor
            (B, \*), zero for a graph without nodes.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor of floats.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        """
        return reduce_members(read_members(self, graph, feat), "max", feat)
