"""Set2Set: an LSTM that reads the nodes of each graph by attention."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from dgl_flash import ops
from dgl_flash.nn.glob.common import read_members


class Set2Set(nn.Module):
    r"""Read-out by an LSTM with attention, with the interface of ``dgl.nn.Set2Set``.

    .. math::
        q_t &= \mathrm{LSTM}(q^*_{t-1}) \\
        \alpha_{v,t} &= \mathrm{softmax}_{v \in G_i} \langle h_v, q_t \rangle, \qquad
        r_t = \sum_{v \in G_i} \alpha_{v,t} \, h_v \\
        q^*_t &= q_t \, \Vert \, r_t

    from :math:`q^*_0 = 0` to the result :math:`q^*_T`, for each graph.

    Parameters
    ----------
    input_dim : int
        Width of the features, D; the result has twice that.
    n_iters : int
        T.
    n_layers : int
        Layers of the LSTM.

    Attributes
    ----------
    lstm : LSTM
        From 2 * input_dim to input_dim.

    Notes
    -----
    Source: O. Vinyals, S. Bengio, M. Kudlur, "Order Matters: Sequence to Sequence for Sets", ICLR
    2016, https://arxiv.org/abs/1511.06391.

    **Fused path.** Scores, softmax and weighted sum of a step are one CUDA kernel
    (``dgl_flash.ops.dot_attention``), which reads each node once, writes B rows and has a backward
    without atomics; queries are never repeated for the nodes. The LSTM is torch's (cuDNN on a
    GPU). Features wider than 512, and the CPU, keep one number a node and step.

    Examples
    --------
    >>> import torch, dgl_flash
    >>> from dgl_flash.nn import Set2Set
    >>> graph = dgl_flash.graph(([0, 1, 2], [1, 2, 0]))
    >>> Set2Set(4, n_iters=2, n_layers=1)(graph, torch.randn(3, 4)).shape
    torch.Size([1, 8])
    """

    def __init__(self, input_dim: int, n_iters: int, n_layers: int) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.output_dim = 2 * input_dim
        self.n_iters = n_iters
        self.n_layers = n_layers
        self.lstm = nn.LSTM(self.output_dim, self.input_dim, n_layers)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the weights of the LSTM as torch does."""
        self.lstm.reset_parameters()

    def forward(self, graph: Any, feat: Tensor) -> Tensor:
        """Let the LSTM read each graph.

        Parameters
        ----------
        graph : DGLGraph or dgl_flash.Graph
            One graph, or a batch of B; it may stay on the CPU while the features are on a GPU.
        feat : Tensor
            (N, input_dim)

        Returns
        -------
        Tensor
            (B, 2 * input_dim); for a graph without nodes the second half is 0.

        Raises
        ------
        TypeError
            If ``graph`` is no graph, or ``feat`` no tensor.
        DGLError
            If there is not one row a node, or there are several sets of nodes.
        ValueError
            If the features have another width than the module.
        RuntimeError
            If they have another dtype.
        """
        members = read_members(self, graph, feat)
        batch_size = members.num_members
        zeros = feat.new_zeros(self.n_layers, batch_size, self.input_dim)
        state = (zeros, zeros)
        q_star = feat.new_zeros(batch_size, self.output_dim)
        rows = feat.unsqueeze(1)
        for _ in range(self.n_iters):
            q, state = self.lstm(q_star.unsqueeze(0), state)
            # One head, and the features are both its keys and its values.
            readout = ops.dot_attention(members.struct, q.squeeze(0).unsqueeze(1), rows, rows, 1.0)
            q_star = torch.cat([q.squeeze(0), cast(Tensor, readout).squeeze(1)], dim=-1)
        return q_star

    def extra_repr(self) -> str:
        """Name the number of steps."""
        return f"n_iters={self.n_iters}"
